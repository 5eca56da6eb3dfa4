"""JSON as API servers send it, whatever tenants put into their objects. Pure.

An API server stores and lists objects that are nested thousands of levels deep, for example below
a field whose schema preserves unknown fields, or in `metadata.managedFields`. orjson reads 1024
levels. One such object must not make the list that it is in unreadable, and so blind whoever
watches the objects of everybody else.
"""

import re
from collections.abc import Iterator
from typing import Final

import orjson

from reconciler.core.manifest import JSON

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
    for found in _TOKEN.finditer(text):
        start, end = found.span()
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
