"""Where a broker is, and how it is spoken to, of its ServiceBroker and its Secret.

No value of the Secret is in any message. Refuses to know what is called.
"""

import base64
import binascii
import hashlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering.messages import version_of
from reconciler.core import manifest as m
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import Manifest
from reconciler.core.secret import Secret
from reconciler.kube.connection import BasicAuth, ClientCertificate, Token
from reconciler.outbound.http import url_fault
from reconciler.tls import client_context, show_certificate

_KEYS: Final = ("url", "username", "password", "token", "tls.crt", "tls.key", "ca.crt")
_WAYS: Final = (("username", "password"), ("token",), ("tls.crt", "tls.key"))


Credentials: TypeAlias = BasicAuth | Token | ClientCertificate


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is, without a slash at the end, and how it is spoken to.

    `ca` is PEM, None for the system's authorities. `digest` differs where the Secret does; it is
    not salted, so it stays in memory. `insecure`: whoever answers is trusted.
    """

    url: str
    credentials: Credentials | None = None
    ca: bytes | None = None
    api_version: str = "2.17"
    digest: str = field(default="", repr=False)
    insecure: bool = False


def address_of(spec: BrokerSpec, secret: Manifest | None) -> BrokerAddress:
    """Return the address of a broker.

    Raises ConfigError naming the key of the Secret, or the field of the ServiceBroker, that cannot
    be used; never its value.
    """
    if secret is None and spec.secret:
        raise ConfigError("it is not there", where=_where(spec))
    held = _held(spec, secret or {})
    url = _url(spec, held.get("url", ""))
    try:
        version_of(spec.api_version)
    except ValueError as error:
        raise ConfigError(str(error), where=f"ServiceBroker {spec.name}: apiVersion") from None
    return BrokerAddress(
        url=url,
        credentials=_credentials(spec, held),
        ca=_ca(spec, held),
        api_version=spec.api_version,
        digest=hashlib.sha256(m.canonical({**held, "url": url})).hexdigest(),
        insecure=spec.insecure,
    )


def _held(spec: BrokerSpec, secret: Manifest) -> dict[str, str]:
    """Return the texts of the keys that count. A line break at the end is an editor's."""
    held = m.get_text_map(secret, "stringData")
    for key, text in m.get_text_map(secret, "data").items():
        if key in _KEYS:
            try:
                held[key] = base64.b64decode(text, validate=True).decode()
            except (binascii.Error, ValueError):
                raise ConfigError("it is no text", where=_where(spec, key)) from None
    return {key: text.rstrip("\r\n") for key, text in held.items() if key in _KEYS}


def _url(spec: BrokerSpec, held: str) -> str:
    where = f"ServiceBroker {spec.name}: url" if spec.url else _where(spec, "url")
    if spec.url and held and spec.url.rstrip("/") != held.rstrip("/"):
        # Or whoever may write the ServiceBroker is sent a password that is meant for another.
        raise ConfigError("it is not the url in the Secret", where=where)
    url = (spec.url or held).rstrip("/")
    fault = url_fault(url, plain_http=True) if url else "neither it nor the ServiceBroker has one"
    if not fault and (urlsplit(url).query or urlsplit(url).fragment):
        fault = "the URL has a query or a fragment"
    if fault:
        raise ConfigError(fault, where=where)
    return url


def _credentials(spec: BrokerSpec, held: Mapping[str, str]) -> Credentials | None:
    given = [way for way in _WAYS if any(held.get(key) for key in way)]
    if len(given) > 1:
        keys = " and ".join(way[0] for way in given)
        raise ConfigError(f"{keys} exclude each other", where=_where(spec))
    for key in given[0] if given else ():
        if not held.get(key):
            raise ConfigError("it is missing", where=_where(spec, key))
    match given:
        case [("username", *_)]:
            return _basic(spec, held)
        case [("token",)]:
            if not (held["token"].isascii() and held["token"].isprintable()):
                raise ConfigError("it cannot be part of a header", where=_where(spec, "token"))
            return Token(Secret(held["token"]))
        case [("tls.crt", *_)]:
            return _certificate(spec, held)
    return None


def _basic(spec: BrokerSpec, held: Mapping[str, str]) -> BasicAuth:
    if ":" in held["username"]:
        raise ConfigError("no name in HTTP has a colon", where=_where(spec, "username"))
    return BasicAuth(held["username"], Secret(held["password"]))


def _certificate(spec: BrokerSpec, held: Mapping[str, str]) -> ClientCertificate:
    key = Secret(held["tls.key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    show_certificate(context, held["tls.crt"], key, where=_where(spec, "tls.crt"))
    return ClientCertificate(held["tls.crt"], key)


def _ca(spec: BrokerSpec, held: Mapping[str, str]) -> bytes | None:
    if "ca.crt" not in held:
        return None
    try:
        # Without a text OpenSSL would trust the system's authorities.
        client_context(held["ca.crt"] or "none")
    except ssl.SSLError:
        raise ConfigError("it is no PEM certificate", where=_where(spec, "ca.crt")) from None
    return held["ca.crt"].encode()


def _where(spec: BrokerSpec, key: str = "") -> str:
    name = f"{spec.namespace}/{spec.secret}" if spec.namespace else spec.secret
    return f"Secret {name}: {key}" if key else f"Secret {name}"
