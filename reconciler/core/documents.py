"""Parses untrusted documents and texts within limits.

Of a key that stands twice the last value counts, as for nearly every reader of JSON. Refuses to
know what a document is about.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any, Final

import orjson

from reconciler.core.manifest import JSON, Manifest

TOO_LARGE: Final = "(larger than is read)"
MAX_DEPTH: Final = 64  # objects and arrays in each other, as in files
_STYLES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # of terminals (ECMA-48, CSI)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # some write one; RFC 8259 8.1 lets readers ignore it
# Octets that CPython allots at most, with the text or number that stands there.
_LIST: Final = 96
_EMPTY: Final = 72
_OBJECT: Final = 200
_ITEM: Final = 56
_ENTRY: Final = 40
_WIDE: Final = 3  # more for each octet of a text with an emoji in it
_WIDE_ITEM: Final = 24  # and more for each text that is not ASCII
_HEAVIEST: Final = 1 + _WIDE + _OBJECT  # for one octet
_PLAIN: Final = bytes(set(range(256)) - set(b"[{},:"))
_STEP: Final = 2**20  # octets that are weighed at once
_NESTED: Final = frozenset({dict, list})


def object_of(text: bytes, *, most_memory: int) -> Manifest | None:
    """Return the object of a document; None for anything else, too wide or too deep ones too."""
    if weight(text, most=most_memory) > most_memory:
        return None
    try:
        value = orjson.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and is_within(value, MAX_DEPTH) else None


def weight(text: bytes, *, most: int) -> int:
    """Return about how much memory the value takes, at most; or any number above `most`.

    That a sender may send as a few octets what takes a hundred is judged before it is read.
    Brackets inside of texts count too: that is what makes it quick.
    """
    wide = not text.isascii()
    octets = (1 + _WIDE * wide) * len(text)
    for at in range(0, len(text), _STEP):
        if octets > most:
            break
        marks = text[at : at + _STEP].translate(None, _PLAIN)
        empty = marks.count(b"{}")  # in all other objects there is a colon
        octets += _LIST * marks.count(b"[") + _ENTRY * marks.count(b":")
        octets += _EMPTY * empty + _OBJECT * (marks.count(b"{") - empty)
        octets += (_ITEM + _WIDE_ITEM * wide) * marks.count(b",")
    return octets


def cut(value: Manifest, *, most: int) -> Manifest:
    """Return an object with `TOO_LARGE` in the place of each part that may take more memory.

    Parts are the values in `metadata`, `spec`, `status` and the like.
    """
    return {
        key: {part: TOO_LARGE if takes(inner) > most else inner for part, inner in content.items()}
        if isinstance(content, dict)
        else content
        if takes(content) <= most
        else TOO_LARGE
        for key, content in value.items()
    }


def takes(value: JSON, *, limit: int = 0) -> int:
    """Return about how much memory a value takes, at most; where it is below the limit, roughly."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # too deep to be written
        return sys.maxsize
    most = _HEAVIEST * len(text)
    return most if most <= limit else weight(text, most=sys.maxsize)


def is_within(value: Manifest, depth: int) -> bool:
    """Return whether an object is nested no deeper than `depth`; nearly all are.

    Goes level by level, because a call for each value was a quarter of the time of all reading.
    """
    level: list[Any] = [value]
    for _ in range(depth - 1):
        # Empty ones hold nothing that is deeper, and most of managedFields is empty.
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if inner and type(inner) in _NESTED
        ]
        if not level:
            return True
    values = (outer.values() if isinstance(outer, dict) else outer for outer in level)
    return not any(type(inner) in _NESTED for inners in values for inner in inners)


def one_line(text: str) -> str:
    """Return a text on one line, without characters that steer a terminal or reverse the line."""
    plain = _STYLES.sub(" ", text)
    return " ".join("".join(one if one.isprintable() else " " for one in plain).split())


def first_of(texts: Iterable[str], most: int = 3, *, comma: str = ", ") -> str:
    """Return the first texts in a sentence, and how many there are more."""
    every = list(texts)
    more = f"{comma.strip(', ')} and {len(every) - most} more" if len(every) > most else ""
    return comma.join(every[:most]) + more
