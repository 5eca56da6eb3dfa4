"""Calls untrusted servers over HTTP, within limits of time and size.

Follows no redirect, sends nothing but a GET twice, and judges no status.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

from reconciler.core import addresses
from reconciler.core.addresses import Address
from reconciler.core.errors import ConfigError, KlutchError, Retry
from reconciler.core.secret import Secret
from reconciler.http.dial import Origin, Route
from reconciler.http.http1 import Pool, request_of
from reconciler.http.stream import CLOSED, CUT, LATE, UNREACHED, NoAnswer, Stream
from reconciler.oidc.grants import Form
from reconciler.oidc.provider import is_secure
from reconciler.tls import client_context, show_certificate

Headers: TypeAlias = Mapping[str, str | Secret] | Iterable[tuple[str, str | Secret]]

# A provider in Node.js closes an idle connection after 5 s. A POST that meets the end of its
# connection is not repeated, and its code could not be used again.
_IDLE_SECONDS: Final = 3.0
_CONNECTIONS: Final = 100
_LONGEST_NAME: Final = 300  # of what was asked, in an error
_USUAL: Final = {
    "User-Agent": "klutchctl",
    "Accept": "application/json, application/jwk-set+json",
    "Accept-Encoding": "identity",
}


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
    machines.
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
    ) -> None:
        self._ca_file, self._tls, self._timeout, self._most = ca_file, tls, timeout, most
        self._forbids, self._trust_env = forbids, trust_env
        self._plain_http = plain_http
        self._context: ssl.SSLContext | None = None
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._pools: dict[tuple[Origin, Origin | None], Pool] = {}

    async def __aenter__(self) -> Self:
        """Read the authorities. Raises ConfigError for a `ca_file` or `tls` that is no use."""
        tls = self._tls
        self._context = _context(self._ca_file) if tls is None else tls.context(where="TLS")
        return self

    async def __aexit__(self, *error: object) -> None:
        pools, self._pools = self._pools, {}
        self._context = None
        for pool in pools.values():
            await pool.close()

    async def get(self, url: str, *, headers: Headers = ()) -> Answer:
        """Return the answer to a GET, whatever its status. Raises OutboundError, ConfigError.

        It is sent twice if need be: a kept connection may end as it is used.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            return await self.request("GET", url, headers=headers, deadline=deadline)
        except OutboundError as error:
            if error.problem != CUT:
                raise
        return await self.request("GET", url, headers=headers, deadline=deadline)

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
        deadline: float | None = None,
    ) -> Answer:
        """Return the answer to a request, whatever its status, with `most` octets if given.

        `deadline` is a time of the loop, in place of that of the timeout.
        Raises OutboundError, and ConfigError for an unusable proxy.
        """
        if fault := url_fault(url, plain_http=self._plain_http) or self._literal_fault(url):
            raise OutboundError(url, fault)
        proxy = addresses.proxy_from_environment(url, os.environ) if self._trust_env else None
        deadline = deadline or asyncio.get_running_loop().time() + self._timeout
        is_sent = False
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
            try:
                pool, octets = self._prepared(method, url, proxy, body, headers)
                async with await pool.open(octets, silence=None, deadline=deadline) as stream:
                    return await _read(url, stream, self._most if most is None else most)
            finally:
                self._places.release()
        except NoAnswer as error:
            problem, is_sent = error.message, error.sent
        except (TimeoutError, ValueError) as error:
            problem = LATE if isinstance(error, TimeoutError) else "the URL is not valid"
        if problem in (LATE, UNREACHED):
            problem = f"no answer in {self._timeout:g} s"
        raise OutboundError(url, problem, sent=is_sent)

    def _prepared(
        self, method: str, url: str, proxy: Secret | None, body: bytes | None, headers: Headers
    ) -> tuple[Pool, bytes]:
        """Return the connections for a request, and its octets. Raises NoAnswer."""
        server, parts = Origin.of(url), urlsplit(url)
        through = None if proxy is None else Origin.of(proxy.reveal())
        judge = self._address_fault
        if server.scheme == "http" and not self._plain_http:
            judge = self._loopback_fault
        route = Route(server, through, judge, self._timeout)
        fields = dict(_USUAL)
        for name, value in dict(headers).items():
            fields[name] = value.reveal() if isinstance(value, Secret) else value
        target = f"{parts.path or '/'}{parts.query and '?'}{parts.query}"
        octets = request_of(route, method, target, fields, body)
        if self._context is None:
            raise NoAnswer(CLOSED, sent=False)
        self._pools = {key: pool for key, pool in self._pools.items() if not pool.is_empty}
        new = Pool(route, self._context, idle=_IDLE_SECONDS)
        return self._pools.setdefault((server, through), new), octets

    def _literal_fault(self, url: str) -> str:
        host = urlsplit(url).hostname or ""
        try:
            return self._fault(ip_address(host))
        except ValueError:
            return ""

    def _address_fault(self, address: str) -> str:
        return self._fault(ip_address(address.partition("%")[0]))

    def _fault(self, address: Address) -> str:
        inner = addresses.unwrapped(address)
        if kind := addresses.no_server(inner):
            return f"{inner} is {kind}, where no URL may lead"
        forbidden = self._forbids is not None and self._forbids(inner)
        return f"{inner} is an address where this URL may not lead" if forbidden else ""

    def _loopback_fault(self, address: str) -> str:
        """Return the fault of an address of `localhost`: plain text goes to no other machine."""
        elsewhere = f"{address} is not on this machine, and TLS is off"
        inner = addresses.unwrapped(ip_address(address.partition("%")[0]))
        return self._fault(inner) or ("" if inner.is_loopback else elsewhere)


async def _read(url: str, stream: Stream, most: int) -> Answer:
    fault = ""
    if stream.headers.get("content-encoding", "identity").lower() != "identity":
        fault = "the answer is compressed, which was not asked for"
    body = bytearray()
    while not fault and (parts := await stream.parts()):
        body += b"".join(parts)
        if len(body) > most:
            fault = f"the answer is larger than {most // 1024} KiB"
    if fault:
        raise OutboundError(url, fault, status=stream.status, sent=True)
    return Answer(stream.status, bytes(body), stream.headers, stream.headers.get("location", ""))


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise ConfigError("this is no PEM file of certificates", where=str(ca_file)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(ca_file)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
