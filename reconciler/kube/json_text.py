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
# A text without its end goes to the end of all.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{\[]|[}\]]', re.DOTALL)


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


def _shallow(text: bytes) -> Iterator[bytes]:
    depth = begin = 0
    for found in _TOKEN.finditer(text):
        first = found[0][:1]
        if first in b"{[":
            if depth == _DEEPEST:
                yield text[begin : found.start()]
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == _DEEPEST:
                yield b"null"
                begin = found.end()
    if depth <= _DEEPEST:
        yield text[begin:]
