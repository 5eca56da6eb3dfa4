"""Answers on the wire."""

import asyncio
import re
from collections.abc import Iterable
from contextlib import aclosing
from functools import partial
from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from reconciler.inbound.connections import Connection
from reconciler.inbound.messages import Cookie, Response, Stream

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_COOKIE_VALUE: Final = re.compile(r"[!#-+\--:<-\[\]-~]*")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")


class Answer(web.Response):
    """An answer without the name of the server, which helps attackers alone."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)


class StreamedAnswer(web.StreamResponse):
    """An answer whose body goes on, likewise without the name of the server."""

    def __init__(self, status: int, headers: CIMultiDict[str], stream: Stream) -> None:
        super().__init__(status=status, headers=headers)
        self._stream = stream

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)

    async def send(self, raw: web.BaseRequest, connection: Connection, take_time: float) -> None:
        """Send the parts until they end, or the client has left, or takes one for too long."""
        await self.prepare(raw)
        try:
            async with asyncio.timeout(None) as stay, aclosing(self._stream()) as parts:
                connection.on_close(partial(stay.reschedule, 0.0))
                async for part in parts:
                    async with asyncio.timeout(take_time):
                        await self.write(part)
        except (TimeoutError, ConnectionError):
            connection.cut()
        finally:
            connection.on_close(None)


def answer_of(response: Response, more: Iterable[tuple[str, str]] = ()) -> Answer | StreamedAnswer:
    """Return a response as aiohttp sends it. Raises ValueError for what would split a header."""
    headers: CIMultiDict[str] = CIMultiDict()
    fields = (
        ("Content-Type", response.content_type),
        ("X-Content-Type-Options", "nosniff"),
        *response.headers,
        *more,
        *(("Set-Cookie", set_cookie(cookie)) for cookie in response.cookies),
    )
    for name, value in fields:
        if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError("an answer holds a header that cannot be sent")
        headers.add(name, value)
    if response.stream is not None:
        return StreamedAnswer(response.status, headers, response.stream)
    return Answer(status=response.status, body=response.body, headers=headers)


def set_cookie(cookie: Cookie) -> str:
    """Return the header that sets or deletes a cookie. Raises ValueError."""
    if not _TOKEN.fullmatch(cookie.name) or not _COOKIE_VALUE.fullmatch(cookie.value):
        raise ValueError("an answer holds a cookie that cannot be sent")
    bounds = "Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if cookie.secure else "")
    return f"{cookie.name}={cookie.value}; Max-Age={cookie.age}; {bounds}"
