"""From what came in to what goes out: limits of a client, a handler, and refusals in their form."""

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from reconciler.core.errors import origin
from reconciler.inbound import parsing
from reconciler.inbound.addresses import Buckets, Proxies, address_key, address_of
from reconciler.inbound.answers import Answer, StreamedAnswer, answer_of
from reconciler.inbound.connections import Phase
from reconciler.inbound.messages import Limits, RefusalPage, Request, RequestRefused, Response
from reconciler.inbound.protocol import TOO_LONG

if TYPE_CHECKING:
    from reconciler.inbound.protocol import HttpProtocol

_log = logging.getLogger(__name__)
_ID_BYTES: Final = 8
_TOO_LARGE: Final = "the body of the request is too large"
_NOWHERE: Final = ip_address("0.0.0.0")  # of a client that has left already
_SOON: Final = (("Retry-After", "1"),)

_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Answering:
    """Answers requests by a handler."""

    def __init__(
        self,
        handler: _Handler,
        refusal_page: RefusalPage,
        *,
        limits: Limits,
        proxies: Proxies,
        clock: Callable[[], float],
    ) -> None:
        self._handler, self._page = handler, refusal_page
        self._limits, self._proxies, self._clock = limits, proxies, clock
        self._buckets = Buckets(limits.rate, limits.burst)
        self._running: set[asyncio.Task[object]] = set()
        self._stopping = False

    async def answer(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        self._note()
        connection = cast("HttpProtocol", raw.protocol).connection
        request = Request(raw.method, "/", id=os.urandom(_ID_BYTES).hex())
        try:
            if len(self._running) > self._limits.connections:  # of clients that have left, too
                raise RequestRefused(503, "too busy: try again later", headers=_SOON)
            request = self._head(raw, request)
            connection.enter(Phase.BODY)
            request = replace(request, body=await _body_of(raw, self._limits))
            connection.enter(Phase.ANSWER)
            answer = await self._handled(request)
        except RequestRefused as refused:
            answer = self._refused(request, refused)
            if connection.phase is not Phase.ANSWER and refused.status != 429:
                answer.force_close()  # where the next request begins may be in doubt
        if self._stopping:
            answer.force_close()
        if isinstance(answer, StreamedAnswer) and raw.method != "HEAD":
            await answer.send(raw, connection, self._limits.take_time)
        return answer

    async def stop(self, seconds: float) -> None:
        """Let what is under way end, for so long; nothing is kept alive from now on."""
        self._stopping = True
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        left = list(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _note(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _head(self, raw: web.BaseRequest, request: Request) -> Request:
        """Return the request without its body. Raises RequestRefused."""
        fields = parsing.headers(raw.headers.items())
        peer = address_of(raw.remote or "") or _NOWHERE
        client = self._proxies.client(peer, fields.get("x-forwarded-for", ""))
        seconds = self._buckets.take(address_key(client), self._clock())
        if seconds:
            later = (("Retry-After", str(math.ceil(seconds))),)
            raise RequestRefused(429, "too many requests: try again later", headers=later)
        if sum(len(name) + len(value) for name, value in raw.raw_headers) > self._limits.head:
            raise RequestRefused(431, TOO_LONG)
        path, query = parsing.target(raw._message.path)
        return replace(
            request,
            path=path,
            query=query,
            headers=fields,
            cookies=parsing.cookies(fields.get("cookie", "")),
            address=str(client),
            secure=raw.secure,
        )

    async def _handled(self, request: Request) -> Answer | StreamedAnswer:
        """Return what the handler answers, in time. Raises RequestRefused."""
        try:
            async with asyncio.timeout(self._limits.answer_time) as time:
                return answer_of(await self._handler(request))
        except RequestRefused:
            raise
        except Exception as error:
            if time.expired():
                raise RequestRefused(503, f"no answer in time (request {request.id})") from None
            fields = {"request": request.id, "error": type(error).__name__, "place": origin(error)}
            _log.error("a request could not be answered", extra=fields)
            raise RequestRefused(500, f"internal error (request {request.id})") from None

    def _refused(self, request: Request, refused: RequestRefused) -> Answer | StreamedAnswer:
        page = self._page(request, refused.status, refused.sentence)
        return answer_of(page, refused.headers)


async def _body_of(raw: web.BaseRequest, limits: Limits) -> bytes:
    """Return the whole body. Raises RequestRefused where it is too large, too slow, or packed."""
    _check(raw, limits)
    try:
        async with asyncio.timeout(limits.body_time):
            await _invite(raw)
            return await _read(raw, limits.body)
    except TimeoutError:
        raise RequestRefused(408, "the body of the request took too long") from None
    except (ConnectionError, RequestPayloadError):
        raise RequestRefused(400, "the body of the request cannot be read") from None


def _check(raw: web.BaseRequest, limits: Limits) -> None:
    if raw.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
        raise RequestRefused(501, "the transfer encoding is not supported")
    if raw.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise RequestRefused(415, "compressed bodies are not supported")
    if (raw.content_length or 0) > limits.body:
        raise RequestRefused(413, _TOO_LARGE)


async def _invite(raw: web.BaseRequest) -> None:
    """Let a client go on that asks before it sends a body, such as curl."""
    if not (expected := raw.headers.get("Expect")):
        return
    if expected.strip().lower() != "100-continue":
        raise RequestRefused(417, "the expectation is not known")
    if raw.can_read_body:
        await raw.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        raw.writer.output_size = 0  # of the answer, nothing is sent yet


async def _read(raw: web.BaseRequest, most: int) -> bytes:
    body = bytearray()
    while chunk := await raw.content.readany():
        body += chunk
        if len(body) > most:
            raise RequestRefused(413, _TOO_LARGE)
    return bytes(body)
