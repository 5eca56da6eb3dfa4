"""HTTP to one API server. Knows credentials, TLS, and the limits of an answer; refuses to know
what a status code means.
"""

import asyncio
import contextlib
import functools
import logging
import math
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from reconciler.core.errors import ConfigError
from reconciler.http.dial import Origin, Route
from reconciler.http.http1 import Pool, request_of
from reconciler.http.stream import CLOSED, LATE, Excess, NoAnswer, Stream
from reconciler.kube.answer_stream import ENCODING, Body
from reconciler.kube.connection import ClientCertificate, Connection
from reconciler.kube.credentials import Auth, CredentialSource
from reconciler.kube.limits import Limits, current_look
from reconciler.kube.requests import Request
from reconciler.tls import client_context, show_certificate

if TYPE_CHECKING:
    from reconciler.http.http2 import Multiplexer

log = logging.getLogger(__name__)

_LARGEST_REFUSAL: Final = 2**20  # octets of an answer that says what was wrong
# kube-apiserver closes idle connections later.
_IDLE_SECONDS: Final = 30.0


class Answer(NamedTuple):
    """A complete answer. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:  # the body may hold a Secret
        return f"Answer({self.status})"


@dataclass(slots=True)
class _Connections:
    """Those that share one client certificate; `streams` for watches, from the first on."""

    certificate: ClientCertificate | None
    calls: Pool
    streams: "Multiplexer | None" = None

    def retire(self) -> None:
        self.calls.retire()
        if self.streams is not None:
            self.streams.cut()

    async def close(self) -> None:
        try:
            await self.calls.close()
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
        self._current: _Connections | None = None
        self._closed = self._is_retired = False
        self._prefix = urlsplit(connection.server).path.rstrip("/")
        self._route = Route(
            Origin.of(connection.server, connection.tls_server_name),
            None if connection.proxy is None else Origin.of(connection.proxy.reveal()),
            self._address_fault,
            limits.connect_timeout,
        )

    async def close(self) -> None:
        """Close all connections; calls in flight fail with NoAnswer."""
        self._closed = True
        if self._current is not None:
            await self._current.close()

    def retire(self) -> None:
        """End all streams, let none begin, and end each connection once its call has ended."""
        self._is_retired = True
        if self._current is not None:
            self._current.retire()

    async def auth(self) -> Auth:
        """Return the current credentials. Raises KlutchError where there are none."""
        return await self._credentials.current()

    async def renew(self, stale: Auth) -> Auth:
        """Return credentials to try after a 401; equal to `stale` where nothing can be done."""
        return await self._credentials.renew(stale)

    async def send(self, request: Request, *, auth: Auth, within: float | None) -> Answer:
        """Send a request and read the whole answer in `within` seconds; None = the deadline."""
        seconds = self._limits.deadline if within is None else within
        deadline = asyncio.get_running_loop().time() + seconds
        opening = self._call(request, auth, self._limits.read_timeout, deadline)
        async with await opening as stream:
            body = await self._read(stream)
        if warnings := stream.headers.get("warning", ""):
            _log_warning(request.ref.cluster, str(request.ref), warnings[:600])
        return Answer(stream.status, stream.headers, body)

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Request, *, auth: Auth, read_timeout: float | None
    ) -> AsyncIterator[tuple[Answer | None, AsyncIterator[bytes]]]:
        """Open a stream: (None, chunks), or (the answer that refused it, nothing).

        The chunks raise NoAnswer where the stream is cut, or silent for `read_timeout` seconds.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._limits.deadline):
                    opening = self._begin(request, auth, read_timeout)
                    stream = await stack.enter_async_context(await opening)
                    refusal = await self._refusal(stream)
            except TimeoutError:
                stream = None
            if stream is None:
                raise NoAnswer(LATE, sent=True)
            if "content-encoding" in stream.headers and refusal is None:
                raise Excess("a stream is compressed, which was not asked for")
            yield refusal, stream.chunks()

    async def _refusal(self, stream: Stream) -> Answer | None:
        if stream.status < 300:
            return None
        return Answer(stream.status, stream.headers, await self._read(stream))

    async def _read(self, stream: Stream) -> bytes:
        limit = self._limits.max_body
        if stream.status >= 300:
            limit = min(limit, _LARGEST_REFUSAL)
        body = Body(stream.headers.get("content-encoding", ""), limit=limit, look=current_look())
        try:
            while parts := await stream.parts():
                for part in parts:
                    body.take(part)
            return body.whole()
        except zlib.error:
            pass
        raise NoAnswer("the answer was cut short", sent=True)

    async def _begin(self, request: Request, auth: Auth, silence: float | None) -> Stream:
        """Begin a stream over HTTP/2, or as a call where that is not spoken."""
        from reconciler.http import http2  # it takes long to import, and a plan has no watch

        if self._is_retired:
            raise NoAnswer(CLOSED, sent=False, permanent=True)
        connections, route = self._connections(auth.certificate)
        if route.server.scheme == "https" and route.proxy is None:
            connections.streams = connections.streams or http2.Multiplexer(
                route, ssl_context(self._connection, auth.certificate, protocols=http2.PROTOCOLS)
            )
            target = {
                ":method": request.method,
                ":scheme": "https",
                ":path": f"{self._prefix}{request.target}",
                ":authority": route.server.authority,
            }
            fields = target | self._fields(request, auth)
            stream = await connections.streams.open(tuple(fields.items()), silence=silence)
            if stream is not None:
                return stream
        return await self._call(request, auth, silence, math.inf)

    async def _call(
        self, request: Request, auth: Auth, silence: float | None, deadline: float
    ) -> Stream:
        connections, route = self._connections(auth.certificate)
        target, fields = f"{self._prefix}{request.target}", self._fields(request, auth)
        octets = request_of(route, request.method, target, fields, request.body)
        return await connections.calls.open(octets, silence=silence, deadline=deadline)

    def _address_fault(self, address: str) -> str:
        networks = self._connection.networks
        fault = "" if networks is None else networks.fault(address)
        return f"refused, as {fault}" if fault else ""

    def _fields(self, request: Request, auth: Auth) -> dict[str, str]:
        is_watch = request.verb == "watch"
        fields = {
            "User-Agent": self._agent,
            "Accept": request.accept,
            "Accept-Encoding": "identity" if is_watch else ENCODING,
        }
        if request.content_type:
            fields["Content-Type"] = request.content_type
        if auth.authorization is not None:
            fields["Authorization"] = auth.authorization.reveal()
        return fields

    def _connections(self, certificate: ClientCertificate | None) -> tuple[_Connections, Route]:
        """Return the connections to use; new ones where the client certificate changed."""
        if self._closed:
            raise NoAnswer(CLOSED, sent=False, permanent=True)
        route = self._route
        if self._current is None or self._current.certificate != certificate:
            secured = "https" in (route.server.scheme, route.proxy and route.proxy.scheme)
            tls = ssl_context(self._connection, certificate) if secured else None
            if self._current is not None:
                self._current.retire()
            self._current = _Connections(certificate, Pool(route, tls, idle=_IDLE_SECONDS))
        return self._current, route


@functools.lru_cache(maxsize=1024)  # once for each object: it comes with every call
def _log_warning(cluster: str, ref: str, warning: str) -> None:
    log.warning("the API server warns", extra={"cluster": cluster, "ref": ref, "warning": warning})


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
