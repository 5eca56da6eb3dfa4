"""HTTP to one API server over pooled connections. Knows TLS, proxies, credentials and silence;
refuses to know what a status code means.

Every NoAnswer is raised outside of the `except` block that made it: see transport_errors.py.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import aiohttp
from aiohttp.client import _RequestContextManager
from multidict import CIMultiDictProxy
from yarl import URL

from reconciler.core.errors import ConfigError
from reconciler.kube.answer_stream import ENCODING, Body
from reconciler.kube.connection import ClientCertificate, Connection
from reconciler.kube.credentials import Auth, CredentialSource
from reconciler.kube.limits import Limits, current_look
from reconciler.kube.multiplex import PROTOCOLS, Multiplexer, Stream
from reconciler.kube.requests import ACCEPT_JSON, Request
from reconciler.kube.transport_errors import Excess, NoAnswer, explain
from reconciler.tls import client_context, show_certificate

log = logging.getLogger(__name__)

T = TypeVar("T")

# kube-apiserver closes idle connections later; ours must be the first to give up, or a write
# could meet a closing connection and its outcome would be unknown.
_IDLE_SECONDS: Final = 30.0
_LARGEST_REFUSAL: Final = 2**20  # octets of an answer that says what was wrong


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    def __repr__(self) -> str:  # the body may hold a Secret
        return f"Answer({self.status})"


@dataclass(slots=True)
class _Pool:
    """Connections that share one client certificate; closed when retired and unused."""

    session: aiohttp.ClientSession
    certificate: ClientCertificate | None
    streams: Multiplexer | None = None  # from the first on
    users: int = 0

    async def close(self) -> None:
        try:
            await self.session.close()
        finally:  # also where the caller is cancelled
            if self.streams is not None:
                await self.streams.close()


class Transport:
    """The connections to one API server. Must be used and closed within one event loop."""

    def __init__(
        self, connection: Connection, *, credentials: CredentialSource, limits: Limits, agent: str
    ) -> None:
        self._connection = connection
        self._credentials = credentials
        self._limits = limits
        self._agent = agent
        self._pool: _Pool | None = None
        self._closed = False
        self._retired: list[_Pool] = []  # with calls in flight
        self._open: set[aiohttp.ClientResponse | Stream] = set()
        self._proxy = connection.proxy.reveal() if connection.proxy else None
        self._server_name = connection.tls_server_name or None
        self._usual_clock = self._clock(total=limits.deadline)

    async def close(self) -> None:
        """Close all connections; calls in flight fail with NoAnswer."""
        self._closed = True
        current = [] if self._pool is None else [self._pool]
        self._pool, pools = None, [*self._retired, *current]
        self._retired.clear()
        # The end of its connection does not end the reading of a body.
        for response in tuple(self._open):
            response.close()
        for pool in pools:
            await pool.close()

    async def auth(self) -> Auth:
        """Return the current credentials. Raises KlutchError where there are none."""
        return await self._credentials.current()

    async def renew(self, stale: Auth) -> Auth:
        """Return credentials to try after a 401; equal to `stale` where nothing can be done."""
        return await self._credentials.renew(stale)

    async def send(self, request: Request, *, auth: Auth, within: float | None) -> Answer:
        """Send a request and read the whole answer in `within` seconds; None = the deadline."""
        clock = self._usual_clock if within is None else self._clock(total=within)
        pool = self._lease(auth.certificate)
        try:
            return await _explained(
                self._exchange(request, self._request(pool, request, auth, clock))
            )
        finally:
            await self._release(pool)

    async def _exchange(self, request: Request, call: _RequestContextManager) -> Answer:
        async with call as response:
            with self._reading(response):
                body = await self._read(response)
        for warning in response.headers.getall("Warning", ()):
            _log_warning(request.ref.cluster, str(request.ref), warning[:300])
        return Answer(response.status, response.headers, body)

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Request, *, auth: Auth, read_timeout: float | None
    ) -> AsyncIterator[tuple[Answer | None, AsyncIterator[bytes]]]:
        """Open a stream: (None, chunks), or (the answer that refused it, nothing).

        The chunks raise NoAnswer where the stream is cut, or silent for `read_timeout` seconds.
        """
        pool = self._lease(auth.certificate)
        try:
            opening = self._within_deadline(self._begin(pool, request, auth, read_timeout))
            async with await _explained(opening) as response:
                with self._reading(response):
                    refusal = await self._refusal(response)
                    if "Content-Encoding" in response.headers and refusal is None:
                        raise Excess("a stream is compressed, which was not asked for")
                    yield refusal, _chunks(response)
        finally:
            await self._release(pool)

    def _check_open(self, *, sent: bool) -> None:
        """Raise NoAnswer if it was closed in between: aiohttp takes its use for our defect."""
        if self._closed:
            raise NoAnswer("the connection was closed by us", sent=sent, permanent=not sent)

    @contextlib.contextmanager
    def _reading(self, response: aiohttp.ClientResponse | Stream) -> Iterator[None]:
        self._check_open(sent=True)
        self._open.add(response)
        try:
            yield
        finally:
            self._open.discard(response)

    async def _within_deadline(self, work: Awaitable[T]) -> T:
        async with asyncio.timeout(self._limits.deadline):
            return await work

    async def _refusal(self, response: aiohttp.ClientResponse | Stream) -> Answer | None:
        if response.status < 300:
            return None
        body = await _explained(self._within_deadline(self._read(response)))
        return Answer(response.status, response.headers, body)

    async def _read(self, response: aiohttp.ClientResponse | Stream) -> bytes:
        limit = self._limits.max_body
        if response.status >= 300:
            limit = min(limit, _LARGEST_REFUSAL)
        body = Body(response.headers.get("Content-Encoding", ""), limit=limit, look=current_look())
        problem: NoAnswer
        try:
            async for part in response.content.iter_any():
                body.take(part)
            return body.whole()
        except Excess as error:
            problem = error
        except zlib.error:
            problem = NoAnswer("the answer was cut short", sent=True)
        response.close()  # the rest of it is not waited for
        raise problem

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Make a socket to an address that a name came to, just before it is connected."""
        networks = None if self._proxy else self._connection.networks
        fault = "" if networks is None else networks.fault(str(address[4][0]))
        if fault:
            raise OSError(errno.EACCES, f"refused, as {fault}")
        return _new_socket(address)

    def _clock(
        self, *, total: float | None = None, read: float | None = None
    ) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=total,
            sock_connect=self._limits.connect_timeout,
            sock_read=self._limits.read_timeout if total is not None else read,
        )

    def _request(
        self, pool: _Pool, request: Request, auth: Auth, clock: aiohttp.ClientTimeout
    ) -> _RequestContextManager:
        return pool.session.request(
            request.method,
            URL(self._connection.server + request.target, encoded=True),
            data=request.body,
            headers=self._headers(request, auth),
            timeout=clock,
            proxy=self._proxy,
            server_hostname=self._server_name,
            allow_redirects=False,  # a redirect would carry the token to another host
        )

    def _headers(self, request: Request, auth: Auth) -> dict[str, str]:
        headers: dict[str, str] = {}
        if request.verb == "watch":
            headers["Accept-Encoding"] = "identity"
        if request.accept != ACCEPT_JSON:
            headers["Accept"] = request.accept
        if request.content_type:
            headers["Content-Type"] = request.content_type
        if auth.authorization is not None:
            headers["Authorization"] = auth.authorization.reveal()
        return headers

    async def _begin(
        self, pool: _Pool, request: Request, auth: Auth, read_timeout: float | None
    ) -> aiohttp.ClientResponse | Stream:
        """Begin a stream over HTTP/2, or as a call where that is not spoken."""
        url = URL(self._connection.server + request.target, encoded=True)
        if url.scheme == "https" and self._proxy is None:
            pool.streams = pool.streams or Multiplexer(
                url,
                ssl_context(self._connection, pool.certificate, protocols=PROTOCOLS),
                (self._server_name or url.raw_host or "").rstrip("."),
                self._socket,
                self._limits.connect_timeout,
            )
            target = {":method": request.method, ":scheme": url.scheme, ":path": url.raw_path_qs}
            target[":authority"] = url.host_port_subcomponent or ""
            headers = target | dict(pool.session.headers) | self._headers(request, auth)
            stream = await pool.streams.open(tuple(headers.items()), silence=read_timeout)
            if stream is not None:
                return stream
            self._check_open(sent=False)
        return await self._request(pool, request, auth, self._clock(read=read_timeout))

    def _lease(self, certificate: ClientCertificate | None) -> _Pool:
        """Return the connections to use; new ones where the client certificate changed."""
        self._check_open(sent=False)
        if self._pool is None or self._pool.certificate != certificate:
            if self._pool is not None:
                self._retired.append(self._pool)
            self._pool = _Pool(self._new_session(certificate), certificate)
        self._pool.users += 1
        return self._pool

    async def _release(self, pool: _Pool) -> None:
        pool.users -= 1
        while self._retired and not self._retired[0].users:
            await self._retired.pop(0).close()

    def _new_session(self, certificate: ClientCertificate | None) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # `Limits.concurrency` bounds the calls; watches come on top
            ssl=ssl_context(self._connection, certificate),
            keepalive_timeout=_IDLE_SECONDS,
            socket_factory=self._socket,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "User-Agent": self._agent,
                "Accept": ACCEPT_JSON,
                "Accept-Encoding": ENCODING,
            },
            auto_decompress=False,  # that knows no bound for what it reads
        )
        # aiohttp repeats a GET or DELETE whose kept connection was cut, unasked. The DELETE may
        # have been done, and the second would meet an object made since. No option turns it off.
        session._retry_connection = False
        return session


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that notices a peer that vanished, also under an idle watch."""
    family, kind, protocol, _, _ = address
    new = socket.socket(family, kind, protocol)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            new.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return new


async def _explained(work: Awaitable[T]) -> T:
    """Await what aiohttp does. Raises NoAnswer for its errors."""
    problem: NoAnswer
    try:
        return await work
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        problem = explain(error)
    raise problem


async def _chunks(response: aiohttp.ClientResponse | Stream) -> AsyncIterator[bytes]:
    problem: NoAnswer
    try:
        async for chunk in response.content.iter_any():
            yield chunk
        return
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        problem = explain(error)
    raise problem


@functools.lru_cache(maxsize=1024)  # once for each object: it comes with every call
def _log_warning(cluster: str, ref: str, warning: str) -> None:
    fields = {"cluster": cluster, "ref": ref, "warning": warning}
    log.warning("the API server warns", extra=fields)


def ssl_context(
    connection: Connection,
    certificate: ClientCertificate | None,
    *,
    protocols: tuple[str, ...] = (),
) -> ssl.SSLContext:
    """Return the context for a connection, to be left as it is: others may share it.

    Raises ConfigError for unusable PEM text, and HostError where this machine is at its limits.
    """
    # The system's trust store may change while we run, and a client's key is for one alone.
    make = client_context if connection.ca is None or certificate is not None else _shared
    try:
        context = make(connection.ca, insecure=connection.insecure, protocols=protocols)
    except ssl.SSLError:
        message = "certificate-authority-data is not a usable PEM certificate"
        raise ConfigError(message, where=connection.name) from None
    if certificate is not None:
        show_certificate(context, certificate.certificate, certificate.key, where=connection.name)
    return context


# Many clusters may share one CA, and OpenSSL takes its time.
_shared: Final = functools.lru_cache(maxsize=64)(client_context)
