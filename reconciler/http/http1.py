"""Calls over kept HTTP/1.1 connections, one call at a time on each.

Knows framing and idle connections; does not know what a request means.
"""

import asyncio
import math
import re
import ssl
from collections.abc import Mapping
from itertools import chain
from typing import Final, cast

import httptools

from reconciler.http.dial import Route
from reconciler.http.stream import (
    CLOSED,
    LATE,
    MAY_SEND,
    NO_HTTP,
    UNREACHED,
    WINDOW,
    NoAnswer,
    Stream,
)

_FRAMING: Final = 2**16  # octets of an answer that are no body: headers, sizes of chunks
_TARGET: Final = re.compile(r"[!-~]+")
_VALUE: Final = re.compile(r"[\t -~]*")


def request_of(
    route: Route, method: str, target: str, fields: Mapping[str, str], body: bytes | None
) -> bytes:
    """Return the octets of a request. Raises NoAnswer for texts that would change its meaning."""
    fields = {"Host": route.server.authority, **fields}
    if route.proxy is not None and route.server.scheme == "http":
        target = f"http://{route.server.authority}{target}"
        if route.proxy.credential:
            fields["Proxy-Authorization"] = route.proxy.credential
    if body is not None or method not in ("GET", "DELETE"):
        fields["Content-Length"] = str(len(body or b""))
    if not _TARGET.fullmatch(target) or not all(map(_VALUE.fullmatch, fields.values())):
        raise NoAnswer("the request cannot be sent as it is", sent=False, permanent=True)
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    return f"{method} {target} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("ascii") + (body or b"")


class Pool:
    """The connections to one server with one client certificate.

    None is used again after `idle` seconds, as the server may close it then: a write that meets a
    closing connection has an unknown outcome.
    """

    def __init__(self, route: Route, tls: ssl.SSLContext | None, *, idle: float) -> None:
        self._route, self._tls, self._seconds = route, tls, idle
        self._loop = asyncio.get_running_loop()
        self._lines: set[_Line] = set()
        self._opening = 0  # requests without a connection yet
        self._idle: dict[_Line, float] = {}  # and since when; the longest first
        self._is_retired = self._is_closed = False

    async def open(self, request: bytes, *, silence: float | None, deadline: float) -> Stream:
        """Send a request, and return its answer once the head is there.

        It fails where nothing comes for `silence` seconds, and at `deadline`, a time of the loop.
        Raises NoAnswer, and what `MAY_SEND` raises.
        """
        if deadline <= self._loop.time():
            raise NoAnswer(LATE, sent=False, permanent=True)
        self._opening += 1
        try:
            line = self._kept() or await self._dialed(deadline)
        finally:
            self._opening -= 1
        try:
            MAY_SEND.get()()
        except BaseException:
            line.abort()
            raise
        return await line.begin(request, silence=silence, deadline=deadline).opened()

    async def _dialed(self, deadline: float) -> "_Line":
        try:
            async with asyncio.timeout_at(deadline):
                line = await self._route.connect(lambda: _Line(self), self._tls)
        except TimeoutError:
            line = None
        if line is None:
            raise NoAnswer(UNREACHED, sent=False, permanent=True)
        if self._is_closed:
            line.abort()
            raise NoAnswer(CLOSED, sent=False)
        return line

    def _kept(self) -> "_Line | None":
        latest = self._loop.time() - self._seconds
        while self._idle:
            line, since = self._idle.popitem()
            if line.is_usable and since > latest:
                return line
            line.abort()
        return None

    def keep(self, line: "_Line") -> None:
        """Use a connection again, or close it."""
        if self._is_retired:
            line.abort()
        else:
            self._idle[line] = self._loop.time()

    def opened(self, line: "_Line") -> None:
        self._lines.add(line)

    def closed(self, line: "_Line") -> None:
        self._lines.discard(line)
        self._idle.pop(line, None)

    @property
    def is_empty(self) -> bool:
        return not self._lines and not self._opening

    def retire(self) -> None:
        """Close each connection once its call has ended, and those at once that have no end."""
        self._is_retired = True
        for line in tuple(self._lines):
            if line in self._idle or line.is_endless:
                line.abort(CLOSED)

    async def close(self) -> None:
        """Close all connections. Calls in flight are cut."""
        self.retire()
        self._is_closed = True
        lines = tuple(self._lines)
        for line in lines:
            line.abort(CLOSED)
        for line in lines:
            await line.closed


class _Line(asyncio.Protocol):
    """A connection, and the answer that comes over it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open, self.is_endless = True, False
        self._transport: asyncio.Transport
        self._stream: Stream | None = None
        self._parser: httptools.HttpResponseParser
        self._fields: list[tuple[bytes, bytes]] = []
        self._came = self._body = 0  # octets
        self._is_complete = self._is_kept = self._is_broken = self._is_paused = False

    def begin(self, request: bytes, *, silence: float | None, deadline: float) -> Stream:
        self._fields, self._came, self._body = [], 0, 0
        self._is_complete = self._is_kept = False
        # One for each answer: it takes bytes of no answer for an error.
        self._parser = httptools.HttpResponseParser(self)
        self.is_endless = deadline == math.inf
        self._stream = Stream(self, 0, silence=silence, deadline=deadline)
        self._transport.write(request)
        return self._stream

    def abort(self, problem: str = "") -> None:
        """Close it at once; an answer on its way is cut."""
        self.is_open = False
        self._transport.abort()
        if self._stream is not None:
            self._stream.cut(problem)

    @property
    def is_usable(self) -> bool:
        return self.is_open and not self._transport.is_closing()

    # The link of its stream

    def is_sending(self) -> bool:
        return self._transport.get_write_buffer_size() > 0

    def acknowledge(self, number: int, octets: int) -> None:
        self._pause(False)

    def leave(self, number: int, *, is_cut: bool) -> None:
        self._stream = None
        if self._is_kept and self.is_usable and not self.is_sending():
            self._pause(False)
            self._pool.keep(self)
        else:
            self.abort()

    def _pause(self, wanted: bool) -> None:
        if wanted is not self._is_paused and self.is_open:
            self._is_paused = wanted
            (self._transport.pause_reading if wanted else self._transport.resume_reading)()

    # The protocol of its transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        stream = self._stream
        if stream is None:  # nothing was asked
            self.abort()
            return
        self._came += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._is_broken, self._is_kept = not self._is_complete, False
        if self._is_broken or (not self._is_complete and self._came > _FRAMING + 2 * self._body):
            self.abort(NO_HTTP)
        elif self._is_complete:
            stream.end()
        elif stream.unread > WINDOW:
            self._pause(True)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._pool.closed(self)
        if (stream := self._stream) is not None:
            names = {name.lower() for name, _ in self._fields}
            is_open_ended = names.isdisjoint((b"content-length", b"transfer-encoding"))
            if stream.status and error is None and is_open_ended:
                stream.end()
            else:
                stream.cut()
        if not self.closed.done():
            self.closed.set_result(None)

    # The callbacks of its parser. After an answer is complete, nothing more is taken

    def on_message_begin(self) -> None:
        self._is_kept = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stream is not None and not self._stream.status:  # else it is a trailer
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_complete or self._stream is None:
            return
        if self._parser.get_status_code() < 200:
            self._fields = []  # of an interim answer
        elif self._came > _FRAMING and sum(map(len, chain(*self._fields))) > _FRAMING:
            self._is_broken = True
        else:
            self._stream.begin(self._parser.get_status_code(), self._fields)

    def on_body(self, data: bytes) -> None:
        self._body += len(data)
        if self._stream is not None and not self._is_complete:
            self._stream.take(data)

    def on_message_complete(self) -> None:
        if not self._is_complete:
            self._is_complete = self._parser.get_status_code() >= 200
            self._is_kept = self._is_complete and self._parser.should_keep_alive()
