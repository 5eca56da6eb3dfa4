"""Connections from kubeconfig files, as kubectl finds and merges them.

Reads files, at once and in the calling thread: for use when a program starts. Errors name the
place in the file and never quote what might be a credential.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.kubeconfig.entries import Kubeconfig


@dataclass(frozen=True, slots=True)
class ContextSummary:
    """A context as listed. `problem` says why it leads to no server; then the rest is ""."""

    name: str
    current: bool
    origin: str
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    problem: str = ""


def search_paths(
    explicit: str | None, *, environ: Mapping[str, str], home: Path
) -> tuple[Path, ...]:
    """Return the files to load: the one given, else those of $KUBECONFIG, else ~/.kube/config."""
    if explicit:
        return (Path(explicit),)
    listed = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return tuple(dict.fromkeys(map(Path, listed))) or (home / ".kube" / "config",)


def load(
    paths: Sequence[Path],
    *,
    environ: Mapping[str, str],
    context: str | None = None,
    name: str = "",
) -> Connection:
    """Return the connection that `context` (None: the current one) of the merged files means.

    Files that do not exist are skipped while there is one that does. `name` is what people
    call the cluster ("": the context's name). `environ` has HTTPS_PROXY and NO_PROXY.
    Raises ConfigError.
    """
    chosen = entries.profile(merged(paths), context)
    return profile.connection(
        chosen, name=name or chosen.context.name, environ=environ, read=read_file
    )


def contexts(paths: Sequence[Path]) -> tuple[ContextSummary, ...]:
    """List the contexts of the merged files by name; one that is broken breaks no other.

    Reads no other file. Raises ConfigError where the files themselves cannot be read.
    """
    kubeconfig = merged(paths)
    return tuple(_summary(kubeconfig, name) for name in sorted(kubeconfig.contexts))


def merged(paths: Sequence[Path]) -> Kubeconfig:
    """Return all files as one, the first definition of a name winning. Raises ConfigError."""
    kubeconfigs = [kubeconfig for path in paths if (kubeconfig := _parsed(path)) is not None]
    if not kubeconfigs:
        names = ", ".join(map(str, paths))
        hint = "Name a kubeconfig with --kubeconfig or $KUBECONFIG"
        raise ConfigError(f"no kubeconfig found; looked for {names}", hint=hint)
    return entries.merge(kubeconfigs)


def _parsed(path: Path) -> Kubeconfig | None:
    try:
        content = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror or 'unreadable'}"
        raise ConfigError(message, where=str(path)) from None
    # As in kubectl, relative paths start where the file is named, not where a symlink leads.
    return entries.parse(content, path=str(path), folder=path.absolute().parent)


def read_file(path: Path) -> bytes:
    """Return a file of at most MAX_BYTES. Raises OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def _summary(kubeconfig: Kubeconfig, name: str) -> ContextSummary:
    fields = kubeconfig.contexts[name].fields
    known = ContextSummary(name, name == kubeconfig.current_context, str(fields.origin))
    try:
        chosen = entries.profile(kubeconfig, name)
        return replace(
            known,
            cluster=chosen.cluster.name,
            user="" if chosen.user is None else chosen.user.name,
            namespace=fields.text("namespace"),
            server=profile.server_of(chosen.cluster.fields),
        )
    except ConfigError as error:
        return replace(known, problem=str(error))
