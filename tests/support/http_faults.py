"""What may go wrong with HTTP requests to an API server, as rules for a `FaultProxy`.

proxy.add(on("PATCH", r"/configmaps/x$").nth(1), answer(429, retry_after=1))
proxy.add(on("POST"), Cut("rst"), at=AFTER)
proxy.add(on(query="watch=true"), Cut("fin"), at=Body(lines=2, octets=10))
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import h11
import orjson

from tests.support.cues import Cue, Moment
from tests.support.listener import How, hang_up

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, without its headers and body: they may hold secrets."""

    method: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class Body:
    """The point in an answer's body after so many lines, and so many octets of the next.

    `octets` alone counts from the start of the body. The body is what the server sent: ask for
    no compression where lines matter.
    """

    lines: int = 0
    octets: int = 0

    def within(self, data: bytes) -> "tuple[int, Body | None]":
        """Return where the point is in the next piece of a body, or what is left after that."""
        *_, last = pieces = data.split(b"\n", self.lines)
        lines = self.lines - (len(pieces) - 1)
        if lines:
            return len(data), Body(lines, self.octets)
        if len(last) < self.octets:
            return len(data), Body(0, self.octets - len(last))
        return len(data) - len(last) + self.octets, None


Point: TypeAlias = Moment | Body


def on(method: str = "", path: str = "", *, query: str = "") -> Cue[Request]:
    """Return the cue for these requests; `path` and `query` are regular expressions.

    "" means any. `path` and `query` are searched for.
    """
    asked = re.compile(path), re.compile(query)

    def matches(call: Request) -> bool:
        found = all(map(re.Pattern.search, asked, (call.path, call.query)))
        return method in ("", call.method) and found

    return Cue(matches)


class Reply:
    """What the client is told in one exchange. `status` is None until the answer's head."""

    def __init__(
        self,
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
        *,
        reported: Callable[[int], None],
    ) -> None:
        self._connection, self._writer, self._reported = connection, writer, reported
        self.status: int | None = None

    async def send(self, *events: h11.Event) -> None:
        for event in events:
            if isinstance(event, h11.Response):
                self.status = event.status_code
                self._reported(event.status_code)
            self._writer.write(self._connection.send(event) or b"")
        await self._writer.drain()

    async def send_raw(self, octets: bytes) -> None:
        self._writer.write(octets)
        await self._writer.drain()

    def cut(self, how: How) -> None:
        hang_up(self._writer, how)


class Effect(Protocol):
    """True says that the exchange is over; otherwise it takes its course."""

    async def perform(self, reply: Reply, /) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the server's stead: BEFORE, it hears nothing; AFTER, its own answer is lost."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)

    async def perform(self, reply: Reply, /) -> bool:
        head = h11.Response(
            status_code=self.status,
            headers=[*self.headers, ("Content-Length", str(len(self.body)))],
        )
        await reply.send(head, h11.Data(data=self.body), h11.EndOfMessage())
        return True


@dataclass(frozen=True, slots=True)
class Cut:
    """End the connection. BEFORE, the server hears nothing; AFTER, it did what was asked.

    Within the body, a Content-Length proves too long, or a chunked body has no end.
    """

    how: How = "rst"

    async def perform(self, reply: Reply, /) -> bool:
        reply.cut(self.how)
        return True


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send bytes that are not HTTP, and end the connection."""

    octets: bytes = b"\x00\xff\x15\x03 not HTTP\r\n\r\n"

    async def perform(self, reply: Reply, /) -> bool:
        await reply.send_raw(self.octets)
        reply.cut("fin")
        return True


@dataclass(frozen=True, slots=True)
class Inject:
    """Put a line into a stream; with `end`, it is the last one and the stream ends properly."""

    line: bytes
    end: bool = False

    async def perform(self, reply: Reply, /) -> bool:
        await reply.send(h11.Data(data=self.line + b"\n"))
        if self.end:
            await reply.send(h11.EndOfMessage())
        return self.end


def answer(
    status: int,
    body: str | None = None,
    *,
    content_type: str = "application/json",
    retry_after: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Return an answer with this body, or with the Status object that goes with `status`."""
    extra = {"Content-Type": content_type, **(headers or {})}
    if retry_after is not None:
        extra["Retry-After"] = str(retry_after)
    content = orjson.dumps(status_object(status)) if body is None else body.encode()
    return Answer(status, tuple(extra.items()), content)


def redirect(location: str) -> Answer:
    """Return a 302 to another place."""
    return answer(302, "", content_type="text/plain", headers={"Location": location})


def gone() -> Inject:
    """Return the event with which a watch tells that its resourceVersion is too old."""
    return Inject(orjson.dumps({"type": "ERROR", "object": status_object(410)}), end=True)


def status_object(code: int) -> dict[str, object]:
    """Return a failure as API servers describe it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"a fault on cue: {_REASONS.get(code, 'unknown')}",
        "reason": _REASONS.get(code, ""),
        "code": code,
    }
