"""Connects to a server: names, addresses, proxies, TLS."""

import asyncio
import base64
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

import httptools
from aiohappyeyeballs import AddrInfoType, pop_addr_infos_interleave, start_connection

from reconciler.core.addresses import address_of
from reconciler.http.stream import NoAnswer, explain

P = TypeVar("P", bound=asyncio.Protocol)

_LARGEST_HEAD: Final = 2**16  # octets of a proxy's answer


@dataclass(frozen=True, slots=True)
class Origin:
    """The server that a URL leads to, or a proxy with what it asks for in Proxy-Authorization.

    `authority` is for the header Host: without the port of the scheme. `tls_name` is for TLS.
    """

    scheme: str
    host: str
    port: int
    authority: str
    tls_name: str
    credential: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str, tls_name: str = "") -> Self:
        """Return the origin of a URL, which has http or https. Raises ValueError."""
        parts = urlsplit(url)
        host, usual = parts.hostname or "", 443 if parts.scheme == "https" else 80
        port = usual if parts.port is None else parts.port
        name = f"[{host}]" if ":" in host else host.rstrip(".")
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        basic = f"Basic {base64.b64encode(pair.encode('latin-1', 'replace')).decode()}"
        return cls(
            parts.scheme,
            host.replace("%25", "%"),  # of a zone
            port,
            authority=name if port == usual else f"{name}:{port}",
            tls_name=(tls_name or host).rstrip("."),
            credential="" if parts.username is None else basic,
        )


@dataclass(slots=True)
class Route:
    """The way to one server.

    `connect_timeout` is in seconds, for each address. `fault` returns the reason to refuse an
    address, or ""; behind a proxy, that chooses the address.
    """

    server: Origin
    proxy: Origin | None
    fault: Callable[[str], str]
    connect_timeout: float
    _lookup: "asyncio.Task[list[AddrInfoType] | NoAnswer] | None" = field(default=None, repr=False)

    async def connect(self, make: Callable[[], P], tls: ssl.SSLContext | None) -> P:
        """Return a protocol with its connection. Raises NoAnswer, of the last address tried."""
        if self._lookup is None or self._lookup.done():
            self._lookup = asyncio.create_task(self._addresses())
        lookup = self._lookup  # one for all that wait, and none of them ends it
        await asyncio.wait([lookup])
        found = NoAnswer("closed", sent=False) if lookup.cancelled() else lookup.result()
        problem, addresses = (found, []) if isinstance(found, NoAnswer) else (None, [*found])
        while addresses:
            try:
                async with asyncio.timeout(self.connect_timeout):
                    return await self._connect(addresses, make, tls)
            except NoAnswer as refusal:
                problem = refusal
            except (OSError, ValueError) as error:
                problem = explain(error, proxied=self.proxy is not None)
            pop_addr_infos_interleave(addresses, 1)
        assert problem is not None
        raise problem.with_traceback(None)

    async def _addresses(self) -> list[AddrInfoType] | NoAnswer:
        end = self.proxy or self.server
        # An address is what it is, whatever networks this machine has.
        flags = socket.AI_NUMERICHOST if address_of(end.host) else socket.AI_ADDRCONFIG
        try:
            found: list[Any] = await asyncio.get_running_loop().getaddrinfo(
                end.host, end.port, type=socket.SOCK_STREAM, flags=flags
            )
            return found
        except (OSError, ValueError) as error:  # ValueError: of a name that is none
            return explain(error, proxied=False)

    async def _connect(
        self, addresses: list[AddrInfoType], make: Callable[[], P], tls: ssl.SSLContext | None
    ) -> P:
        connected = await start_connection(
            addresses, happy_eyeballs_delay=0.25, interleave=1, socket_factory=self._socket
        )
        first = self.proxy or self.server
        loop, security = asyncio.get_running_loop(), dict[str, Any]()
        if first.scheme == "https":  # as in client-go, the cluster's authorities know its proxy
            security = {"ssl": tls, "server_hostname": first.tls_name}
        if self.proxy is None or self.server.scheme != "https" or tls is None:
            return (await loop.create_connection(make, sock=connected, **security))[1]
        outer, tunnel = await loop.create_connection(_Tunnel, sock=connected, **security)
        try:
            outer.write(self._connect_request())
            if status := await tunnel.refusal:
                raise NoAnswer(f"the proxy refused with HTTP {status}", sent=False, permanent=True)
            protocol = make()
            inner = await loop.start_tls(outer, protocol, tls, server_hostname=self.server.tls_name)
        except BaseException:
            outer.abort()
            raise
        assert inner is not None
        protocol.connection_made(inner)
        return protocol

    def _connect_request(self) -> bytes:
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        end, proxy = f"{host}:{self.server.port}", self.proxy
        field = f"Proxy-Authorization: {proxy.credential}\r\n" if proxy and proxy.credential else ""
        return f"CONNECT {end} HTTP/1.1\r\nHost: {end}\r\n{field}\r\n".encode()

    def _socket(self, address: AddrInfoType) -> socket.socket:
        """Make a socket to an address that a name came to, just before it is connected."""
        if self.proxy is None and (fault := self.fault(str(address[4][0]))):
            raise OSError(errno.EACCES, fault)
        return _new_socket(address)


def _new_socket(address: AddrInfoType) -> socket.socket:
    """Make a socket that notices a peer that vanished, also under an idle watch."""
    family, kind, protocol, _, _ = address
    new = socket.socket(family, kind, protocol)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            new.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return new


class _Tunnel(asyncio.Protocol):
    """A connection to a proxy, until it leads on. `refusal` is its status; 0: it leads on."""

    def __init__(self) -> None:
        self.refusal: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._room = _LARGEST_HEAD

    def data_received(self, data: bytes) -> None:
        self._room -= len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._room = -1
        if self._room < 0:
            self._fail()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and not self.refusal.done():
            self.refusal.set_result(0 if status < 300 else status)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail()

    def _fail(self) -> None:
        if not self.refusal.done():
            error = ConnectionResetError(errno.ECONNRESET, "it is no HTTP proxy")
            self.refusal.set_exception(error)
