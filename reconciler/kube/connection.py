"""A connection to an API server as a value, without files, environment, or secrets in its repr."""

from dataclasses import dataclass, field
from pathlib import Path

from reconciler.core.secret import Secret
from reconciler.kube.networks import Networks


@dataclass(frozen=True, slots=True)
class NoCredential:
    """Anonymous, as when a kubeconfig names no user."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token written down in the kubeconfig."""

    token: Secret


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that something else keeps fresh, such as a projected service account token."""

    path: Path


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM text of a certificate chain and its key."""

    certificate: str
    key: Secret


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """User name and password (some gateways; Kubernetes itself dropped it in 1.19)."""

    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A command that prints an ExecCredential (client.authentication.k8s.io v1 or v1beta1).

    `command` is an absolute path or a bare name. `cluster_config` is the JSON text of the
    cluster's extension client.authentication.k8s.io/exec, for `provide_cluster_info`.
    """

    command: str
    args: tuple[Secret, ...]  # some plug-ins take a password here
    env: tuple[tuple[str, Secret], ...]
    api_version: str
    provide_cluster_info: bool
    interactive_mode: str
    install_hint: str = ""
    cluster_config: Secret | None = None


@dataclass(frozen=True, slots=True)
class CertificateAndHeader:
    """A certificate for the handshake, with a credential for each request's header."""

    certificate: ClientCertificate
    header: Token | TokenFile | BasicAuth


Credential = (
    NoCredential
    | Token
    | TokenFile
    | ClientCertificate
    | BasicAuth
    | CertificateAndHeader
    | ExecPlugin
)


@dataclass(frozen=True, slots=True)
class Connection:
    """An API server and our identity there.

    `name` is what people call the cluster; errors carry it. `server` is a URL without a
    trailing slash; it may have a path. `ca` is PEM text, None = the system's trust store.
    `tls_server_name` replaces the host for SNI and verification, "" = the host of `server`.
    `proxy` is a URL; it may hold a password, so it is a Secret. `networks` bounds where the host
    may lead; None: an operator chose it.
    """

    name: str
    server: str
    credential: Credential = field(default_factory=NoCredential)
    ca: str | None = None
    insecure: bool = False
    tls_server_name: str = ""
    proxy: Secret | None = None
    namespace: str = ""
    networks: Networks | None = None
