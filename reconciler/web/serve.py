"""Serves HTTP/1.1 by aiohttp to untrusted clients, within our limits.

aiohttp parses, and bounds lines and the time until a head is there. Below it are bounds on
connections, for each address and in all, on the size of a head that does not end, and on the time
that a client takes to receive an answer. No answer has the name of the server, which helps
attackers alone.
"""

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

# Not `aiohttp.web`: its routes and files would cost each agent 1.6 MiB.
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response as WireResponse
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server
from multidict import CIMultiDict

from reconciler.tls import TlsFiles, certificates
from reconciler.web import requests
from reconciler.web.connections import (
    Connection,
    Connections,
    Limits,
    Phase,
    bound_socket,
    defect_fields,
    nothing,
)

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
    loop = asyncio.get_running_loop()
    server = Server(answering.answer, request_factory=partial(_Raw, loop=loop))
    bound = bound_socket(listening.address)
    connections = Connections(listening.limits, partial(_Protocol, server), certificate)
    accepting = loop.create_task(connections.accept(bound))
    try:
        yield bound.getsockname()[:2]
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        bound.close()
        connections.cut(idle=True)
        await answering.stop()
        await server.shutdown(_MOMENT)
        await connections.stop()


_MOMENT: Final = 0.1  # seconds; to aiohttp, 0 is for ever
_HEADERS: Final = 100  # of one request
_TOO_LONG: Final = "the head of the request is too long"
_TOO_LARGE: Final = "the body of the request is too large"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_COOKIE: Final = re.compile(rf"{_TOKEN.pattern}=[!#-+\--:<-\[\]-~]*")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")


class _Protocol(RequestHandler):
    """Parses requests, and writes answers."""

    def __init__(self, server: Server, connection: Connection) -> None:
        limits = connection.limits
        options: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": limits.head_time,
            "lingering_time": min(1.0, limits.body_time),
            "max_field_size": limits.line,
            "max_headers": _HEADERS,
            "max_line_size": limits.line,
            "read_bufsize": limits.body,
        }
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self.connection = connection
        self._body: StreamReader = EMPTY_PAYLOAD  # of the last request whose head is complete
        self._head = 0  # bytes of the next one

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connection.cut = cast("asyncio.Transport", transport).abort
        self.connection.enter(Phase.HEAD)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.connection.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request. A head that is too long ends the connection."""
        heads, of_body = self._request_count, not self._body.is_eof()
        super().data_received(data)
        if heads != self._request_count:
            self._body, self._head = self._messages[-1][1], 0
        elif not of_body:
            self._head += len(data)
        if self._head > self.connection.limits.head and not self._close:
            self._close = True  # nothing more is parsed
            self._messages.append((_ErrInfo(431, LineTooLong(b""), ""), EMPTY_PAYLOAD))
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        """Send an answer, and wait for the next request."""
        self.connection.enter(Phase.TAKE)
        sent = await super().finish_response(request, resp, start_time)
        if self.transport is not None:
            self.connection.enter(Phase.HEAD)
        return sent

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer a request that cannot be parsed, without its words."""
        if status >= 500:
            self.log_exception("", exc_info=exc)
        sentence = "the request cannot be read" if status < 500 else "internal error"
        if isinstance(exc, LineTooLong):
            status, sentence = 431, _TOO_LONG
        answer = answer_of(requests.Response(status, f"{sentence}\n".encode()))
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a defect by its type and place."""
        error = kw.get("exc_info")
        fields = defect_fields(error) if isinstance(error, BaseException) else {}
        _log.error("an HTTP exchange failed", extra=fields)


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
        self._limits, self._proxies = listening.limits, listening.proxies
        self._query = listening.query
        self._buckets = requests.Buckets(self._limits.rate, self._limits.burst)
        self._running: set[asyncio.Task[object]] = set()
        self._stopping = False

    async def answer(self, raw: BaseRequest) -> StreamResponse:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        connection = cast("_Protocol", raw.protocol).connection
        request, stream = requests.Request(raw.method, "/", id=os.urandom(8).hex()), None
        read: set[str] = set()
        try:
            if len(self._running) > self._limits.connections:  # of clients that have left, too
                later = (("Retry-After", "1"),)
                raise requests.RequestRefused(503, "too busy: try again later", headers=later)
            request = self._head(raw, request, read)
            connection.enter(Phase.BODY)
            request = replace(request, body=await _body_of(raw, self._limits))
            connection.enter(Phase.ANSWER)
            answer, stream = await self._handled(request)
        except requests.RequestRefused as refused:
            page = self._page(request, refused.status, refused.sentence)
            answer = answer_of(page, refused.headers)
            if connection.phase is not Phase.ANSWER and refused.status != 429:
                answer.force_close()  # where the next request begins may be in doubt
        # No cache keeps other answers, and each has hosts apart; a forger learns no header's name.
        if raw.method in ("GET", "HEAD") and (varies := sorted(read - {"Host"})):
            answer.headers["Vary"] = ", ".join(varies)
        if self._stopping:
            answer.force_close()
        if stream is not None and raw.method != "HEAD":
            await _send(stream, answer, raw)
        return answer

    async def stop(self) -> None:
        """Wait for requests under way, for so long; nothing is kept alive from now on."""
        self._stopping = True
        if self._running:
            await asyncio.wait(self._running, timeout=self._limits.stop_time)
        if left := list(self._running):
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    def _head(
        self, raw: BaseRequest, request: requests.Request, read: set[str]
    ) -> requests.Request:
        """Return the request without its body, which notes in `read`. Raises RequestRefused."""
        fields = requests.headers(raw.headers.items())
        peer = requests.address_of(raw.remote or "") or requests.NOWHERE
        client = self._proxies.client(peer, fields.get("x-forwarded-for", ""))
        if seconds := self._buckets.take(requests.address_key(client), self._clock()):
            later = (("Retry-After", str(math.ceil(seconds))),)
            raise requests.RequestRefused(429, "too many requests: try again later", headers=later)
        if sum(len(name) + len(value) for name, value in raw.raw_headers) > self._limits.head:
            raise requests.RequestRefused(431, _TOO_LONG)
        path, query = requests.target(raw._message.path)
        return replace(
            request,
            path=path,
            query=self._query(query),
            headers=requests.Noted(fields, read),
            cookies=requests.Noted(requests.cookies(fields.get("cookie", "")), read, "Cookie"),
            address=str(client),
            secure=raw.secure,
        )

    async def _handled(
        self, request: requests.Request
    ) -> tuple[StreamResponse, requests.Stream | None]:
        """Return the handler's answer, in time. Raises RequestRefused."""
        try:
            async with asyncio.timeout(self._limits.answer_time) as limit:
                response = await self._handler(request)
                return answer_of(response), response.stream
        except requests.RequestRefused:
            raise
        except Exception as error:
            if limit.expired():
                raise requests.RequestRefused(
                    503, f"no answer in time (request {request.id})"
                ) from None
            fields = {"request": request.id, **defect_fields(error)}
            _log.error("a request could not be answered", extra=fields)
            raise requests.RequestRefused(500, f"internal error (request {request.id})") from None


async def _body_of(raw: BaseRequest, limits: Limits) -> bytes:
    """Return the whole body. Raises RequestRefused where it is too large, too slow, or packed."""
    expected = raw.headers.get("Expect", "")
    if raw.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
        raise requests.RequestRefused(501, "the transfer encoding is not supported")
    if raw.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise requests.RequestRefused(415, "compressed bodies are not supported")
    if (raw.content_length or 0) > limits.body:
        raise requests.RequestRefused(413, _TOO_LARGE)
    if expected and expected.strip().lower() != "100-continue":
        raise requests.RequestRefused(417, "the expectation is not known")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_time):
            if expected and raw.can_read_body:  # such as curl, which asks before it sends
                await raw.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                raw.writer.output_size = 0  # of the answer, nothing is sent yet
            while chunk := await raw.content.readany():
                body += chunk
                if len(body) > limits.body:
                    raise requests.RequestRefused(413, _TOO_LARGE)
    except TimeoutError:
        raise requests.RequestRefused(408, "the body of the request took too long") from None
    except (ConnectionError, RequestPayloadError):
        raise requests.RequestRefused(400, "the body of the request cannot be read") from None
    return bytes(body)


class _Raw(BaseRequest):
    """A request whose answers do not have the name of the server."""

    async def _prepare_hook(self, response: StreamResponse) -> None:
        response.headers.popall("Server", None)


async def _send(stream: requests.Stream, answer: StreamResponse, raw: BaseRequest) -> None:
    """Send the parts until they end, or the client has left, or takes one for too long."""
    connection = cast("_Protocol", raw.protocol).connection
    await answer.prepare(raw)
    try:
        async with asyncio.timeout(None) as stay, aclosing(stream()) as parts:
            connection.on_close = partial(stay.reschedule, 0.0)
            async for part in parts:
                async with asyncio.timeout(connection.limits.take_time):
                    await answer.write(part)
    except (TimeoutError, ConnectionError):
        connection.cut()
    finally:
        connection.on_close = nothing


def answer_of(response: requests.Response, more: Iterable[tuple[str, str]] = ()) -> StreamResponse:
    """Return a response as aiohttp sends it. Raises ValueError where it would split a header."""
    headers: CIMultiDict[str] = CIMultiDict()
    fields = (
        ("Content-Type", response.content_type),
        ("X-Content-Type-Options", "nosniff"),
        *response.headers,
        *more,
        *(("Set-Cookie", _set_cookie(cookie)) for cookie in response.cookies),
    )
    for name, value in fields:
        if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError("an answer contains a header that cannot be sent")
        headers.add(name, value)
    if response.stream is not None:
        return StreamResponse(status=response.status, headers=headers)
    return WireResponse(status=response.status, body=response.body, headers=headers)


def _set_cookie(cookie: requests.Cookie) -> str:
    """Return the header that sets or deletes a cookie. Raises ValueError."""
    if not _COOKIE.fullmatch(pair := f"{cookie.name}={cookie.value}"):
        raise ValueError("an answer contains a cookie that cannot be sent")
    secure = "; Secure" if cookie.secure else ""
    return f"{pair}; Max-Age={cookie.age}; Path=/; HttpOnly; SameSite=Lax{secure}"
