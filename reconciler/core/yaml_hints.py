"""Says what a person most likely meant where text is not YAML. Pure.

libyaml tells where it gave up, which is often a line after the mistake. No hint quotes the text:
it may hold a credential. A guess that does not fit is worse than none, so there are few.
"""

import re
from collections.abc import Iterator
from typing import Final

_TAB: Final = re.compile(r" *\t")
_TEMPLATE: Final = re.compile(r"\{\{")
_VARIABLE: Final = re.compile(r"\$\{")
_OPEN: Final = "{["
_CLOSE: Final = "}]"
_OF_DOCUMENTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})


def of_syntax(text: str, line: int) -> str:
    """Return what to do about the text that cannot be read at `line`, from 1; "" for no guess."""
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    if _TAB.match(here):
        return "It begins with a tab: indent with spaces"
    opened = _unclosed(lines[: line - 1])
    around = [here, *(lines[one - 1] for one in opened)]
    if any(map(_TEMPLATE.search, around)):
        return of_template()
    if any(map(_is_bare_variable, around)):
        return "Put a value with ${...} in quotes"
    if opened:
        return f"Line {opened[-1]} opens a bracket that is not closed there"
    indent = _indent(here)
    if here.strip() and _is_off(lines[: line - 1], indent):
        return "No line above begins in that column: keys of one mapping begin in the same one"
    return ""


def of_template() -> str:
    """Return what to do about `{{ }}`."""
    return "{{ }} is filled in by other tools: commit what they render, or put the value in quotes"


def of_twice(key: str, column: int, first: int) -> str:
    """Return what to do about a key that is there twice, first in line `first`."""
    if column == 1 and key in _OF_DOCUMENTS:
        return f"It is in line {first} too: a line with --- goes between two documents"
    return f"It is in line {first} too"


def _is_bare_variable(line: str) -> bool:
    """Tell whether `${` stands outside of quotes, where its braces are YAML's."""
    return any(_VARIABLE.match(line, at) is not None for at in _bare(line))


def _unclosed(lines: list[str]) -> list[int]:
    """Return the numbers of lines whose brackets are open at the end of these, the outermost first.

    Quotes that go on over several lines are not followed: then it may be none.
    """
    opened: list[int] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("---"):
            opened.clear()
        for at in _bare(line):
            if line[at] in _OPEN:
                opened.append(number)
            elif line[at] in _CLOSE and opened:
                opened.pop()
    return opened


def _bare(line: str) -> Iterator[int]:
    """Yield the positions of a line that are neither in quotes nor in a comment."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (at == 0 or line[at - 1].isspace()):
            return
        else:
            yield at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_off(above: list[str], indent: int) -> bool:
    """Tell whether a line with this indent belongs to none of the mappings that are open above."""
    smallest: int | None = None
    for line in reversed(above):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        there = _indent(line)
        if there == indent:
            return False
        smallest = there if smallest is None else min(smallest, there)
        if there < indent or line.startswith("---"):
            return smallest < indent and any(_indent(one) > indent for one in above if one.strip())
    return False
