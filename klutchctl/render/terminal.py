"""Text fit for a terminal: nothing in it can act or hide. And what makes it bold or coloured.

A pipeline's log is such a terminal: runners of GitHub, Forgejo and Azure take `##[...]` and
`##vso[...]` anywhere in a line, and `::...` where one begins, as commands.
"""

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

# Control and format characters (escape sequences, line breaks, bidirectional overrides, zero
# width), surrogates, private and unassigned characters, and the two Unicode line separators.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMMAND: Final = re.compile(r"##(?=\w*\[)")
_RESET: Final = "\x1b[0m"


class Style(StrEnum):
    """Escape sequences (ECMA-48, SGR)."""

    BOLD = "\x1b[1m"
    RED = "\x1b[31m"
    GREEN = "\x1b[32m"
    YELLOW = "\x1b[33m"
    MAGENTA = "\x1b[35m"
    CYAN = "\x1b[36m"


def visible(text: str) -> str:
    """Return the text on one line, with what does not print written as an escape."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(
            _escape(character) if unicodedata.category(character) in _UNSAFE else character
            for character in text
        )
    return _COMMAND.sub("## ", text) if "##" in text else text


def visible_lines(text: str) -> str:
    """Return the text with its line breaks, and all else that does not print escaped."""
    return "\n".join(map(line, text.split("\n")))


def line(text: str) -> str:
    """Return a whole line: `visible`, and no command by what it begins with."""
    shown = visible(text)
    return f"./{shown}" if shown.lstrip().startswith("::") else shown


def styled(text: str, style: Style | None, *, color: bool) -> str:
    """Return the text in a style, or as it is: without `color`, and without a style."""
    return f"{style}{text}{_RESET}" if color and style is not None else text


def block(title: str, lines: Iterable[str] = (), *, color: bool) -> list[str]:
    """Return the lines below a bold title."""
    return [styled(title, Style.BOLD, color=color), *lines]


def paragraphs(blocks: Iterable[Iterable[str]]) -> str:
    """Return blocks of lines as text, an empty line between two of them."""
    return "\n\n".join(map("\n".join, blocks)) + "\n"


def plural(count: int, noun: str) -> str:
    """Return `1 cluster`, `2 clusters`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
