"""Calls untrusted servers over HTTP, within limits of time and size.

Follows no redirect, and judges no status. Every OutboundError is raised outside of the `except`
block that made it: aiohttp's exceptions hold headers and URLs, with tokens and codes, and none of
them is ever chained or kept.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Final, Self, TypeAlias
from urllib.parse import SplitResult, urlsplit

import aiohttp
from yarl import URL

from reconciler.core import addresses
from reconciler.core.addresses import Address
from reconciler.core.errors import ConfigError, KlutchError, Retry
from reconciler.core.secret import Secret
from reconciler.oidc.grants import Form
from reconciler.oidc.provider import is_secure
from reconciler.tls import client_context, show_certificate, system_text

Headers: TypeAlias = Mapping[str, str | Secret] | Iterable[tuple[str, str | Secret]]
Judge: TypeAlias = Callable[[Address], str]  # says why nothing is connected to it, or ""

# A provider in Node.js closes an idle connection after 5 s. A POST that meets the end of its
# connection is not repeated, and its code could not be used again.
_IDLE_SECONDS: Final = 3.0
_CONNECTIONS: Final = 100
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 8190
_LONGEST_NAME: Final = 300  # of what was asked, in an error

# The first that fits is taken: subclasses stand before their bases.
_SENTENCES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (aiohttp.ClientConnectorCertificateError, "its certificate is not trusted ({reason})"),
    (aiohttp.ClientHttpProxyError, "the proxy refused with HTTP {status}"),
    (aiohttp.ClientSSLError, "no TLS connection: {reason}"),
    (aiohttp.ClientConnectorDNSError, "the host name cannot be resolved"),
    (aiohttp.ClientProxyConnectionError, "no connection to the proxy: {reason}"),
    (aiohttp.ClientConnectorError, "no connection: {reason}"),
    (aiohttp.InvalidURL, "the URL is not valid"),
    (TimeoutError, "no answer in {timeout:g} s"),
    (aiohttp.ClientPayloadError, "the answer was cut short"),
    (aiohttp.ServerDisconnectedError, "the connection was cut before the answer"),
    (ConnectionError, "the connection was cut before the answer"),
    (aiohttp.ClientOSError, "the connection was cut before the answer"),
    (aiohttp.ClientResponseError, "the answer is not HTTP, or its head is too long"),
    (ValueError, "the request cannot be sent as it is"),
)


class OutboundError(KlutchError):
    """A server gave no answer that can be used. `status` is that of HTTP, 0 without an answer.

    `sent`: there was a connection, and the request may have reached the server. The message names
    scheme, host and path, never a query, a fragment or what was sent.
    """

    retry = Retry.LATER

    def __init__(self, url: str, problem: str, *, status: int = 0, sent: bool = False) -> None:
        self.problem, self.status, self.sent = problem, status, sent
        super().__init__(f"{shown(url)}: {problem}")


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. `headers` have lower-case names; `location` is where a redirect leads."""

    status: int
    body: bytes = field(repr=False)  # and so are the others: tokens and codes come in them
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    location: str = field(default="", repr=False)


def shown(url: str) -> str:
    """Return the public part of a URL: scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "a URL that is not valid"
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path}"[:_LONGEST_NAME]


@dataclass(frozen=True, slots=True)
class Tls:
    """Trusted authorities and a certificate of ours, in place of the system's and none. PEM texts.

    `insecure`: any server is trusted.
    """

    ca: str | None = None
    certificate: str = ""
    key: Secret | None = None
    insecure: bool = False

    def context(self, *, where: str) -> ssl.SSLContext:
        """Return these as OpenSSL wants them. Raises ConfigError for texts that are no PEM."""
        try:
            context = client_context(self.ca, insecure=self.insecure)
        except ssl.SSLError:
            raise ConfigError("the authority's certificate is no usable PEM", where=where) from None
        if self.key is not None:
            show_certificate(context, self.certificate, self.key, where=where)
        return context


@dataclass(slots=True)
class _Progress:
    """The progress of a request."""

    connected: bool = False


def url_fault(url: str, *, plain_http: bool = False) -> str:
    """Return the reason to refuse a URL, or "". With `plain_http`, it may lead anywhere."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "the URL is not valid"
    if not addresses.is_visible(url) or not addresses.is_host(host):
        return "the URL is not valid"
    if parts.username is not None or parts.password is not None:
        return "the URL contains credentials"
    if plain_http and parts.scheme == "http":
        return ""
    return "" if is_secure(url) else "only https is asked, or http on this machine"


class Http:
    """Connections to servers that may lie, for as long as the block lasts.

    No address that `no_server` names is ever connected to, nor one that `forbids` is true for;
    judged is what a name came to when the connection is made, so that no name server changes it
    after. With `trust_env` the proxies of the environment are used, which judge names themselves.
    `ca_file` or `tls` replaces the system's authorities. `timeout` is for an exchange as a whole,
    `most` the octets of an answer's body. With `plain_http` there may be no TLS on the way to other
    machines. With `once` nothing is sent again that a kept connection lost.
    """

    def __init__(  # noqa: PLR0913 - each is a bound that some caller sets
        self,
        *,
        ca_file: Path | None = None,
        tls: Tls | None = None,
        timeout: float = 5.0,
        most: int = 64 * 1024,
        forbids: Callable[[Address], bool] | None = None,
        trust_env: bool = False,
        plain_http: bool = False,
        once: bool = False,
    ) -> None:
        self._ca_file, self._tls, self._timeout, self._most = ca_file, tls, timeout, most
        self._forbids, self._trust_env = forbids, trust_env
        self._plain_http, self._once = plain_http, once
        self._context: ssl.SSLContext | None = None
        self._sessions: dict[Judge, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        """Read the authorities. Raises ConfigError for a `ca_file` or `tls` that is no use."""
        tls = self._tls
        self._context = _context(self._ca_file) if tls is None else tls.context(where="TLS")
        return self

    async def __aexit__(self, *error: object) -> None:
        sessions, self._sessions = self._sessions, {}
        self._context = None
        for session in sessions.values():
            await session.close()

    async def get(self, url: str, *, headers: Headers = ()) -> Answer:
        """Return the answer to a GET, whatever its status. Raises OutboundError, ConfigError."""
        return await self.request("GET", url, headers=headers)

    async def post(self, url: str, *, body: bytes, headers: Headers) -> Answer:
        """Return the answer to a POST, which is sent once. Raises OutboundError, ConfigError."""
        return await self.request("POST", url, body=body, headers=headers)

    async def send(self, form: Form) -> Answer:
        """Return the answer to a form, which is sent once. Raises OutboundError, ConfigError."""
        return await self.post(form.url, body=form.body(), headers=form.headers())

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Headers = (),
        most: int | None = None,
    ) -> Answer:
        """Return the answer to a request, whatever its status, with `most` octets if given.

        Raises OutboundError, and ConfigError for an unusable proxy.
        """
        if fault := url_fault(url, plain_http=self._plain_http) or self._literal_fault(url):
            raise OutboundError(url, fault)
        proxy = addresses.proxy_from_environment(url, os.environ) if self._trust_env else None
        progress = _Progress()
        try:
            async with asyncio.timeout(self._timeout):
                session = self._session(urlsplit(url), proxied=proxy is not None)
                call = session.request(
                    method,
                    URL(url, encoded=True),
                    data=body,
                    headers={
                        name: value.reveal() if isinstance(value, Secret) else value
                        for name, value in dict(headers).items()
                    },
                    proxy=None if proxy is None else proxy.reveal(),
                    allow_redirects=False,
                    trace_request_ctx=progress,
                )
                async with call as response:
                    return await self._read(url, response, self._most if most is None else most)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            problem = self._problem(error)
        raise OutboundError(url, problem, sent=progress.connected)

    async def _read(self, url: str, response: aiohttp.ClientResponse, most: int) -> Answer:
        fault = ""
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            fault = "the answer is compressed, which was not asked for"
        body = bytearray()
        while not fault and (part := await response.content.readany()):
            body += part
            if len(body) > most:
                fault = f"the answer is larger than {most // 1024} KiB"
        if fault:
            raise OutboundError(url, fault, status=response.status, sent=True)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, bytes(body), headers, headers.get("location", ""))

    def _session(self, url: SplitResult, *, proxied: bool) -> aiohttp.ClientSession:
        plain = url.scheme == "http" and not self._plain_http
        judge = _as_it_is if proxied else self._loopback_fault if plain else self._fault
        if self._context is None:
            raise RuntimeError("Http is used outside of its block")
        if judge not in self._sessions:
            self._sessions[judge] = _new_session(judge, self._context, once=self._once)
        return self._sessions[judge]

    def _literal_fault(self, url: str) -> str:
        host = urlsplit(url).hostname or ""
        try:
            return self._fault(ip_address(host))
        except ValueError:
            return ""

    def _fault(self, address: Address) -> str:
        inner = addresses.unwrapped(address)
        if kind := addresses.no_server(inner):
            return f"{inner} is {kind}, where no URL may lead"
        forbidden = self._forbids is not None and self._forbids(inner)
        return f"{inner} is an address where this URL may not lead" if forbidden else ""

    def _loopback_fault(self, address: Address) -> str:
        """Return the fault of an address of `localhost`: plain text goes to no other machine."""
        elsewhere = f"{address} is not on this machine, and TLS is off"
        return self._fault(address) or (
            "" if addresses.unwrapped(address).is_loopback else elsewhere
        )

    def _problem(self, error: Exception) -> str:
        words = {
            "reason": system_text(error),
            "status": str(getattr(error, "status", "")),
            "timeout": self._timeout,
        }
        for kind, sentence in _SENTENCES:
            if isinstance(error, kind):
                return sentence.format(**words)
        return f"the connection failed: {words['reason']}"


def _as_it_is(address: Address) -> str:
    del address
    return ""


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise ConfigError("this is no PEM file of certificates", where=str(ca_file)) from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(problem, where=str(ca_file)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


async def _connected(
    session: aiohttp.ClientSession, context: SimpleNamespace, parameters: object
) -> None:
    del session, parameters
    context.trace_request_ctx.connected = True


def _trace() -> aiohttp.TraceConfig:
    """Note when a request has a connection: before that, surely nothing of it was sent."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(_connected)
    trace.on_connection_reuseconn.append(_connected)
    return trace


def _new_session(judge: Judge, context: ssl.SSLContext, *, once: bool) -> aiohttp.ClientSession:
    def socket_to(info: aiohttp.AddrInfoType) -> socket.socket:
        fault = judge(ip_address(str(info[4][0]).partition("%")[0]))
        if fault:
            raise OSError(errno.EACCES, fault)
        family, kind, protocol, _, _ = info
        return socket.socket(family, kind, protocol)

    connector = aiohttp.TCPConnector(
        limit=_CONNECTIONS,
        ssl=context,
        keepalive_timeout=_IDLE_SECONDS,
        socket_factory=socket_to,
        use_dns_cache=False,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        trace_configs=[_trace()],
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        headers={
            "User-Agent": "klutchctl",
            "Accept": "application/json, application/jwk-set+json",
            "Accept-Encoding": "identity",
        },
        auto_decompress=False,  # that knows no bound for what it reads
        max_headers=_MOST_HEADERS,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )
    # aiohttp repeats a PUT or DELETE whose kept connection was cut, unasked. No option says no.
    session._retry_connection = not once
    return session
