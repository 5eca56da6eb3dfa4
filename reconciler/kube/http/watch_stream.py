"""The lines of a watch as events."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import orjson

from reconciler.core.errors import ClusterError, Unreachable
from reconciler.core.manifest import get, get_int
from reconciler.kube.cluster import WatchEvent
from reconciler.kube.http.decoding import value_of
from reconciler.kube.http.failures import failure
from reconciler.kube.http.transport_errors import Excess, NoAnswer
from reconciler.kube.limits import Limits, size
from reconciler.kube.requests import Request

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Lines:
    """Puts lines together from chunks as they come."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0

    def take(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes. Raises NoAnswer where one is too long."""
        lines = chunk.split(b"\n")
        last = lines.pop()
        if lines and self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest.clear()
            self._size = 0
        if last:
            self._rest.append(last)
            self._size += len(last)
            if self._size > self._limit:
                raise Excess(f"sent a watch event of more than {size(self._limit)}")
        return lines

    def end(self) -> None:
        """Raise NoAnswer where the last line is incomplete."""
        if self._rest:
            raise NoAnswer("the watch was cut inside an event", sent=True)


async def events_of(
    chunks: AsyncIterator[bytes], request: Request, limits: Limits
) -> AsyncGenerator[WatchEvent]:
    """Yield the events. Raises Expired (410), Unreachable, and what else the server says."""
    problem: NoAnswer
    lines = Lines(limit=limits.max_body)
    try:
        async for chunk in chunks:
            for line in lines.take(chunk):
                if line and not line.isspace():
                    yield await event_of(line, request, limits)
        lines.end()
        return
    except NoAnswer as error:
        problem = error
    raise Unreachable(problem.message, ref=request.ref, verb=request.verb) from None


async def event_of(line: bytes, request: Request, limits: Limits) -> WatchEvent:
    """Return the event on one line, or raise what it reports, or Excess."""
    try:
        event = await value_of(line, limits)
    except orjson.JSONDecodeError:
        raise _garbled(request) from None
    kind, content = get(event, "type"), get(event, "object")
    if type(kind) is str and kind in _TYPES and type(content) is dict:
        return WatchEvent(kind, content)
    if kind == "ERROR" and isinstance(content, dict) and content.get("kind") == "Status":
        raise failure(request, status=get_int(content, "code") or 500, answer=content)
    raise _garbled(request)


def _garbled(request: Request) -> ClusterError:
    return Unreachable(
        "the watch sent something else than an event", ref=request.ref, verb=request.verb
    )
