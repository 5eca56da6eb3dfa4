"""Reads a request of HTTP/1.1, and writes the head of its answer.

llhttp parses, and refuses what one reader takes for one request and another for two. It gets the
octets up to the end of one request alone: the next waits, and has a parser of its own.
"""

import asyncio
import re
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, TypeAlias

import httptools

from reconciler.web.connections import PIECE, Connection
from reconciler.web.requests import Cookie, RequestRefused, Response

Fields: TypeAlias = list[tuple[str, str]]

_HEADERS: Final = 100  # of one request
_END: Final = b"\r\n\r\n"  # of each head, and of each body in chunks
_TOO_LONG: Final = "the head of the request is too long"
_TOO_LARGE: Final = "the body of the request is too large"
_UNREADABLE: Final = "the request cannot be read"
_BODIES: Final = (  # header, what it may be, and why else nothing is read
    ("transfer-encoding", "chunked", 501, "the transfer encoding is not supported"),
    ("content-encoding", "identity", 415, "compressed bodies are not supported"),
    ("expect", "100-continue", 417, "the expectation is not known"),
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_COOKIE: Final = re.compile(rf"{_TOKEN.pattern}=[!#-+\--:<-\[\]-~]*")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff]*")


class Incoming:
    """A request as it comes. Of more than it may be, and after a `fault`, nothing is read.

    Chunks may have as much framing as they have content, and as a body may have.
    """

    def __init__(self, connection: Connection, rest: bytes = b"") -> None:
        self.connection, self._limits, self.rest = connection, connection.limits, rest
        self._parser = httptools.HttpRequestParser(self)
        self._url = self._before = b""  # the latter may be the begin of an end
        self._came = self._left = 0  # octets of head and chunks, and those to come of a body
        self._body = bytearray()
        self.method, self.target, self.fields = "GET", "", Fields()
        self.given: dict[str, str] = {}  # the last of each name
        self.has_head = self.is_whole = self.is_kept = False
        self.minor = 0  # of the version that the client is known to speak
        self.fault: RequestRefused | None = None

    async def head(self) -> None:
        """Read up to the body, or a fault. Raises OSError."""
        async with asyncio.timeout(self._limits.head_time):
            while not self.has_head and self.fault is None:
                await self._read()

    async def body(self) -> bytes:
        """Read and return the whole body. Raises RequestRefused, OSError."""
        try:
            async with asyncio.timeout(self._limits.body_time):
                # Such as curl, which asks before it sends.
                if "expect" in self.given and not self.is_whole and self.fault is None:
                    self.connection.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                while not self.is_whole and self.fault is None:
                    await self._read()
        except TimeoutError:
            raise RequestRefused(408, "the body of the request took too long") from None
        if self.fault is not None:
            raise self.fault
        return bytes(self._body)

    async def _read(self) -> None:
        """Read octets of this request. Those behind it are the `rest`."""
        data = self.rest or await self.connection.reader.read(PIECE)
        if not data:
            raise ConnectionResetError
        data, at = self._before + data, len(self._before)
        while at < len(data) and not (self.is_whole or self.fault):
            start = at
            if self._left:
                at = min(at + self._left, len(data))
                self._body += data[start:at]
                self._left -= at - start
                self.is_whole = not self._left
            else:
                found = data.find(_END, max(at - len(_END) + 1, 0))
                at = len(data) if found < 0 else found + len(_END)
                self._parse(data[start:at])
        self._before, self.rest = data[max(at - len(_END) + 1, 0) : at], data[at:]

    def _parse(self, part: bytes) -> None:
        self._came += len(part)
        if not self.has_head and self._came > self._limits.head:
            self._refuse(431, _TOO_LONG)
            return
        try:
            self._parser.feed_data(part)
        except httptools.HttpParserUpgrade:  # which is not done: HTTP/1.1 goes on
            pass
        except httptools.HttpParserError:
            self._refuse(400, _UNREADABLE)
        content, most = len(self._body), self._limits.body
        if content > most or self._came > self._limits.head + most + 2 * content:
            self._refuse(413, _TOO_LARGE)

    def _refuse(self, status: int, sentence: str) -> None:
        self.fault = self.fault or RequestRefused(status, sentence)

    # The callbacks of its parser

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:  # it is a trailer
            return
        text = value.decode("utf-8", "surrogateescape")
        self.fields.append((name.decode("ascii").lower(), text.strip(" \t")))
        if len(name) + len(value) > self._limits.line:
            self._refuse(431, _TOO_LONG)
        if len(self.fields) > _HEADERS:
            self._refuse(400, "the request has too many headers")

    def on_headers_complete(self) -> None:
        """Find where the body ends. What llhttp would let through is refused."""
        version, self.method = self._parser.get_http_version(), self._parser.get_method().decode()
        self.target, self.minor = self._url.decode("ascii", "replace"), int(version == "1.1")
        given = self.given = dict(self.fields)
        self.is_kept = self.minor == 1 and self._parser.should_keep_alive()
        is_chunked = "transfer-encoding" in given
        if len(self._url) > self._limits.line:
            self._refuse(431, _TOO_LONG)
        # A tunnel is none of ours; and llhttp does not read the chunks before one.
        is_tunnel = self.method == "CONNECT" or (is_chunked and self._parser.should_upgrade())
        if is_tunnel or ("host" not in given if self.minor else is_chunked or version != "1.0"):
            self._refuse(400, _UNREADABLE)
        self.has_head = self.fault is None
        for name, only, status, sentence in _BODIES:
            if given.get(name, only).lower() != only:
                self._refuse(status, sentence)
        self._left = int(given.get("content-length", "0"))
        if self._left > self._limits.body:
            self._refuse(413, _TOO_LARGE)

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        self.is_whole = self.has_head and not self._left


def fields_of(response: Response, more: Iterable[tuple[str, str]] = ()) -> Fields:
    """Return the headers of an answer. Raises ValueError where one would be read as two."""
    fields = [
        ("Content-Type", response.content_type),
        ("X-Content-Type-Options", "nosniff"),
        *response.headers,
        *more,
        *(("Set-Cookie", _set_cookie(cookie)) for cookie in response.cookies),
    ]
    if not all(_TOKEN.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in fields):
        raise ValueError("an answer contains a header that cannot be sent")
    return fields


def _set_cookie(cookie: Cookie) -> str:
    """Return the header that sets or deletes a cookie. Raises ValueError."""
    if not _COOKIE.fullmatch(pair := f"{cookie.name}={cookie.value}"):
        raise ValueError("an answer contains a cookie that cannot be sent")
    secure = "; Secure" if cookie.secure else ""
    return f"{pair}; Max-Age={cookie.age}; Path=/; HttpOnly; SameSite=Lax{secure}"


def head_of(minor: int, status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of an answer, with the time. It does not name the server."""
    first = f"HTTP/1.{minor} {status} {HTTPStatus(status).phrase}"
    lines = (f"{name}: {value}" for name, value in fields)
    return "\r\n".join((first, *lines, f"Date: {formatdate(usegmt=True)}", "", "")).encode()
