"""Connections from files: kubeconfigs as kubectl finds and merges them, and a pod's own account.

Reads files, at once and in the calling thread: for use when a program starts. Errors name the
place in the file and never quote what might be a credential.
"""

import errno
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.kube.connection import Connection, TokenFile
from reconciler.kube.kubeconfig import credential_text, entries, profile, urls
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


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster(
    *, environ: Mapping[str, str], root: Path = SERVICE_ACCOUNT, name: str = "in-cluster"
) -> Connection:
    """Return the connection of the pod's service account; its token is re-read as it rotates.

    `root` holds `token`, `ca.crt` and, if the pod has one, `namespace`. Raises ConfigError
    outside of a pod, and in one that mounts no service account.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdecimal():
        message = "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        raise ConfigError(message, hint="Use a kubeconfig")
    server = f"https://{_bracketed(host)}:{port}"
    if problem := urls.server_fault(server):
        raise ConfigError(f"the API server's address {problem}", where="$KUBERNETES_SERVICE_HOST")
    token = root / "token"
    _checked(token, credential_text.token_fault)
    return Connection(
        name=name,
        server=server,
        credential=TokenFile(token),
        ca=_checked(root / "ca.crt", credential_text.certificates_fault),
        proxy=urls.proxy_from_environment(server, environ),
        namespace=_pod_namespace(root / "namespace"),
    )


def _checked(path: Path, judge: Callable[[str], str]) -> str:
    text = _pod_file(path).strip()
    if problem := judge(text):
        raise ConfigError(f"this file {problem}", where=str(path))
    return text


def _bracketed(host: str) -> str:
    try:
        is_ipv6 = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_ipv6 = False
    return f"[{host}]" if is_ipv6 else host


def _pod_namespace(path: Path) -> str:
    return _pod_file(path).strip() if path.exists() else ""


def _pod_file(path: Path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except OSError as error:
        message = f"cannot be read: {error.strerror or 'unreadable'}"
        hint = "Does the pod mount a service account token (automountServiceAccountToken)?"
        raise ConfigError(message, where=str(path), hint=hint) from None
