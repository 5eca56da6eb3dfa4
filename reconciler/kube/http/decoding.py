"""JSON as API servers send it, whatever tenants put into their objects: judged, then read.

An API server stores and lists objects that are nested thousands of levels deep, for example below
a field whose schema preserves unknown fields, or in `metadata.managedFields`. orjson reads 1024
levels. One such object must not make the list that it is in unreadable, and so hide the
objects of all other tenants.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Final

import orjson

from reconciler.core.manifest import JSON
from reconciler.kube.http.transport_errors import Excess
from reconciler.kube.limits import Limits, current_look

# What was cut must never be written back as if it were whole: orjson writes 254 levels, so an
# object of this depth cannot be written at all. Python itself gets less than a thousand deep.
_DEEPEST: Final = 300
# A text without its end goes to the end of all. Brackets come in runs, as there may be millions.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{\[]++|[}\]]++', re.DOTALL)
# Octets that CPython allots at most, with the text or number that stands there.
_LIST: Final = 96
_EMPTY: Final = 72
_OBJECT: Final = 200
_ITEM: Final = 56
_ENTRY: Final = 40
_WIDE: Final = 3  # more for each octet of a text with an emoji in it
_WIDE_ITEM: Final = 24  # and more for each text that is not ASCII
_QUICK: Final = 256 * 2**10  # octets that take a millisecond or two


async def value_of(text: bytes, limits: Limits) -> JSON:
    """Return what `loads` does, without keeping others waiting. Raises Excess as well."""
    if len(text) <= _QUICK:
        _admit(text, limits)
        try:
            value: JSON = orjson.loads(text)
            return value
        except orjson.JSONDecodeError:
            pass  # perhaps it is only too deep, which takes long
        return await asyncio.to_thread(loads, text)
    return await asyncio.to_thread(_admitted, text, limits)


def _admitted(text: bytes, limits: Limits) -> JSON:
    _admit(text, limits)
    return loads(text)


def _admit(text: bytes, limits: Limits) -> None:
    memory = weight(text, most=limits.max_memory)
    if memory > limits.max_memory:
        raise Excess("answered more values than are read at once")
    look = current_look()
    if look is not None:
        look.hold(memory)


def loads(text: bytes) -> JSON:
    """Return the value; of one that is too deep to be read what is below 300 levels is null.

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


def weight(text: bytes, *, most: int) -> int:
    """Return about how much memory the value takes, at most; or any number above `most`.

    That a cluster may send as a few octets what takes a hundred is judged before it is read.
    Brackets inside of texts count too: that is what makes it quick.
    """
    wide = not text.isascii()
    octets = (1 + _WIDE * wide) * len(text)
    if octets <= most:
        octets += _LIST * text.count(b"[")
    if octets <= most:
        empty = text.count(b"{}")
        octets += _EMPTY * empty + _OBJECT * (text.count(b"{") - empty)
    if octets <= most:
        octets += (_ITEM + _WIDE_ITEM * wide) * text.count(b",") + _ENTRY * text.count(b":")
    return octets


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
