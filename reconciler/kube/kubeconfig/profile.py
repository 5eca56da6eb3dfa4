"""A Connection from the entries that a context means. Pure: files come through `read`.

What contradicts itself is an error, as in kubectl. Stricter than kubectl, on purpose: a context
that names a missing user is not anonymous, credentials are never sent over plain http but to
loopback, and what is not supported (auth-provider, impersonation) is refused, not ignored.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from reconciler.core.secret import Secret
from reconciler.core.yaml_text import Fields
from reconciler.kube.connection import Connection, Credential, NoCredential
from reconciler.kube.kubeconfig import entries, urls, user
from reconciler.kube.kubeconfig.entries import Entry, Profile, ReadFile

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
        NoCredential() if profile.user is None else user.credential(profile.user, cluster, read)
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
    problem = urls.server_fault(server) if server else "is missing"
    if problem:
        raise cluster.error(f"server {problem}", at="server")
    return server.rstrip("/?#")


def _refuse_plain_http(server: str, credential: Credential, fields: Fields) -> None:
    url = urlsplit(server)
    if isinstance(credential, NoCredential) or url.scheme == "https" or urls.is_loopback(url):
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
        return urls.proxy_from_environment(server, environ)
    if problem := urls.proxy_fault(url):
        raise fields.error(f"proxy-url: {problem}", at="proxy-url")
    return Secret(url)


def _tls_server_name(fields: Fields) -> str:
    host = fields.text("tls-server-name")
    if host and not urls.is_host(host):
        raise fields.error("tls-server-name is not a valid host name", at="tls-server-name")
    return host


def _namespace(fields: Fields) -> str:
    namespace = fields.text("namespace")
    if namespace and not _LABEL.fullmatch(namespace):
        raise fields.error("namespace is not a valid name", at="namespace")
    return namespace
