"""Text from files and clusters, made fit for a terminal: nothing in it can act or hide."""

import unicodedata
from typing import Final

# Control and format characters (escape sequences, line breaks, bidirectional overrides, zero
# width), surrogates, private and unassigned characters, and the two Unicode line separators.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """Return the text on one line, with what does not print written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(character) if unicodedata.category(character) in _UNSAFE else character
        for character in text
    )


def visible_lines(text: str) -> str:
    """Return the text with its line breaks, and all else that does not print escaped."""
    return "\n".join(map(visible, text.split("\n")))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
