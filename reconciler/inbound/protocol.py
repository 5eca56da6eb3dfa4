"""HTTP/1.1 over one connection: aiohttp's, within our limits, with our words."""

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from reconciler.core.errors import origin
from reconciler.inbound.answers import answer_of
from reconciler.inbound.connections import Connection, Phase
from reconciler.inbound.messages import Limits, Response

_log = logging.getLogger(__name__)
_HEADERS: Final = 100  # of one request
TOO_LONG: Final = "the head of the request is too long"


class HttpProtocol(web.RequestHandler):
    """Parses requests, and writes answers.

    aiohttp bounds lines and the time until a head is there; the size of a head that does not end,
    and the time that a client takes to receive an answer, are bounded here.
    """

    def __init__(self, server: web.Server, connection: Connection, limits: Limits) -> None:
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
        self.connection, self._limits = connection, limits
        self._body: StreamReader = EMPTY_PAYLOAD  # of the last request whose head is complete
        self._head = 0  # bytes of the next one

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        self.connection.cut_by(cast("asyncio.Transport", transport).abort)
        self.connection.enter(Phase.HEAD)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self.connection.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came. A head that is too long ends the connection."""
        heads, of_body = self._request_count, not self._body.is_eof()
        super().data_received(data)
        if heads != self._request_count:
            self._body, self._head = self._messages[-1][1], 0
        elif not of_body:
            self._head += len(data)
        if self._head > self._limits.head:
            self._end(431, TOO_LONG)

    def _end(self, status: int, sentence: str) -> None:
        """Close after the answer that is under way, or after this one."""
        if self.connection.phase is Phase.HEAD and self.transport is not None:
            self.transport.write(short_answer(status, sentence))
            self.force_close()
        else:
            self.close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer, and wait for the next request."""
        self.connection.enter(Phase.TAKE)
        sent = await super().finish_response(request, resp, start_time)
        if self.transport is not None:
            self.connection.enter(Phase.HEAD)
        return sent

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what cannot be parsed, without its words."""
        if status >= 500:
            self.log_exception("", exc_info=exc)
        sentence = "the request cannot be read" if status < 500 else "internal error"
        if isinstance(exc, LineTooLong):
            status, sentence = 431, TOO_LONG
        answer = answer_of(Response(status, f"{sentence}\n".encode()))
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a defect by its type and place: its text may hold values."""
        error, fields = kw.get("exc_info"), {}
        if isinstance(error, BaseException):
            fields = {"error": type(error).__name__, "place": origin(error)}
        _log.error("an exchange over HTTP failed", extra=fields)


def short_answer(status: int, sentence: str) -> bytes:
    """Return an answer that is written before, or instead of, what a handler answers."""
    body = f"{sentence}\n"
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8"
        f"\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}"
    ).encode()
