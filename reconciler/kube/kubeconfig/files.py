"""Makes connections from kubeconfig files, merged as kubectl does, from Secrets, and in a pod.

Files are read at once and in the calling thread: for use when a program starts; of what lies in a
Secret none is. Errors name the place in the file and never quote what might be a credential.
"""

import errno
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from reconciler.core.addresses import proxy_from_environment
from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import MAX_BYTES, Fields
from reconciler.kube.connection import Connection, TokenFile
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.kubeconfig.entries import Kubeconfig, Profile
from reconciler.kube.kubeconfig.profile import IMPERSONATION
from reconciler.kube.networks import ANYWHERE, Networks, server_fault


@dataclass(frozen=True, slots=True)
class ContextSummary:
    """A context in a list. `problem` is why it leads to no server; then the rest is ""."""

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
        raise ConfigError(
            f"no kubeconfig found; looked for {names}", where="--kubeconfig", hint=hint
        )
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
        raise ConfigError(message, where=name, hint="Use a kubeconfig")
    server = f"https://{_bracketed(host)}:{port}"
    if problem := server_fault(server):
        raise ConfigError(f"the API server's address {problem}", where="$KUBERNETES_SERVICE_HOST")
    token, namespace = root / "token", root / "namespace"
    _checked(token, entries.token_fault)
    return Connection(
        name=name,
        server=server,
        credential=TokenFile(token),
        ca=_checked(root / "ca.crt", entries.certificates_fault),
        proxy=proxy_from_environment(server, environ),
        namespace=_pod_file(namespace).strip() if namespace.exists() else "",
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


def _pod_file(path: Path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except OSError as error:
        message = f"cannot be read: {error.strerror or 'unreadable'}"
        hint = "Does the pod mount a service account token (automountServiceAccountToken)?"
        raise ConfigError(message, where=str(path), hint=hint) from None


# The author of a Secret is not always trusted with the machine that reads it: such a kubeconfig
# could run commands (CVE-2022-24817, CVE-2021-41254), send local files away or lead the traffic
# elsewhere. Only the entries of the current context are judged: no other is ever used.
_OF_USER: Final = {
    "exec": "would run a command on this machine",
    "auth-provider": "is not supported, and would run code on this machine",
    "tokenFile": "would send a file of this machine to the server: use token",
    "client-certificate": "would read a file of this machine: use client-certificate-data",
    "client-key": "would read a file of this machine: use client-key-data",
} | dict.fromkeys(IMPERSONATION, "is not supported: use a user that has the rights itself")
_OF_CLUSTER: Final = {
    "certificate-authority": "would read a file of this machine: use certificate-authority-data",
    "proxy-url": "would lead the traffic through a host of the author's choice",
}
_INSECURE: Final = "insecure-skip-tls-verify"
# The author chooses how long its readers do nothing else: a megabyte takes seconds.
_LARGEST: Final = 64 << 10


def from_secret(
    content: bytes, *, name: str, environ: Mapping[str, str], networks: Networks = ANYWHERE
) -> Connection:
    """Return the connection that the current context of a Secret's kubeconfig means.

    `name` is what people call the cluster. What a host name comes to is held against `networks`
    when it is connected to. Raises ConfigError for what an untrusted kubeconfig must not say, all
    of it at once, and for one that is broken.
    """
    path = f"kubeconfig of {name}"
    if len(content) > _LARGEST:
        message = f"larger than {_LARGEST >> 10} KiB"
        hint = "Leave only the context that is used, and the certificate authority that it needs"
        raise ConfigError(message, where=path, hint=hint)
    chosen = entries.profile(entries.parse(content, path=path, folder=None), None)
    _require(_forbidden_fields(chosen), path)
    connection = profile.connection(chosen, name=name, environ=environ, read=_read_nothing)
    _require(_forbidden_address(connection.server, networks), path)
    return replace(connection, networks=networks)


def from_content(content: bytes, *, name: str, networks: Networks = ANYWHERE) -> Connection | str:
    """Return the connection as `from_secret` does without exceptions, or why there is none.

    The reason goes on a sentence that begins with the Secret's name.
    """
    try:
        return from_secret(content, name=name, environ={}, networks=networks)
    except ConfigError as error:
        return f"has an invalid kubeconfig: {error}"


def _require(faults: Sequence[str], path: str) -> None:
    if faults:
        message = f"this kubeconfig is not accepted from a Secret: {'; '.join(faults)}"
        raise ConfigError(message, where=path)


def _forbidden_fields(profile: Profile) -> list[str]:
    cluster = profile.cluster.fields
    user = [] if profile.user is None else _present(profile.user.fields, _OF_USER)
    faults = [*user, *_present(cluster, _OF_CLUSTER)]
    if cluster.flag(_INSECURE):
        faults.append(f"{_INSECURE} would talk to any server at the address")
    return faults


def _present(fields: Fields, reasons: Mapping[str, str]) -> list[str]:
    return [f"{field} {reason}" for field, reason in reasons.items() if fields.has(field)]


def _forbidden_address(server: str, networks: Networks) -> list[str]:
    url = urlsplit(server)
    if url.scheme != "https":
        return ["server must start with https://"]
    fault = networks.fault(url.hostname or "")
    return [f"server is refused: {fault}"] if fault else []


def _read_nothing(path: Path) -> bytes:
    """Refuse to read a file: all fields that name one are forbidden."""
    raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
