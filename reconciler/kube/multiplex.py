"""Watches over streams of a few HTTP/2 connections: HTTP/1.1 needs a connection for each.

Knows frames, windows and silence; does not know what a request means. A stream has the shape of
aiohttp's response, as far as transport.py reads one, and raises NoAnswer for all that cuts it.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias, cast

from aiohappyeyeballs import AddrInfoType, pop_addr_infos_interleave, start_connection
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from reconciler.kube.transport_errors import NoAnswer, explain

Headers: TypeAlias = Sequence[tuple[str, str]]

# It writes all headers down, the tokens with them.
logging.getLogger("hpack").setLevel(logging.WARNING)

# A load balancer or proxy may break HTTP/2: an operator turns it off without a new release.
PROTOCOLS: Final = ("http/1.1",) if os.environ.get("KLUTCH_HTTP2") == "off" else ("h2", "http/1.1")
_STREAMS: Final = 90  # of one connection: kube-apiserver takes 100
_WINDOW: Final = 2**18  # octets of one stream that wait for their reader
_ON_THE_WAY: Final = 2**24  # octets of one connection, which wait for no reader
_UNREAD: Final = 2**20  # octets of ours: a server may make us answer, and not read
_PING: Final = 30.0  # seconds until the next, by which something has to come
_CLOSED: Final = "the connection was closed by us"
_CUT: Final = "the connection was cut before the answer"


class Stream(contextlib.AbstractAsyncContextManager["Stream"]):
    """An answer: its `status`, `headers`, and the chunks of its `content`. It has one reader."""

    def __init__(self, link: "_Link", number: int, silence: float | None) -> None:
        self.status = 0  # until the head is there
        self.headers = CIMultiDictProxy(CIMultiDict[str]())
        self._link, self._number, self._silence = link, number, silence
        self._unread = bytearray()
        self._taken = 0  # octets that the server does not know of
        self._end: str | None = None  # what cut it; "" = nothing did
        self._reader: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._judge_silence()

    @property
    def content(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the server stop; to read on fails."""
        self._reset(_CLOSED)

    async def opened(self) -> None:
        """Return once the head is there."""
        while not self.status:
            if self._end is not None:
                raise NoAnswer(self._end or _CUT, sent=True)
            await self._news()

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the data as it comes. Data that is not taken holds the server back."""
        while self._unread or self._end is None:
            if not self._unread:
                await self._news()
                continue
            chunk = bytes(self._unread)
            self._unread.clear()
            self._acknowledge(len(chunk))
            yield chunk
        if self._end:
            raise NoAnswer(self._end, sent=True)

    async def _news(self) -> None:
        self._heard = self._loop.time()  # as long as nobody reads, the silence is ours
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _notify(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def begin(self, headers: Headers) -> None:
        status = dict(headers).get(":status", "")
        self.status = int(status) if status.isascii() and status.isdigit() else 0
        self.headers = CIMultiDictProxy(CIMultiDict(headers))
        if not self.status:
            self._reset("the answer is not HTTP")
        self._notify()

    def take(self, data: bytes, octets: int) -> None:
        """Take in a part of the body; with its padding it has so many octets."""
        self._unread += data
        self._acknowledge(octets - len(data))
        self._notify()

    def end(self, problem: str = "") -> None:
        """Note the end of the answer, and the error that cut it, if any."""
        if self._end is None:
            self._end = problem
            if self._timer is not None:
                self._timer.cancel()
            self._link.leave(self._number)
            self._notify()

    def cut(self) -> None:
        self.end("the answer was cut short" if self.status else _CUT)

    def _reset(self, problem: str) -> None:
        if self._end is None:
            self._link.send(lambda h2: h2.reset_stream(self._number, ErrorCodes.CANCEL))
        self.end(problem)

    def _acknowledge(self, octets: int) -> None:
        self._taken += octets
        if self._taken >= _WINDOW // 2 and self._end is None:
            taken, self._taken = self._taken, 0
            self._link.send(lambda h2: h2.increment_flow_control_window(taken, self._number))

    def _judge_silence(self) -> None:
        """End it where its reader waited for too long. One timer does, not one for each event."""
        if self._silence is None:
            return
        now = self._loop.time()
        due = self._silence + (now if self._reader is None else self._heard)
        if due > now:
            self._timer = self._loop.call_at(due, self._judge_silence)
        else:
            self._reset("no answer in time")


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
        settings = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW}
        self._h2.local_settings = Settings(client=True, initial_values=settings)
        self._streams: dict[int, Stream] = {}
        self._came = 0  # octets that the server does not know of
        self._is_over = self._is_leaving = self._is_silent = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """The number of further streams that the server takes."""
        most = min(_STREAMS, self._h2.remote_settings.max_concurrent_streams)
        return 0 if self._is_leaving else most - len(self._streams)

    async def open(self, headers: Headers, silence: float | None) -> Stream:
        """Send a request, and return once the head of its answer is there."""
        number = self._h2.get_next_available_stream_id()
        stream = self._streams[number] = Stream(self, number, silence)
        try:
            self._h2.send_headers(number, headers, end_stream=True)
            self.send()
        except ProtocolError:
            stream.end("the request is not HTTP")
        try:
            await stream.opened()
        except BaseException:
            stream.close()
            raise
        return stream

    def leave(self, number: int) -> None:
        """Forget a stream that is over."""
        self._streams.pop(number, None)
        if not self._streams:
            self.abort()

    def send(self, frame: Callable[[H2Connection], None] = lambda _: None) -> None:
        """Send a frame, and the answers of h2. A stream that has ended needs none."""
        if self._is_over:
            return
        with contextlib.suppress(ProtocolError):
            frame(self._h2)
        if octets := self._h2.data_to_send():
            self._transport.write(octets)
            if self._transport.get_write_buffer_size() > _UNREAD:
                self.abort()

    def abort(self) -> None:
        """Close it at once. All its streams are cut."""
        self._transport.abort()
        self._end()

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
            self.send(lambda h2: h2.increment_flow_control_window(came))
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        self.closed.set_result(None)

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.speaks_http2.done():
            self.speaks_http2.set_result(None)
        for stream in tuple(self._streams.values()):
            stream.cut()

    def _take(self, event: events.Event) -> None:
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        match event:
            case events.DataReceived():
                self._came += event.flow_controlled_length
                if stream is not None:
                    stream.take(event.data, event.flow_controlled_length)
            case events.RemoteSettingsChanged():
                if not self.speaks_http2.done():
                    self.speaks_http2.set_result(self.room > 0)
            case events.ConnectionTerminated():
                self._let_go(event.last_stream_id or 0)
            case events.ResponseReceived() if stream is not None:
                stream.begin([(k.decode("latin-1"), v.decode("latin-1")) for k, v in event.headers])
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
        self.send(lambda h2: h2.ping(b"silence?"))


@dataclass(slots=True)
class Multiplexer:
    """The connections to one API server with one client certificate, as many as streams need.

    `connect_timeout` is in seconds, for each address of the server. `make_socket` judges an
    address and makes the socket that is connected to it, or raises OSError.
    """

    url: URL
    tls: ssl.SSLContext
    server_name: str
    make_socket: Callable[[AddrInfoType], socket.socket]
    connect_timeout: float
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
                    return await link.open(headers, silence)
            if self._dialing is None or self._dialing.done():
                self._dialing = asyncio.create_task(self._dial())
            dialing = self._dialing  # one for all that wait, and none of them ends it
            await asyncio.wait([dialing])
            problem = NoAnswer(_CLOSED, sent=False) if dialing.cancelled() else dialing.result()
            if problem is not None:
                raise NoAnswer(problem.message, sent=False, permanent=problem.permanent)
        return None

    async def close(self) -> None:
        """Close all connections. Streams are cut."""
        if self._dialing is not None:
            self._dialing.cancel()
            await asyncio.wait([self._dialing])
        for link in tuple(self._links):
            link.abort()
            await link.closed

    async def _dial(self) -> NoAnswer | None:
        """Make one more connection, or return why there is none."""
        addresses: list[AddrInfoType] = []
        problem: NoAnswer | None = None
        try:
            addresses += await asyncio.get_running_loop().getaddrinfo(
                self.url.host, self.url.port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, ValueError) as error:  # ValueError: of a name that is none
            problem = explain(error, connected=False)
        while addresses:
            try:
                await self._connect(addresses)
                return None
            except (OSError, ValueError) as error:
                problem = explain(error, connected=False)
            pop_addr_infos_interleave(addresses, 1)
        return problem

    async def _connect(self, addresses: Sequence[AddrInfoType]) -> None:
        async with asyncio.timeout(self.connect_timeout):
            connected = await start_connection(
                addresses, happy_eyeballs_delay=0.25, interleave=1, socket_factory=self.make_socket
            )
            _, link = await asyncio.get_running_loop().create_connection(
                _Link, sock=connected, ssl=self.tls, server_hostname=self.server_name
            )
            spoken: bool | None = None
            try:
                spoken = await link.speaks_http2
            finally:
                if not spoken:
                    link.abort()
                    await link.closed
        if spoken is None:
            raise ConnectionResetError(errno.ECONNRESET, "cut")
        if spoken:  # not before its SETTINGS: streams until then would make it look full
            self._links[link] = None
            link.closed.add_done_callback(lambda _: self._links.pop(link))
        self._lacks_http2 = not spoken
