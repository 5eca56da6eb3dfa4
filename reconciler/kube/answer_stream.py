"""Reads an answer in pieces, within limits of size and time: body, watch events, JSON.

Whoever answers chooses how much comes, how it is compressed, and how slowly it comes; and tenants
choose what is in their objects.
"""

import asyncio
import contextvars
import re
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias, TypeVar

import orjson

from reconciler.core.documents import weight
from reconciler.core.errors import Unreachable
from reconciler.core.manifest import JSON, OF_STUBS, Manifest, get, get_int, stub_of
from reconciler.http.stream import Excess, NoAnswer
from reconciler.kube.answers import failure
from reconciler.kube.cluster import WatchEvent
from reconciler.kube.limits import Limits, Look, current_look, size
from reconciler.kube.requests import Request

# Asked for; kube-apiserver knows no other.
ENCODING: Final = "gzip"
_PLAIN: Final = ("", "identity")
_STEP: Final = 2**20  # octets that are unpacked at once
# A network may be silent for long and then go on. Less than this, steadily, is no network.
_SLOWEST: Final = 256  # octets a second
_GRACE: Final = 2.0  # seconds


class Body:
    """The body of an answer. Its parts come in through `take`, and all is returned by `whole`."""

    def __init__(
        self,
        encoding: str,
        *,
        limit: int,
        look: Look | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin. Raises Excess for a compression that was not asked for."""
        self._unpack = None if encoding.lower() in _PLAIN else _unpacker(encoding)
        self._limit, self._look, self._now = limit, look, now
        self._parts: list[bytes] = []
        self._came = self._size = 0
        self._began: float | None = None  # when the first part came

    def take(self, part: bytes) -> None:
        """Add a part of the answer. Raises Excess, and zlib.error where it is not compressed so."""
        self._came += len(part)
        self._judge()
        if self._unpack is None:
            self._add(part)
            return
        while part:
            self._add(self._unpack.decompress(part, _STEP))
            part = self._unpack.unconsumed_tail

    def whole(self) -> bytes:
        """Return all of it. Raises zlib.error where it is cut short."""
        if self._unpack is not None and self._came and not self._unpack.eof:
            raise zlib.error("incomplete")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _judge(self) -> None:
        if self._unpack is not None and self._unpack.eof:
            raise Excess("answered with more than one compressed text")
        if self._came > self._limit:  # much may be packed into nothing
            raise self._too_much()
        now = self._now()
        self._began = now if self._began is None else self._began
        seconds = now - self._began
        if seconds > _GRACE and self._came < seconds * _SLOWEST:
            raise Excess(f"answered with less than {_SLOWEST} bytes a second")

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise self._too_much()
        if self._look is not None:
            self._look.take(len(part))
        self._parts.append(part)

    def _too_much(self) -> Excess:
        return Excess(f"answered more than {size(self._limit)} to one call")


def _unpacker(encoding: str) -> "zlib._Decompress":
    if encoding.lower() != ENCODING:
        raise Excess("answered in a compression that was not asked for")
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
_NO_EVENT: Final = "the watch sent something else than an event"


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
    """Yield the events. Raises Expired (410), Unreachable, and other errors of the server."""
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
    """Return the event on one line, or raise its error, or Excess.

    An object that takes more memory than it may is a stub (`core.manifest.stub_of`).
    """
    try:
        try:
            event, _ = await value_of(line, limits)
        except Excess as excess:
            found = await outline_of(line)
            event = {"type": found.get(("type",)), "object": stub_at(found, "object", excess)}
    except orjson.JSONDecodeError:
        raise Unreachable(_NO_EVENT, ref=request.ref, verb=request.verb) from None
    kind, content = get(event, "type"), get(event, "object")
    if type(kind) is str and kind in _TYPES and type(content) is dict:
        return WatchEvent(kind, content)
    if kind == "ERROR" and isinstance(content, dict) and content.get("kind") == "Status":
        raise failure(request, status=get_int(content, "code") or 500, answer=content)
    raise Unreachable(_NO_EVENT, ref=request.ref, verb=request.verb)


# An API server stores and lists objects that are nested thousands of levels deep, for example below
# a field whose schema preserves unknown fields, or in `metadata.managedFields`. orjson reads 1024
# levels. One such object must not make the list that it is in unreadable, and so hide the objects
# of all other tenants.

# What was cut must never be written back as if it were whole: orjson writes 254 levels, so an
# object of this depth cannot be written at all. Python itself gets less than a thousand deep.
_DEEPEST: Final = 300
# A text without its end goes to the end of all. Brackets come in runs, as there may be millions.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{\[]++|[}\]]++', re.DOTALL)
_QUICK: Final = 256 * 2**10  # octets that take a millisecond or two


T = TypeVar("T")
# Several values that are made at once would take the memory of all of them.
_DECODER: Final = ThreadPoolExecutor(1, "decoder")


async def value_of(text: bytes, limits: Limits) -> tuple[JSON, int]:
    """Return the result of `loads`, and its `weight`, without blocking the loop. Raises Excess."""
    if len(text) <= _QUICK:
        memory = _admit(text, limits)
        try:
            return orjson.loads(text), memory
        except orjson.JSONDecodeError:
            pass  # perhaps it is only too deep, which takes long
        return await _beside(partial(loads, text)), memory
    return await _beside(partial(_admitted, text, limits))


async def _beside(work: Callable[[], T]) -> T:
    context, loop = contextvars.copy_context(), asyncio.get_running_loop()
    return await loop.run_in_executor(_DECODER, context.run, work)


def _admitted(text: bytes, limits: Limits) -> tuple[JSON, int]:
    memory = _admit(text, limits)
    return loads(text), memory


def _admit(text: bytes, limits: Limits) -> int:
    memory = weight(text, most=limits.max_memory)
    if memory > limits.max_memory:
        raise Excess("answered more values than are read at once")
    look = current_look()
    if look is not None:
        look.spend(memory)
    return memory


Outline: TypeAlias = Mapping[tuple[str, ...], str]
_OUTLINED: Final = {
    b'"%s"' % key.encode(): key
    for key in ("type", "object", "items", "kind", "apiVersion", "metadata", "continue", *OF_STUBS)
}
_LONGEST: Final = 1024  # octets, of a name, version or continue token
_LEVELS: Final = 4


async def outline_of(text: bytes) -> Outline:
    """Return the few texts that identify the object of an event or of a list of one.

    They are known by the keys that lead there; the items of a list have none. In contrast to the
    value, that takes hardly more memory than the text. Nothing is known of two objects.
    """
    return await _beside(partial(_outline, text))


def stub_at(found: Outline, key: str, excess: Exception) -> Manifest:
    """Return a stub (`core.manifest.stub_of`) of the object at a key, or raise `excess`."""
    metadata: dict[str, JSON] = {
        part: found[key, "metadata", part] for part in OF_STUBS if (key, "metadata", part) in found
    }
    if "name" not in metadata:
        raise excess
    return stub_of({"metadata": metadata})


def _outline(text: bytes) -> Outline:
    found: dict[tuple[str, ...], str] = {}
    path: list[str | None] = []
    depth = before = 0
    key: str | None = ""
    # Of the empty ones there are as many as fit.
    text = text.replace(b"{}", b"0").replace(b"[]", b"0")
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        first, count = text[start], end - start
        if first in b"{[":
            path += [key, *[""] * min(count - 1, _LEVELS)][: _LEVELS + 1 - depth]
            depth, key = depth + count, ""
        elif first in b"}]":
            depth, key = depth - count, ""
            del path[max(depth, 0) :]
        elif text[before:start].strip() != b":":
            key = _OUTLINED.get(text[start : start + min(count, _LONGEST)])
        elif key and count <= _LONGEST and depth <= _LEVELS and None not in path:
            place = (*filter(None, path), key)
            if place in found:
                return {}
            found[place] = orjson.loads(token[0])
        before = end
    return found


def loads(text: bytes) -> JSON:
    """Return the value; in one that is too deep, all below 300 levels is null.

    Raises orjson.JSONDecodeError, which holds the text.
    """
    try:
        value: JSON = orjson.loads(text)
    except orjson.JSONDecodeError:
        cut = b"".join(_shallow(text))
        if len(cut) == len(text):
            raise
        value = orjson.loads(cut)
    return value


def _shallow(text: bytes) -> Iterator[bytes]:
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        first, count = text[start], end - start
        if first in b"{[":
            if depth <= _DEEPEST < depth + count:
                yield text[begin : start + _DEEPEST - depth]
            depth += count
        elif first in b"}]":
            if depth - count <= _DEEPEST < depth:
                yield b"null"
                begin = start + depth - _DEEPEST
            depth -= count
    if depth <= _DEEPEST:
        yield text[begin:]
