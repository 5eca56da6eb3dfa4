"""Cuts texts of others to what a FleetStatus has room for."""

import json
from typing import Final

from reconciler.core.documents import one_line

_HTML: Final = frozenset("<>&")  # the API server stores each as six characters
_ESCAPED: Final = 6
_ELLIPSIS: Final = "..."


def cut(text: str, most: int) -> str:
    """Return a text on one line, at most `most` bytes of JSON however that is escaped.

    What cannot be printed becomes a blank: it may be half a character, or turn the line around.
    """
    clean = one_line(text[:most])
    if len(text) <= most and _size(clean) <= most:
        return clean
    room, kept = most - len(_ELLIPSIS), 0
    for one in clean:
        room -= _size(one)
        if room < 0:
            break
        kept += 1
    return f"{clean[:kept].rstrip()}{_ELLIPSIS}"


def _size(text: str) -> int:
    return len(json.dumps(text)) - 2 + (_ESCAPED - 1) * sum(one in _HTML for one in text)
