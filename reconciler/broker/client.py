"""Calls one broker within limits, and classifies each result.

Nothing that the broker or the net does is an exception: it is an outcome. A call is sent once.
"""

import asyncio
import base64
import binascii
import hashlib
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering import answers, catalogue
from reconciler.blueprints.offering.catalogue import Catalogue, CatalogueFault, catalogue_of
from reconciler.blueprints.offering.messages import (
    Call,
    HttpRequest,
    OriginatingIdentity,
    ReadCatalogue,
    http_request,
    version_of,
)
from reconciler.blueprints.offering.outcomes import Denied, Outcome, Unknown, Unsent, scrub
from reconciler.core import manifest as m
from reconciler.core.errors import ConfigError, KlutchError, Retry
from reconciler.core.manifest import Manifest
from reconciler.core.secret import Secret
from reconciler.tls import show_certificate
from reconciler.web.outbound import Answer, Http, OutboundError, Tls, url_fault

_KEYS: Final = ("url", "username", "password", "token", "tls.crt", "tls.key", "ca.crt")
_WAYS: Final = (("username", "password"), ("token",), ("tls.crt", "tls.key"))
Observe: TypeAlias = Callable[[str, str, float], None]  # verb, code, seconds
NO_CODE: Final = "none"  # there was no answer
_OTHER_CODE: Final = "other"  # so that no broker makes as many series as there are numbers


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The URL of a broker, without a slash at the end, and its protocol.

    `authorization` is the header that proves our identity, where `tls` does not; no text repeats
    `secrets`. `digest` differs where the Secret does; it is not salted, so it stays in memory.
    """

    url: str
    authorization: Secret | None = None
    tls: Tls = field(default_factory=Tls)
    api_version: str = "2.17"
    digest: str = field(default="", repr=False)
    secrets: tuple[Secret, ...] = ()


def address_of(spec: BrokerSpec, secret: Manifest | None) -> BrokerAddress:
    """Return the address of a broker.

    Raises ConfigError naming the key of the Secret, or the field of the ServiceBroker, that cannot
    be used; never its value.
    """
    if secret is None and spec.secret:
        raise ConfigError("it is not there", where=_where(spec))
    texts = _texts(spec, secret or {})
    url = _url(spec, texts.get("url", ""))
    try:
        version_of(spec.api_version)
    except ValueError as error:
        raise ConfigError(str(error), where=f"ServiceBroker {spec.name}: apiVersion") from None
    authorization, secrets = _credentials(spec, texts)
    return BrokerAddress(
        url=url,
        authorization=authorization,
        tls=_tls(spec, texts),
        api_version=spec.api_version,
        digest=hashlib.sha256(m.canonical({**texts, "url": url})).hexdigest(),
        secrets=secrets,
    )


def _texts(spec: BrokerSpec, secret: Manifest) -> dict[str, str]:
    """Return the texts of the keys that count. A line break at the end is an editor's."""
    texts = m.get_text_map(secret, "stringData")
    for key, text in m.get_text_map(secret, "data").items():
        if key in _KEYS:
            try:
                texts[key] = base64.b64decode(text, validate=True).decode()
            except (binascii.Error, ValueError):
                raise ConfigError("it is no text", where=_where(spec, key)) from None
    return {key: text.rstrip("\r\n") for key, text in texts.items() if key in _KEYS}


def _url(spec: BrokerSpec, in_secret: str) -> str:
    where = f"ServiceBroker {spec.name}: url" if spec.url else _where(spec, "url")
    if spec.url and in_secret and spec.url.rstrip("/") != in_secret.rstrip("/"):
        # Or whoever may write the ServiceBroker is sent a password that is meant for another.
        raise ConfigError("it is not the url in the Secret", where=where)
    url = (spec.url or in_secret).rstrip("/")
    fault = url_fault(url, plain_http=True) if url else "neither it nor the ServiceBroker has one"
    if not fault and (urlsplit(url).query or urlsplit(url).fragment):
        fault = "the URL has a query or a fragment"
    if fault:
        raise ConfigError(fault, where=where)
    return url


def _credentials(
    spec: BrokerSpec, texts: Mapping[str, str]
) -> tuple[Secret | None, tuple[Secret, ...]]:
    """Return the header that proves our identity, and the secrets in it or beside it."""
    given = [way for way in _WAYS if any(texts.get(key) for key in way)]
    if len(given) > 1:
        keys = " and ".join(way[0] for way in given)
        raise ConfigError(f"{keys} exclude each other", where=_where(spec))
    for key in given[0] if given else ():
        if not texts.get(key):
            raise ConfigError("it is missing", where=_where(spec, key))
    match given:
        case [("username", *_)]:
            if ":" in texts["username"]:
                raise ConfigError("no name in HTTP has a colon", where=_where(spec, "username"))
            pair = base64.b64encode(f"{texts['username']}:{texts['password']}".encode()).decode()
            return Secret(f"Basic {pair}"), (Secret(texts["password"]), Secret(pair))
        case [("token",)]:
            if not (texts["token"].isascii() and texts["token"].isprintable()):
                raise ConfigError("it cannot be part of a header", where=_where(spec, "token"))
            return Secret(f"Bearer {texts['token']}"), (Secret(texts["token"]),)
        case [("tls.crt", *_)]:
            return None, (Secret(texts["tls.key"]),)
    return None, ()


def _tls(spec: BrokerSpec, texts: Mapping[str, str]) -> Tls:
    """Return our side of TLS, of which each PEM can be used."""
    ca, certificate = texts.get("ca.crt"), texts.get("tls.crt", "")
    if ca is not None:
        ca = ca or "none"  # of an empty text OpenSSL would trust the system's authorities
        Tls(ca).context(where=_where(spec, "ca.crt"))
    if not certificate:
        return Tls(ca, insecure=spec.insecure)
    key, context = Secret(texts["tls.key"]), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    show_certificate(context, certificate, key, where=_where(spec, "tls.crt"))
    return Tls(ca, certificate, key, insecure=spec.insecure)


def _where(spec: BrokerSpec, key: str = "") -> str:
    name = f"{spec.namespace}/{spec.secret}" if spec.namespace else spec.secret
    return f"Secret {name}: {key}" if key else f"Secret {name}"


class BrokerFault(KlutchError):
    """The catalogue cannot be read; `outcome` is that of the question."""

    retry = Retry.LATER

    def __init__(self, outcome: Denied | Unsent | Unknown) -> None:
        self.outcome, self.problem = outcome, outcome.problem
        super().__init__(outcome.problem)


class BrokerClient:
    """Connections to one broker, for as long as the block lasts.

    No call leads to a link-local, multicast or metadata address, to this machine without
    `allow_loopback`, or in the clear without `allow_plain_http`: judged is the address that is
    connected to. `timeout` is for a call as a whole. `observe` sees each call.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        timeout: timedelta,
        allow_plain_http: bool = False,
        allow_loopback: bool = False,
        allow_insecure: bool = False,
        observe: Observe | None = None,
    ) -> None:
        self._address, self._observe = address, observe
        self._fault = _fault(address, plain_http=allow_plain_http, insecure=allow_insecure)
        self._http = Http(
            tls=address.tls,
            timeout=timeout.total_seconds(),
            most=answers.MOST_OCTETS,
            forbids=None if allow_loopback else lambda address: address.is_loopback,
            plain_http=allow_plain_http,
        )

    async def __aenter__(self) -> Self:
        """Make ready. Raises ConfigError for certificates that cannot be used."""
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.__aexit__(*error)

    async def call(self, call: Call, *, identity: OriginatingIdentity | None = None) -> Outcome:
        """Return the outcome of a call. Raises ValueError for an id that cannot be in a path."""
        match await self._ask(call, identity):
            case Unknown(problem, status):
                return answers.unreadable(call, status, problem)
            case Unsent() as unsent:
                return unsent
            case answer:
                return self._outcome(call, answer)

    async def catalogue(self) -> Catalogue:
        """Return the broker's catalogue.

        Raises BrokerFault: it is not to be reached, denies us, or offers what cannot be read.
        """
        answer = await self._ask(ReadCatalogue(), None, most=catalogue.MOST_OCTETS)
        if isinstance(answer, Unsent | Unknown):
            raise BrokerFault(answer)
        if answer.status == 200:
            try:
                return await asyncio.to_thread(catalogue_of, answer.body)
            except CatalogueFault as error:
                raise BrokerFault(Unknown(scrub(str(error), self.secrets))) from None
        found = self._outcome(ReadCatalogue(), answer)
        if isinstance(found, Denied | Unsent | Unknown):
            raise BrokerFault(found)
        raise BrokerFault(Unknown(getattr(found, "problem", "") or f"HTTP {answer.status}"))

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets that no text may repeat."""
        return self._address.secrets

    async def _ask(
        self, call: Call, identity: OriginatingIdentity | None, *, most: int | None = None
    ) -> Answer | Unsent | Unknown:
        request = http_request(call, api_version=self._address.api_version)
        more = {}
        if identity is not None:
            more["X-Broker-API-Originating-Identity"] = identity.header()
        return await self.send(request, type(call).__name__, more, most=most)

    async def send(
        self,
        request: HttpRequest,
        verb: str = "",
        more: Mapping[str, str] | None = None,
        *,
        most: int | None = None,
    ) -> Answer | Unsent | Unknown:
        """Return the answer to a request; one that is no call goes to a server that stands beside.

        `verb` is for `observe`, the method without.
        """
        if self._fault:
            return Unsent(self._fault)
        headers: dict[str, str | Secret] = {
            "Accept": "application/json",
            "X-Broker-API-Version": self._address.api_version,
            "X-Broker-API-Request-Identity": str(uuid4()),
            **(more or {}),
        }
        if self._address.authorization is not None:
            headers["Authorization"] = self._address.authorization
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        code, began = NO_CODE, time.monotonic()
        try:
            url = self._address.url + request.path
            answer = await self._http.request(
                request.method, url, body=request.body, headers=headers, most=most
            )
            known = answer.status in HTTPStatus._value2member_map_
            code = str(answer.status) if known else _OTHER_CODE
        except OutboundError as error:
            return Unknown(error.problem, error.status) if error.sent else Unsent(error.problem)
        finally:
            if self._observe is not None:
                self._observe(verb or request.method, code, time.monotonic() - began)
        return answer

    def _outcome(self, call: Call, answer: Answer) -> Outcome:
        headers, body = answer.headers, answer.body
        return answers.outcome(call, answer.status, headers, body, secrets=self.secrets)


def _fault(address: BrokerAddress, *, plain_http: bool, insecure: bool) -> str:
    if address.url.startswith("http:") and not plain_http:
        return "only https is asked, without --allow-plain-http"
    if address.tls.insecure and not insecure:
        return "insecureSkipVerify counts only with --allow-insecure-brokers"
    return ""
