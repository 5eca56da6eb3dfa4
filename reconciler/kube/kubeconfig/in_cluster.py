"""The connection of a pod to its own cluster, from what the kubelet puts into each pod."""

import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from reconciler.core.errors import ConfigError
from reconciler.kube.connection import Connection, TokenFile
from reconciler.kube.kubeconfig import credential_text, proxy, urls

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
        proxy=proxy.from_environment(server, environ),
        namespace=_namespace(root / "namespace"),
    )


def _checked(path: Path, judge: Callable[[str], str]) -> str:
    text = _read(path).strip()
    if problem := judge(text):
        raise ConfigError(f"this file {problem}", where=str(path))
    return text


def _bracketed(host: str) -> str:
    try:
        is_ipv6 = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_ipv6 = False
    return f"[{host}]" if is_ipv6 else host


def _namespace(path: Path) -> str:
    return _read(path).strip() if path.exists() else ""


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except OSError as error:
        message = f"cannot be read: {error.strerror or 'unreadable'}"
        hint = "Does the pod mount a service account token (automountServiceAccountToken)?"
        raise ConfigError(message, where=str(path), hint=hint) from None
