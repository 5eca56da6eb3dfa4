"""Text from files and clusters, made fit for a terminal: nothing in it can act or hide.

A pipeline's log is such a terminal: runners of GitHub, Forgejo and Azure take `##[...]` and
`##vso[...]` anywhere in a line, and `::...` where one begins, as commands.
"""

import re
import unicodedata
from typing import Final

# Control and format characters (escape sequences, line breaks, bidirectional overrides, zero
# width), surrogates, private and unassigned characters, and the two Unicode line separators.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMMAND: Final = re.compile(r"##(?=\w*\[)")


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


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
