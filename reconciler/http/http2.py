"""Watches over streams of a few HTTP/2 connections: HTTP/1.1 needs a connection for each.

Knows frames, windows and pings; does not know what a request means.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

from reconciler.http.dial import Route
from reconciler.http.stream import CLOSED, UNREACHED, WINDOW, NoAnswer, Stream

Headers: TypeAlias = Sequence[tuple[str, str]]

# It writes all headers down, the tokens with them.
logging.getLogger("hpack").setLevel(logging.WARNING)

# A load balancer or proxy may break HTTP/2: an operator turns it off without a new release.
PROTOCOLS: Final = ("http/1.1",) if os.environ.get("KLUTCH_HTTP2") == "off" else ("h2", "http/1.1")
_STREAMS: Final = 90  # of one connection: kube-apiserver takes 100
_ON_THE_WAY: Final = 2**24  # octets of one connection, which wait for no reader
_UNREAD: Final = 2**20  # octets of ours: a server may make us answer, and not read
_PING: Final = 30.0  # seconds until the next, by which something has to come


class _Connection(H2Connection):
    """A connection that goes on after a GOAWAY, which h2 takes for the end (RFC 9113, 6.8)."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[events.Event]]:
        event = events.ConnectionTerminated()
        event.last_stream_id = frame.last_stream_id
        return [], [event]


class _Link(asyncio.Protocol):
    """A connection. It `speaks_http2`, or not, or was cut before that was known: None."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.speaks_http2: asyncio.Future[bool | None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._h2 = _Connection(H2Configuration(header_encoding=None))
        settings = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW}
        self._h2.local_settings = Settings(client=True, initial_values=settings)
        self._streams: dict[int, Stream] = {}
        self._taken: dict[int, int] = {}  # octets of streams that the server does not know of
        self._came = 0  # octets that the server does not know of
        self._is_over = self._is_leaving = self._is_silent = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """The number of further streams that the server takes."""
        most = min(_STREAMS, self._h2.remote_settings.max_concurrent_streams)
        return 0 if self._is_leaving else most - len(self._streams)

    def begin(self, headers: Headers, silence: float | None) -> Stream:
        """Send a request, and return its answer to come."""
        number = self._h2.get_next_available_stream_id()
        stream = self._streams[number] = Stream(self, number, silence=silence)
        self._taken[number] = 0
        try:
            self._h2.send_headers(number, headers, end_stream=True)
            self._send()
        except ProtocolError:
            stream.end("the request is not HTTP")
        return stream

    # The link of its streams

    def is_sending(self) -> bool:
        return False  # requests for watches are short

    def acknowledge(self, number: int, octets: int) -> None:
        taken = self._taken[number] = self._taken[number] + octets
        if taken >= WINDOW // 2:
            self._taken[number] = 0
            self._send(lambda h2: h2.increment_flow_control_window(taken, number))

    def leave(self, number: int, *, is_cut: bool) -> None:
        if is_cut:
            self._send(lambda h2: h2.reset_stream(number, ErrorCodes.CANCEL))
        del self._streams[number], self._taken[number]
        if not self._streams:
            self.abort()

    def _send(self, frame: Callable[[H2Connection], None] = lambda _: None) -> None:
        """Send a frame, and the answers of h2. A stream that has ended needs none."""
        if self._is_over:
            return
        with contextlib.suppress(ProtocolError):
            frame(self._h2)
        if octets := self._h2.data_to_send():
            self._transport.write(octets)
            if self._transport.get_write_buffer_size() > _UNREAD:
                self.abort()

    def abort(self, problem: str = "") -> None:
        """Close it at once. All its streams are cut, by this problem or the server."""
        self._transport.abort()
        self._end(problem)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            self.speaks_http2.set_result(False)
            return
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_ON_THE_WAY)
        self._timer = self._loop.call_later(_PING, self._ping)

    def data_received(self, data: bytes) -> None:
        self._is_silent = False
        try:
            for event in () if self._is_over else self._h2.receive_data(data):
                self._take(event)
        except ProtocolError:
            self.abort()
        came = self._came
        if came >= _ON_THE_WAY // 2:
            self._came = 0
            self._send(lambda h2: h2.increment_flow_control_window(came))
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        self.closed.set_result(None)

    def _end(self, problem: str = "") -> None:
        if self._is_over:
            return
        self._is_over = self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.speaks_http2.done():
            self.speaks_http2.set_result(None)
        for stream in tuple(self._streams.values()):
            stream.cut(problem)

    def _take(self, event: events.Event) -> None:
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        match event:
            case events.DataReceived():
                self._came += event.flow_controlled_length
                if stream is not None:
                    stream.take(event.data)
                    padding = event.flow_controlled_length - len(event.data)
                    self.acknowledge(event.stream_id, padding)
            case events.RemoteSettingsChanged():
                if not self.speaks_http2.done():
                    self.speaks_http2.set_result(self.room > 0)
            case events.ConnectionTerminated():
                self._let_go(event.last_stream_id or 0)
            case events.ResponseReceived() if stream is not None:
                status = dict(event.headers).get(b":status", b"")
                stream.begin(int(status) if status.isdigit() else 0, event.headers)
            case events.StreamEnded() if stream is not None:
                stream.end()
            case events.StreamReset() if stream is not None:
                stream.cut()

    def _let_go(self, last: int) -> None:
        """Open no further stream: the server begins none after its last."""
        self._is_leaving = True
        for stream in [one for number, one in self._streams.items() if number > last]:
            stream.cut()

    def _ping(self) -> None:
        if self._is_silent or not self._streams:
            self.abort()
            return
        self._is_silent = True
        self._timer = self._loop.call_later(_PING, self._ping)
        self._send(lambda h2: h2.ping(b"silence?"))


@dataclass(slots=True)
class Multiplexer:
    """The connections to one API server with one client certificate, as many as streams need."""

    route: Route
    tls: ssl.SSLContext
    _links: dict[_Link, None] = field(default_factory=dict)  # the first are filled first
    _dialing: asyncio.Task[NoAnswer | None] | None = None
    _lacks_http2: bool = False

    async def open(self, headers: Headers, *, silence: float | None) -> Stream | None:
        """Open a stream; None: the server does not speak HTTP/2.

        The stream fails where nothing comes for `silence` seconds. Raises NoAnswer.
        """
        while not self._lacks_http2:
            for link in self._links:
                if link.room > 0:
                    return await link.begin(headers, silence).opened()
            if self._dialing is None or self._dialing.done():
                self._dialing = asyncio.create_task(self._dial())
            dialing = self._dialing  # one for all that wait, and none of them ends it
            await asyncio.wait([dialing])
            problem = NoAnswer(CLOSED, sent=False) if dialing.cancelled() else dialing.result()
            if problem is not None:
                raise problem.with_traceback(None)
        return None

    def cut(self) -> list[_Link]:
        """Close all connections, and return them. Streams are cut."""
        if self._dialing is not None:
            self._dialing.cancel()
        links = [*self._links]
        for link in links:
            link.abort(CLOSED)
        return links

    async def close(self) -> None:
        """Close all connections, and wait for their end."""
        links = self.cut()
        if self._dialing is not None:
            await asyncio.wait([self._dialing])
        for link in links:
            await link.closed

    async def _dial(self) -> NoAnswer | None:
        """Make one more connection, or return why there is none."""
        try:
            link = await self.route.connect(_Link, self.tls)
        except NoAnswer as error:
            return error
        spoken: bool | None = None
        try:
            async with asyncio.timeout(self.route.connect_timeout):
                spoken = await link.speaks_http2
        except TimeoutError:
            return NoAnswer(UNREACHED, sent=False, permanent=True)
        finally:
            if not spoken:
                link.abort()
                await link.closed
        if spoken is None:
            return NoAnswer("no connection: Connection reset by peer", sent=False)
        if spoken:  # not before its SETTINGS: streams until then would make it look full
            self._links[link] = None
            link.closed.add_done_callback(lambda _: self._links.pop(link))
        self._lacks_http2 = not spoken
        return None
