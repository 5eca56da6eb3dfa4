"""A Connection from the entries that a context means. Pure: files come through `read`.

What contradicts itself is an error, as in kubectl. Stricter than kubectl, on purpose: a context
that names a missing user is not anonymous, credentials are never sent over plain http but to
loopback, and what is not supported (auth-provider, impersonation) is refused, not ignored.
"""

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from reconciler.core.errors import ConfigError
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
from reconciler.kube.kubeconfig import credential_text, host_names, proxy
from reconciler.kube.kubeconfig.entries import Entry, Profile

ReadFile = Callable[[Path], bytes]
"""Returns what a file holds. Raises OSError."""

IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
_EXEC_GROUP: Final = "client.authentication.k8s.io"
_EXEC_VERSIONS: Final = (f"{_EXEC_GROUP}/v1", f"{_EXEC_GROUP}/v1beta1")
_EXEC_MODES: Final = ("Never", "IfAvailable", "Always")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?")
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
        NoCredential() if profile.user is None else _credential(profile.user, cluster, read)
    )
    _refuse_plain_http(server, credential, cluster)
    ca, insecure = _trust(profile.cluster, read)
    return Connection(
        name=name,
        server=server,
        credential=credential,
        ca=ca,
        insecure=insecure,
        tls_server_name=_host_name(cluster, "tls-server-name"),
        proxy=_proxy(cluster, server, environ),
        namespace=_namespace(profile.context.fields),
    )


def server_of(cluster: Fields) -> str:
    """Return the checked URL of a cluster entry's server. Raises ConfigError."""
    server = cluster.text("server")
    problem = server_fault(server) if server else "is missing"
    if problem:
        raise ConfigError(f"server {problem}", where=str(cluster.at("server")))
    return server.rstrip("/?#")


def server_fault(server: str) -> str:
    """Say what is wrong with a server URL, without quoting it; "" where it can be used."""
    try:
        url = urlsplit(server)
        host, _ = url.hostname or "", url.port
    except ValueError:
        return "is not a valid URL"
    if url.username is not None or url.password is not None:
        return "holds credentials: move them to the user"
    if url.scheme not in ("https", "http"):
        return "must start with https://"
    if not server.isascii() or not server.isprintable() or " " in server:
        return "is not a valid URL"
    if not _is_name(host) and not _is_address(host):
        return "names no valid host"
    return "must not have a query or a fragment" if url.query or url.fragment else ""


def _is_name(host: str) -> bool:
    return _HOST.fullmatch(host) is not None and host_names.can_be_asked(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _is_loopback(url: SplitResult) -> bool:
    host = url.hostname or ""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _refuse_plain_http(server: str, credential: Credential, fields: Fields) -> None:
    url = urlsplit(server)
    if url.scheme == "http" and not isinstance(credential, NoCredential) and not _is_loopback(url):
        message = "credentials are not sent over http://, where everyone on the way reads them"
        raise ConfigError(message, where=str(fields.at("server")), hint="Use https://")


def _trust(cluster: Entry, read: ReadFile) -> tuple[str | None, bool]:
    fields = cluster.fields
    insecure = fields.flag("insecure-skip-tls-verify")
    ca = _pem(cluster, "certificate-authority", read)
    if ca is not None and insecure:
        message = "insecure-skip-tls-verify and certificate-authority exclude each other"
        raise ConfigError(message, where=str(fields.at("insecure-skip-tls-verify")))
    return ca, insecure


def _proxy(fields: Fields, server: str, environ: Mapping[str, str]) -> Secret | None:
    url = fields.text("proxy-url")
    if not url:
        return proxy.from_environment(server, environ)
    if problem := proxy.fault(url):
        raise ConfigError(f"proxy-url: {problem}", where=str(fields.at("proxy-url")))
    return Secret(url)


def _host_name(fields: Fields, key: str) -> str:
    host = fields.text(key)
    if host and not _is_name(host) and not _is_address(host):
        raise ConfigError(f"{key} is not a valid host name", where=str(fields.at(key)))
    return host


def _namespace(fields: Fields) -> str:
    namespace = fields.text("namespace")
    if namespace and not _LABEL.fullmatch(namespace):
        raise ConfigError("namespace is not a valid name", where=str(fields.at("namespace")))
    return namespace


def _credential(user: Entry, cluster: Fields, read: ReadFile) -> Credential:
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
    if fields.has("auth-provider"):
        message = "auth-provider is not supported; Kubernetes removed it in 1.26"
        hint = "Use the exec plug-in of your provider, such as kubelogin or gke-gcloud-auth-plugin"
        raise ConfigError(message, where=str(fields.at("auth-provider")), hint=hint)
    for key in IMPERSONATION:
        if fields.has(key):
            hint = "Use a user that has the rights itself"
            message = f"impersonation ({key}) is not supported"
            raise ConfigError(message, where=str(fields.at(key)), hint=hint)


def _header(user: Entry) -> Token | TokenFile | BasicAuth | None:
    fields = user.fields
    token, file = fields.text("token"), fields.text("tokenFile")
    username, password = fields.text("username"), fields.text("password")
    if username or password:
        if token or file:
            message = "a token and a username with password exclude each other"
            raise ConfigError(message, where=str(fields.origin))
        if ":" in username:
            message = "username must not hold a colon (RFC 7617)"
            raise ConfigError(message, where=str(fields.at("username")))
        return BasicAuth(username, Secret(password))
    if file:  # wins over token, as in kubectl
        return TokenFile(_path(user, "tokenFile"))
    if token and (problem := credential_text.token_fault(token)):
        raise ConfigError(f"token {problem}", where=str(fields.at("token")))
    return Token(Secret(token)) if token else None


def _client_certificate(user: Entry, read: ReadFile) -> ClientCertificate | None:
    certificate = _pem(user, "client-certificate", read)
    key = _pem(user, "client-key", read)
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        message = f"a client certificate needs its key: {missing} is missing"
        raise ConfigError(message, where=str(user.fields.origin))
    return ClientCertificate(certificate, Secret(key))


def _pem(entry: Entry, key: str, read: ReadFile) -> str | None:
    """Return the checked PEM text that `key` names as a file, or `key`-data holds in base64."""
    fields, data_key = entry.fields, f"{key}-data"
    data, file = fields.text(data_key), fields.text(key)
    if data and file:
        message = f"{key} and {data_key} exclude each other"
        raise ConfigError(message, where=str(fields.at(key)))
    if not data and not file:
        return None
    used = data_key if data else key
    pem = _decoded(data) if data else _file(entry, key, read)
    judge = credential_text.key_fault if key == "client-key" else credential_text.certificates_fault
    if problem := "is not valid base64" if pem is None else judge(pem):
        raise ConfigError(f"{used} {problem}", where=str(fields.at(used)))
    return pem


def _decoded(data: str) -> str | None:
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return None


def _file(entry: Entry, key: str, read: ReadFile) -> str:
    path = _path(entry, key)
    try:
        return read(path).decode("latin-1")
    except OSError as error:
        reason = error.strerror or "unreadable"
        message = f"{key}: {credential_text.shown_path(path)} cannot be read: {reason}"
    raise ConfigError(message, where=str(entry.fields.at(key)))


def _path(entry: Entry, key: str) -> Path:
    path = Path(entry.fields.text(key))
    if path.is_absolute():
        return path
    if entry.folder is None:
        raise ConfigError(f"{key} must be an absolute path", where=str(entry.fields.at(key)))
    return entry.folder / path


def _exec_plugin(fields: Fields, folder: Path | None, cluster: Fields) -> ExecPlugin:
    version = fields.text("apiVersion")
    if version not in _EXEC_VERSIONS:
        message = f"exec: apiVersion must be {' or '.join(_EXEC_VERSIONS)}"
        hint = (
            "v1alpha1 was removed in Kubernetes 1.24: let your provider's tool write the file anew"
        )
        raise ConfigError(message, where=str(fields.at("apiVersion")), hint=hint)
    mode = fields.text("interactiveMode") or ("IfAvailable" if version.endswith("beta1") else "")
    if mode not in _EXEC_MODES:
        message = f"exec: interactiveMode must be {', '.join(_EXEC_MODES)}"
        raise ConfigError(message, where=str(fields.at("interactiveMode")))
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
        raise ConfigError("exec: command is missing", where=str(fields.at("command")))
    if "/" not in command or Path(command).is_absolute():
        return command
    if folder is None:
        message = "exec: command must be an absolute path or a bare name"
        raise ConfigError(message, where=str(fields.at("command")))
    return str(folder / command)


def _variable(fields: Fields) -> tuple[str, Secret]:
    name = fields.text("name")
    if not name or "=" in name:
        message = "exec: a variable in env needs a name, without an equals sign"
        raise ConfigError(message, where=str(fields.at("name")))
    return name, Secret(fields.text("value"))


def _cluster_config(cluster: Fields) -> Secret | None:
    """The reserved extension that a plug-in gets with the cluster info (KEP-541)."""
    for extension in cluster.sections("extensions"):
        if extension.text("name") == f"{_EXEC_GROUP}/exec" and "extension" in extension.nodes:
            return Secret(json.dumps(extension.nodes["extension"].plain()))
    return None
