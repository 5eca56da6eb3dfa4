"""A proxy in front of one API server that speaks HTTP and fails on cue.

    async with FaultProxy(upstream, tls=serving_tls(certificate, key)) as proxy:
        cluster = KubeCluster(proxy.connection)
        proxy.add(on("PATCH", r"/configmaps/x$").nth(1), answer(429, retry_after=1))

Client connections are kept alive, so that their reuse is as it would be without a proxy; each
exchange has a connection to the server of its own. Bodies are forwarded as they come. A request
that came in is forwarded even when its client has left meanwhile: held back at a gate, it is a late
write.
"""

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import h11

from reconciler.kube.connection import ClientCertificate, Connection, NoCredential
from reconciler.kube.transport import ssl_context
from tests.support.cues import AFTER, BEFORE, Cue, Rule, Rules
from tests.support.http_faults import Body, Effect, Point, Reply, Request
from tests.support.listener import How, Proxy, hang_up, let_go

_CHUNK = 65536

_Rule: TypeAlias = Rule[Request, Point, Effect]


@dataclass(frozen=True, slots=True)
class Passed:
    """One exchange: what the client was told (0 = nothing), and on which of its connections."""

    method: str
    path: str
    status: int
    connection: int


def serving_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


class FaultProxy(Proxy):
    """Stands before `upstream`; serves plain HTTP without `tls`.

    A client certificate in `upstream` is presented to the server for all clients. Otherwise
    clients authenticate themselves: their headers are passed on.
    """

    def __init__(self, upstream: Connection, *, tls: ssl.SSLContext | None = None) -> None:
        self._upstream, self._scheme = upstream, "http" if tls is None else "https"
        super().__init__(self._serve, tls=tls)
        self._upstream_tls = _client_tls(upstream)
        self._sessions: set[_Session] = set()
        self._numbers = itertools.count(1)
        self.rules: Rules[Request, Point, Effect] = Rules(usually=BEFORE)
        self.log: list[Passed] = []
        # Octets of bodies by path: what clients sent, and what came from the server.
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._listener.port}"

    @property
    def connection(self) -> Connection:
        """The upstream connection, led through this proxy."""
        presented = isinstance(self._upstream.credential, ClientCertificate)
        return replace(
            self._upstream,
            server=self.url,
            credential=NoCredential() if presented else self._upstream.credential,
        )

    @property
    def is_left(self) -> bool:
        return not self._sessions

    def add(self, cue: Cue[Request], *effects: Effect, at: Point | None = None) -> None:
        """Add a rule: BEFORE the request is forwarded unless `at` says otherwise.

        Of several rules within the body of one answer, the first that was added acts.
        """
        self.rules.add(cue, *effects, at=at)

    def drop_idle(self, how: How = "fin") -> None:
        """End the connections that wait for their next request."""
        for session in self._sessions:
            if session.idle:
                session.cut(how)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Session(self, reader, writer, number=next(self._numbers))
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)

    @asynccontextmanager
    async def dial(self) -> "AsyncIterator[_Upstream]":
        server, tls = urlsplit(self._upstream.server), self._upstream_tls
        name = (self._upstream.tls_server_name or server.hostname) if tls else None
        reader, writer = await asyncio.open_connection(
            server.hostname, server.port, ssl=tls, server_hostname=name
        )
        try:
            yield _Upstream(reader, writer)
        finally:
            await let_go(writer)


class _Upstream:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, *events: h11.Event) -> None:
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def head(self) -> h11.Response:
        while not isinstance(event := await self.next(), h11.Response):
            pass  # 1xx
        return event

    async def next(self) -> h11.Event:
        """Return the next part of the answer. Raises RemoteProtocolError where it was cut."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_CHUNK))
        assert isinstance(event, h11.Event)
        return event


class _Session:
    """One client connection, from its first request to its end."""

    def __init__(
        self,
        proxy: FaultProxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        number: int,
    ) -> None:
        self._proxy, self._reader, self._writer, self._number = proxy, reader, writer, number
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_CHUNK)

    @property
    def idle(self) -> bool:
        """Whether all that was asked has been answered, as far as the client can see."""
        return self._http.our_state in (h11.IDLE, h11.DONE)

    def cut(self, how: How) -> None:
        hang_up(self._writer, how)

    async def run(self) -> None:
        """Serve requests until one side ends the connection."""
        try:
            while parts := await self._next_request():
                await self._exchange(parts)
                if self._writer.is_closing() or not (
                    self._http.our_state is self._http.their_state is h11.DONE
                ):
                    return
                self._http.start_next_cycle()
        except* (h11.RemoteProtocolError, OSError):
            hang_up(self._writer, "fin")  # one side left: so does the other

    async def _next_request(self) -> list[h11.Event]:
        """Return all parts of a request, or none where the client is done."""
        parts: list[h11.Event] = []
        while not parts or not isinstance(parts[-1], h11.EndOfMessage):
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_CHUNK))
            elif isinstance(event, h11.ConnectionClosed):
                return []
            else:
                assert isinstance(event, h11.Event)
                parts.append(event)
        return parts

    async def _exchange(self, parts: Sequence[h11.Event]) -> None:
        request = _request(parts)
        log = self._proxy.log

        def reported(status: int) -> None:
            log.append(Passed(request.method, request.path, status, self._number))

        def received(octets: int) -> None:
            self._proxy.received[request.path] += octets

        self._proxy.sent[request.path] += sum(
            len(part.data) for part in parts if isinstance(part, h11.Data)
        )
        reply = Reply(self._http, self._writer, reported=reported)
        due = self._proxy.rules.due(request)
        async with AsyncExitStack() as stack:  # the log is written before the server is let go
            try:
                if await _perform(due, BEFORE, reply):
                    return
                upstream = await stack.enter_async_context(self._proxy.dial())
                await upstream.send(*parts)
                head = await upstream.head()
                if await _perform(due, AFTER, reply):
                    return
                await reply.send(head)
                within = next((rule for rule in due if isinstance(rule.at, Body)), None)
                async with asyncio.TaskGroup() as group:
                    client = group.create_task(self._until_client_leaves())
                    await _relay(upstream, reply, within, received)
                    client.cancel()
            finally:
                if reply.status is None:
                    reported(0)

    async def _until_client_leaves(self) -> None:
        while data := await self._reader.read(_CHUNK):
            self._http.receive_data(data)
        raise ConnectionResetError("the client left")


def _client_tls(upstream: Connection) -> ssl.SSLContext | None:
    if not upstream.server.startswith("https:"):
        return None
    credential = upstream.credential
    return ssl_context(upstream, credential if isinstance(credential, ClientCertificate) else None)


def _request(parts: Sequence[h11.Event]) -> Request:
    head = parts[0]
    assert isinstance(head, h11.Request)
    target = urlsplit(head.target.decode())
    return Request(head.method.decode(), target.path, target.query)


async def _perform(due: Sequence[_Rule], point: Point, reply: Reply) -> bool:
    """Perform what is due at this point; return whether the exchange is over."""
    for rule in due:
        for effect in rule.effects if rule.at == point else ():
            if await effect.perform(reply):
                return True
    return False


async def _relay(
    upstream: _Upstream, reply: Reply, within: _Rule | None, received: Callable[[int], None]
) -> None:
    """Pass an answer's body on as it comes, up to what is due within it."""
    left = within.at if within else None
    part: h11.Event = h11.Data(data=b"")
    while isinstance(part, h11.Data):
        data = bytes(part.data)
        received(len(data))
        if within and isinstance(left, Body):
            end, left = left.within(data)
            if left is None:
                await reply.send(h11.Data(data=data[:end]))
                if await _perform([within], within.at, reply):
                    return
                data = data[end:]
        if data:
            await reply.send(h11.Data(data=data))
        part = await upstream.next()
    await reply.send(part)
