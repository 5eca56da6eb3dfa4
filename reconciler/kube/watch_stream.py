"""The lines of a watch as events. Pure but for reading the given chunks."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import orjson

from reconciler.core.errors import ClusterError, Unreachable
from reconciler.kube.cluster import WatchEvent
from reconciler.kube.failures import failure
from reconciler.kube.no_answer import NoAnswer
from reconciler.kube.requests import Request

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


async def lines_of(chunks: AsyncIterator[bytes], *, limit: int) -> AsyncIterator[bytes]:
    """Split chunks into lines. Raises NoAnswer where the last one is incomplete or too long."""
    rest = bytearray()
    async for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            rest += chunk[start:end]
            yield bytes(rest)
            rest.clear()
            start = end + 1
        rest += chunk[start:]
        if len(rest) > limit:
            raise NoAnswer(f"a watch event is larger than {limit} bytes", sent=True)
    if rest:
        raise NoAnswer("the watch was cut inside an event", sent=True)


async def events_of(
    chunks: AsyncIterator[bytes], request: Request, *, limit: int
) -> AsyncGenerator[WatchEvent]:
    """Yield the events. Raises Expired (410), Unreachable, and what else the server says."""
    problem: NoAnswer
    try:
        async for line in lines_of(chunks, limit=limit):
            if line.strip():
                yield event_of(line, request)
        return
    except NoAnswer as error:
        problem = error
    raise Unreachable(problem.message, ref=request.ref, verb=request.verb) from None


def event_of(line: bytes, request: Request) -> WatchEvent:
    """Return the event on one line, or raise what it reports."""
    try:
        event = orjson.loads(line)
        kind, content = event["type"], event["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise _garbled(request) from None
    if isinstance(kind, str) and kind in _TYPES and isinstance(content, dict):
        return WatchEvent(kind, content)
    if kind == "ERROR" and isinstance(content, dict) and content.get("kind") == "Status":
        code = content.get("code")
        status = code if isinstance(code, int) else 500
        raise failure(request, status=status, body=orjson.dumps(content))
    raise _garbled(request)


def _garbled(request: Request) -> ClusterError:
    return Unreachable(
        "the watch sent something else than an event", ref=request.ref, verb=request.verb
    )
