"""Connections from kubeconfigs: from files as kubectl finds and merges them, and from Secrets.

Reads files, at once and in the calling thread: for use when a program starts. Errors name the
place in the file and never quote what might be a credential.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.kube import kubeconfig_entries, kubeconfig_profile, kubeconfig_secret
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig_entries import Kubeconfig
from reconciler.kube.kubeconfig_secret import Allowable, ForbiddenFields, Refusal
from reconciler.kube.networks import ANYWHERE, Networks

__all__ = [
    "Allowable",
    "ContextSummary",
    "ForbiddenFields",
    "Refusal",
    "contexts",
    "from_secret",
    "load",
    "merged",
    "read_file",
    "search_paths",
]

# Whoever writes the Secret chooses how long its readers do nothing else: a megabyte takes seconds.
_LARGEST_IN_SECRET: Final = 64 << 10


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
    call the cluster ("": the context's name). `environ` tells HTTPS_PROXY and NO_PROXY.
    Raises ConfigError.
    """
    profile = kubeconfig_entries.profile(merged(paths), context)
    return kubeconfig_profile.connection(
        profile, name=name or profile.context.name, environ=environ, read=read_file
    )


def contexts(paths: Sequence[Path]) -> tuple[ContextSummary, ...]:
    """List the contexts of the merged files by name; one that is broken breaks no other.

    Reads no other file. Raises ConfigError where the files themselves cannot be read.
    """
    kubeconfig = merged(paths)
    return tuple(_summary(kubeconfig, name) for name in sorted(kubeconfig.contexts))


def from_secret(
    content: bytes,
    *,
    name: str,
    environ: Mapping[str, str],
    allow: frozenset[Allowable] = frozenset(),
    networks: Networks = ANYWHERE,
) -> Connection:
    """Return the connection that the current context of a Secret's kubeconfig means.

    `name` is what people call the cluster. What a host name comes to is held against `networks`
    when it is connected to. Raises ForbiddenFields for what an untrusted
    kubeconfig must not say, but for what is in `allow`, and ConfigError for one that is broken.
    """
    path = f"kubeconfig of {name}"
    if len(content) > _LARGEST_IN_SECRET:
        message = f"larger than {_LARGEST_IN_SECRET >> 10} KiB"
        hint = "Leave only the context that is used, and the certificate authority that it needs"
        raise ConfigError(message, where=path, hint=hint)
    kubeconfig = kubeconfig_entries.parse(content, path=path, folder=None)
    profile = kubeconfig_entries.profile(kubeconfig, None)
    kubeconfig_secret.refuse_forbidden(profile, allow)
    found = kubeconfig_profile.connection(profile, name=name, environ=environ, read=read_file)
    kubeconfig_secret.refuse_address(profile, found.server, networks)
    return replace(found, networks=networks)


def merged(paths: Sequence[Path]) -> Kubeconfig:
    """Return all files as one, the first definition of a name winning. Raises ConfigError."""
    found = [kubeconfig for path in paths if (kubeconfig := _parsed(path)) is not None]
    if not found:
        names = ", ".join(map(str, paths))
        hint = "Name a kubeconfig with --kubeconfig or $KUBECONFIG"
        raise ConfigError(f"no kubeconfig found; looked for {names}", hint=hint)
    return kubeconfig_entries.merge(found)


def _parsed(path: Path) -> Kubeconfig | None:
    try:
        content = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror or 'unreadable'}"
        raise ConfigError(message, where=str(path)) from None
    # As in kubectl, relative paths start where the file is named, not where a symlink leads.
    return kubeconfig_entries.parse(content, path=str(path), folder=path.absolute().parent)


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
        profile = kubeconfig_entries.profile(kubeconfig, name)
        return replace(
            known,
            cluster=profile.cluster.name,
            user="" if profile.user is None else profile.user.name,
            namespace=fields.text("namespace"),
            server=kubeconfig_profile.server_of(profile.cluster.fields),
        )
    except ConfigError as error:
        return replace(known, problem=str(error))
