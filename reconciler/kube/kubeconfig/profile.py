"""Makes a Connection from the entries of a context. Pure: `read` reads files.

What contradicts itself is an error, as in kubectl. Stricter than kubectl, on purpose: a context
that names a missing user is not anonymous, credentials are never sent over plain http but to
loopback, and what is not supported (auth-provider, impersonation) is refused, not ignored.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from reconciler.core import addresses
from reconciler.core.secret import Secret
from reconciler.core.yaml_text import Fields
from reconciler.kube.connection import (
    BasicAuth,
    CertificateAndHeader,
    ClientCertificate,
    Connection,
    Credential,
    ExecPlugin,
    NoCredential,
    Token,
    TokenFile,
)
from reconciler.kube.kubeconfig import entries
from reconciler.kube.kubeconfig.entries import Entry, Profile, ReadFile
from reconciler.kube.networks import server_fault

IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
_EXEC_GROUP: Final = "client.authentication.k8s.io"
_EXEC_VERSIONS: Final = (f"{_EXEC_GROUP}/v1", f"{_EXEC_GROUP}/v1beta1")
_EXEC_MODES: Final = ("Never", "IfAvailable", "Always")
_INSECURE: Final = "insecure-skip-tls-verify"
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def connection(
    profile: Profile, *, name: str, environ: Mapping[str, str], read: ReadFile
) -> Connection:
    """Build the connection; `environ` is where HTTPS_PROXY and NO_PROXY are looked up.

    Raises ConfigError, with file:line:column and without any text of a credential.
    """
    cluster = profile.cluster.fields
    server = server_of(cluster)
    credential = (
        NoCredential() if profile.user is None else credential_of(profile.user, cluster, read)
    )
    _refuse_plain_http(server, credential, cluster)
    ca, insecure = _trust(profile.cluster, read)
    return Connection(
        name=name,
        server=server,
        credential=credential,
        ca=ca,
        insecure=insecure,
        tls_server_name=_tls_server_name(cluster),
        proxy=_proxy(cluster, server, environ),
        namespace=_namespace(profile.context.fields),
    )


def server_of(cluster: Fields) -> str:
    """Return the checked URL of a cluster entry's server. Raises ConfigError."""
    server = cluster.text("server")
    problem = server_fault(server) if server else "is missing"
    if problem:
        raise cluster.error(f"server {problem}", at="server")
    return server.rstrip("/?#")


def _refuse_plain_http(server: str, credential: Credential, fields: Fields) -> None:
    url = urlsplit(server)
    if isinstance(credential, NoCredential) or url.scheme == "https" or addresses.is_loopback(url):
        return
    message = "credentials are not sent over http://, where everyone on the way reads them"
    raise fields.error(message, at="server", hint="Use https://")


def _trust(cluster: Entry, read: ReadFile) -> tuple[str | None, bool]:
    fields = cluster.fields
    insecure = fields.flag(_INSECURE)
    ca = entries.pem_of(cluster, "certificate-authority", read)
    if ca is not None and insecure:
        message = f"{_INSECURE} and certificate-authority exclude each other"
        raise fields.error(message, at=_INSECURE)
    return ca, insecure


def _proxy(fields: Fields, server: str, environ: Mapping[str, str]) -> Secret | None:
    url = fields.text("proxy-url")
    if not url:
        return addresses.proxy_from_environment(server, environ)
    if problem := addresses.proxy_fault(url):
        raise fields.error(f"proxy-url: {problem}", at="proxy-url")
    return Secret(url)


def _tls_server_name(fields: Fields) -> str:
    host = fields.text("tls-server-name")
    if host and not addresses.is_host(host):
        raise fields.error("tls-server-name is not a valid host name", at="tls-server-name")
    return host


def _namespace(fields: Fields) -> str:
    namespace = fields.text("namespace")
    if namespace and not _LABEL.fullmatch(namespace):
        raise fields.error("namespace is not a valid name", at="namespace")
    return namespace


def credential_of(user: Entry, cluster: Fields, read: ReadFile) -> Credential:
    """Choose as kubectl does: a certificate goes with a token or password; exec comes last."""
    _refuse_unsupported(user.fields)
    certificate, header = _client_certificate(user, read), _header(user)
    if certificate is not None and header is not None:
        return CertificateAndHeader(certificate, header)
    if static := certificate or header:
        return static
    plugin = user.fields.section("exec")
    return NoCredential() if plugin is None else _exec_plugin(plugin, user.folder, cluster)


def _refuse_unsupported(fields: Fields) -> None:
    if provider := fields.section("auth-provider"):
        # client-go has gcp and azure no more since 1.26; the third was always oidc.
        gone = "" if provider.text("name") == "oidc" else "; kubectl refuses it, too, since 1.26"
        hint = "Use the exec plug-in of your provider, such as kubelogin or gke-gcloud-auth-plugin"
        raise fields.error(f"auth-provider is not supported{gone}", at="auth-provider", hint=hint)
    for key in IMPERSONATION:
        if fields.has(key):
            hint = "Use a user that has the rights itself"
            raise fields.error(f"impersonation ({key}) is not supported", at=key, hint=hint)


def _header(user: Entry) -> Token | TokenFile | BasicAuth | None:
    fields = user.fields
    token, file = fields.text("token"), fields.text("tokenFile")
    username, password = fields.text("username"), fields.text("password")
    if username or password:
        if token or file:
            raise fields.error("a token and a username with password exclude each other")
        if ":" in username:
            raise fields.error("username must not contain a colon (RFC 7617)", at="username")
        return BasicAuth(username, Secret(password))
    if file:  # wins over token, as in kubectl
        return TokenFile(entries.path_of(user, "tokenFile"))
    if token and (problem := entries.token_fault(token)):
        raise fields.error(f"token {problem}", at="token")
    return Token(Secret(token)) if token else None


def _client_certificate(user: Entry, read: ReadFile) -> ClientCertificate | None:
    certificate = entries.pem_of(user, "client-certificate", read)
    key = entries.pem_of(user, "client-key", read)
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise user.fields.error(f"a client certificate needs its key: {missing} is missing")
    return ClientCertificate(certificate, Secret(key))


def _exec_plugin(fields: Fields, folder: Path | None, cluster: Fields) -> ExecPlugin:
    version = fields.text("apiVersion")
    if version not in _EXEC_VERSIONS:
        message = f"exec: apiVersion must be {' or '.join(_EXEC_VERSIONS)}"
        hint = (
            "v1alpha1 was removed in Kubernetes 1.24: let your provider's tool write the file again"
        )
        raise fields.error(message, at="apiVersion", hint=hint)
    mode = fields.text("interactiveMode") or ("IfAvailable" if version.endswith("beta1") else "")
    if mode not in _EXEC_MODES:
        raise fields.error(
            f"exec: interactiveMode must be {', '.join(_EXEC_MODES)}", at="interactiveMode"
        )
    provide = fields.flag("provideClusterInfo")
    return ExecPlugin(
        command=_command(fields, folder),
        args=tuple(map(Secret, fields.texts("args"))),
        env=tuple(_variable(item) for item in fields.sections("env")),
        api_version=version,
        provide_cluster_info=provide,
        interactive_mode=mode,
        install_hint=fields.text("installHint"),
        cluster_config=_cluster_config(cluster) if provide else None,
    )


def _command(fields: Fields, folder: Path | None) -> str:
    """A command with a slash is a path, and starts at the kubeconfig; a bare name is on PATH."""
    command = fields.text("command")
    if not command:
        raise fields.error("exec: command is missing", at="command")
    if "/" not in command or Path(command).is_absolute():
        return command
    if folder is None:
        raise fields.error("exec: command must be an absolute path or a bare name", at="command")
    return str(folder / command)


def _variable(fields: Fields) -> tuple[str, Secret]:
    name = fields.text("name")
    if not name or "=" in name:
        raise fields.error(
            "exec: a variable in env needs a name, without an equals sign", at="name"
        )
    return name, Secret(fields.text("value"))


def _cluster_config(cluster: Fields) -> Secret | None:
    """The reserved extension that a plug-in gets with the cluster info (KEP-541)."""
    for extension in cluster.sections("extensions"):
        if extension.text("name") == f"{_EXEC_GROUP}/exec" and "extension" in extension.nodes:
            return Secret(json.dumps(extension.nodes["extension"].plain()))
    return None
