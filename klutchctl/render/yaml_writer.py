"""JSON values as YAML in block style, the same bytes each time, keys in their given order.

Text that YAML could take for anything else, or that does not print, stands in double quotes with
escapes: what a terminal shows is what a parser reads. Any reader of YAML 1.1 or 1.2 gets the
values back.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from reconciler.core.manifest import JSON

# Starts like a word, so it is no number; a colon only where it cannot end a key.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"y", "yes", "true", "on", "n", "no", "false", "off", "null"})
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def lines(value: Mapping[str, JSON]) -> list[str]:
    """Return the lines of one document, without their ends."""
    document: list[str] = []
    _mapping(value, "", document)
    return document or ["{}"]


def _mapping(value: Mapping[str, JSON], indent: str, found: list[str]) -> None:
    # Objects are dicts and arrays lists at run time: looking for these takes half the time.
    for key, item in value.items():
        head = f"{indent}{_text(key)}:"
        if isinstance(item, str):
            found.append(f"{head} {_text(item)}")
        elif isinstance(item, dict) and item:
            found.append(head)
            _mapping(item, f"{indent}  ", found)
        elif isinstance(item, list | tuple) and item:
            found.append(head)
            _items(item, indent, found)
        else:
            found.append(f"{head} {_scalar(item)}")


def _items(items: Sequence[JSON], indent: str, found: list[str]) -> None:
    for item in items:
        start = len(found)
        if isinstance(item, dict) and item:
            _mapping(item, f"{indent}  ", found)
        elif isinstance(item, list | tuple) and item:
            _items(item, f"{indent}  ", found)
        else:
            found.append(f"{indent}  {_scalar(item)}")
        # The dash takes the place of the first line's indentation.
        found[start] = f"{indent}- {found[start][len(indent) + 2 :]}"


def _scalar(value: JSON) -> str:
    """Return what fits on a line, also of an empty array or object."""
    match value:
        case str():
            return _text(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _number(value: float) -> str:
    text = repr(value)
    # YAML 1.1 wants a dot in what has an exponent.
    return text if "." in text else text.replace("e", ".0e")


@lru_cache(maxsize=1 << 16)
def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
