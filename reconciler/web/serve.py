"""Serves HTTP/1.1 to untrusted clients, within our limits.

Bounds are on connections, for each address and in all (`connections`), on what a request may be
(`http1`), and on the time of each phase of it, until its client has taken the answer.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.tls import TlsFiles, certificates
from reconciler.web import connections, http1, requests
from reconciler.web.connections import Connection, Limits, Phase

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of a server, and its clients. Port 0 is any free one, the host "" every address.

    `query` reads the query of a target; it may raise RequestRefused.
    """

    address: tuple[str, int]
    tls: TlsFiles | None = None
    proxies: requests.Proxies = field(default_factory=requests.Proxies)
    limits: Limits = field(default_factory=Limits)
    query: Callable[[str], Mapping[str, str]] = requests.query


@asynccontextmanager
async def served(
    listening: Listening,
    handler: requests.Handler,
    *,
    clock: Callable[[], float] = time.monotonic,
    refusal_page: requests.RefusalPage = requests.plain,
) -> AsyncIterator[tuple[str, int]]:
    """Serve for as long as the block lasts; requests under way then have a few seconds more.

    Yields where. A handler may raise RequestRefused; anything else is a defect, and answered with
    500. `refusal_page` gives all refusals their form.

    Raises HostError.
    """
    certificate = certificates(listening.tls, clock) if listening.tls else None
    answering = _Answering(handler, refusal_page, listening, clock)
    bound = connections.bound_socket(listening.address)
    clients = connections.Connections(listening.limits, answering.serve, certificate)
    accepting = asyncio.create_task(clients.accept(bound))
    try:
        yield bound.getsockname()[:2]
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        bound.close()
        answering.is_stopping = True
        await clients.stop()


class _Answering:
    """Answers requests by a handler: limits of a client, its body, and refusals in their form."""

    def __init__(
        self,
        handler: requests.Handler,
        refusal_page: requests.RefusalPage,
        listening: Listening,
        clock: Callable[[], float],
    ) -> None:
        self._handler, self._page, self._clock = handler, refusal_page, clock
        self._limits, self._listening = listening.limits, listening
        self._buckets = requests.Buckets(self._limits.rate, self._limits.burst)
        self._running = 0  # requests, also of clients that have left
        self.is_stopping = False

    async def serve(self, connection: Connection) -> None:
        """Answer the requests of a client, one after another. Raises OSError."""
        is_kept, rest = True, b""
        while is_kept and not self.is_stopping:
            connection.phase, incoming = Phase.HEAD, http1.Incoming(connection, rest)
            await incoming.head()
            self._running += 1
            try:
                is_kept = await self._exchanged(incoming)
            finally:
                self._running -= 1
            rest = incoming.rest
            await asyncio.sleep(0)  # it may be the first of a thousand in one packet
        await connection.leave(is_read=incoming.is_whole and not rest)

    async def _exchanged(self, incoming: http1.Incoming) -> bool:
        """Send the answer to a request; return whether another one may come. Raises OSError."""
        connection = incoming.connection
        request = requests.Request(incoming.method, "/", id=os.urandom(8).hex())
        is_kept, read = incoming.is_kept, set[str]()
        try:
            if self._running > self._limits.connections:
                later = (("Retry-After", "1"),)
                raise requests.RequestRefused(503, "too busy: try again later", headers=later)
            request = self._head(incoming, request, read)
            connection.phase = Phase.BODY
            request = replace(request, body=await incoming.body())
            connection.phase = Phase.ANSWER
            response, fields = await self._handled(request)
        except requests.RequestRefused as refused:
            response = self._page(request, refused.status, refused.sentence)
            fields = http1.fields_of(response, refused.headers)
            # Else it may be in doubt where the next request begins.
            is_kept &= connection.phase is Phase.ANSWER or refused.status == 429
        is_kept &= incoming.is_whole and not self.is_stopping
        # No cache keeps other answers, and each has hosts apart; a forger learns no header's name.
        if request.method in ("GET", "HEAD") and (varies := sorted(read - {"Host"})):
            fields.append(("Vary", ", ".join(varies)))
        if not is_kept:
            fields.append(("Connection", "close"))
        await _send(incoming, response, fields)
        return is_kept

    def _head(
        self, incoming: http1.Incoming, request: requests.Request, read: set[str]
    ) -> requests.Request:
        """Return the request without its body, which notes in `read`. Raises RequestRefused."""
        if incoming.fault is not None and not incoming.has_head:
            raise incoming.fault
        fields, writer = requests.headers(incoming.fields), incoming.connection.writer
        name = writer.get_extra_info("peername") or ("",)
        peer = requests.address_of(name[0]) or requests.NOWHERE
        address = self._listening.proxies.client(peer, fields.get("x-forwarded-for", ""))
        if seconds := self._buckets.take(requests.address_key(address), self._clock()):
            later = (("Retry-After", str(math.ceil(seconds))),)
            raise requests.RequestRefused(429, "too many requests: try again later", headers=later)
        path, query = requests.target(incoming.target)
        return replace(
            request,
            path=path,
            query=self._listening.query(query),
            headers=requests.Noted(fields, read),
            cookies=requests.Noted(requests.cookies(fields.get("cookie", "")), read, "Cookie"),
            address=str(address),
            secure=writer.get_extra_info("sslcontext") is not None,
        )

    async def _handled(self, request: requests.Request) -> tuple[requests.Response, http1.Fields]:
        """Return the handler's answer, in time, and its headers. Raises RequestRefused."""
        try:
            async with asyncio.timeout(self._limits.answer_time) as limit:
                response = await self._handler(request)
                return response, http1.fields_of(response)
        except requests.RequestRefused:
            raise
        except Exception as error:
            if limit.expired():
                raise requests.RequestRefused(
                    503, f"no answer in time (request {request.id})"
                ) from None
            fields = {"request": request.id, **connections.defect_fields(error)}
            _log.error("a request could not be answered", extra=fields)
            raise requests.RequestRefused(500, f"internal error (request {request.id})") from None


async def _send(
    incoming: http1.Incoming, response: requests.Response, fields: http1.Fields
) -> None:
    """Send an answer, framed as its client can read it. Raises OSError.

    The parts of a stream go on until the client has left, or takes one for too long.
    """
    connection, stream, is_chunked = incoming.connection, response.stream, incoming.minor == 1
    has_body = incoming.method != "HEAD" and response.status not in (204, 304)
    if stream is None and response.status not in (204, 304):
        fields.append(("Content-Length", str(len(response.body))))
    elif stream is not None and is_chunked:
        fields.append(("Transfer-Encoding", "chunked"))
    head = http1.head_of(incoming.minor, response.status, fields)
    if stream is None or not has_body:
        connection.phase = Phase.TAKE
        await connection.send(head + response.body if has_body else head)
        return
    try:
        async with asyncio.timeout(None) as stay, aclosing(_parts(stream)) as parts:
            connection.on_close = partial(stay.reschedule, 0.0)
            await connection.send(head)
            async for part in parts:
                chunk = b"%x\r\n%b\r\n" % (len(part), part) if part else b""
                await connection.send(chunk if is_chunked else part)
            await connection.send(b"0\r\n\r\n" if is_chunked else b"")
    finally:
        connection.on_close = connections.nothing


async def _parts(stream: requests.Stream) -> AsyncGenerator[bytes]:
    """Yield the parts of a stream. Raises OSError, which ends the connection, at its defects."""
    try:
        async with aclosing(stream()) as parts:
            async for part in parts:
                yield part
    except Exception as error:
        _log.error("an answer broke off", extra=connections.defect_fields(error))
        raise ConnectionAbortedError from None
