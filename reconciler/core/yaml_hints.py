"""Guesses the mistake in text that is not YAML. Pure.

libyaml names the place where it gave up, often a line after the mistake. A hint quotes only keys
that are made of letters: other text may be a credential. A wrong guess is worse than none, so there
are few.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TAB: Final = re.compile(r" *\t")
_KEY: Final = re.compile(r" *(?P<key>[A-Za-z]{1,40}):( |$)")
_WHOLE: Final = re.compile(r"[^#]*: +[^|>#\s]")  # a key with its value in the same line
_TEMPLATE: Final = re.compile(r"\{\{")
_VARIABLE: Final = re.compile(r"\$\{")
_PAIRS: Final = {"{": "}", "[": "]"}
_OF_DOCUMENTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})


def of_syntax(text: str, line: int) -> str:
    """Return a hint for text that cannot be read at `line`, from 1; "" for no guess."""
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    if _TAB.match(here):
        return "It begins with a tab: indent with spaces"
    opened = _unclosed(lines[: line - 1])
    around = [here, *(lines[one.line - 1] for one in opened)]
    if any(map(_TEMPLATE.search, around)):
        return of_template()
    # `${` outside of quotes: its braces are YAML's.
    if any(_VARIABLE.match(line, at) for line in around for at in _bare(line)):
        return "Put a value with ${...} in quotes"
    if opened:
        last = opened[-1]
        place = f"Line {last.line} opens {last.mark} in column {last.column}"
        return f"{place}, and does not close it: add {_PAIRS[last.mark]}"
    return _of_indent(lines[: line - 1], here)


def of_template() -> str:
    """Return the hint for `{{ }}`."""
    return "{{ }} is filled in by other tools: commit what they render, or put the value in quotes"


def of_twice(key: str, column: int, first: int) -> str:
    """Return the hint for a key that is there twice, first in line `first`."""
    if column == 1 and key in _OF_DOCUMENTS:
        return f"It is in line {first} too: a line with --- goes between two documents"
    return f"It is in line {first} too: keep one of them"


@dataclass(frozen=True, slots=True)
class _Bracket:
    line: int  # from 1
    column: int  # from 1
    mark: str


def _unclosed(lines: list[str]) -> list[_Bracket]:
    """Return the brackets that are open at the end of these lines, the outermost first.

    Quotes that go on over several lines are not followed: then it may be none.
    """
    opened: list[_Bracket] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("---"):
            opened.clear()
        for at in _bare(line):
            if line[at] in _PAIRS:
                opened.append(_Bracket(number, at + 1, line[at]))
            elif line[at] in _PAIRS.values() and opened:
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


def _of_indent(above: list[str], here: str) -> str:
    """Return that a line begins in a column of its own, "" where it does not."""
    found = _KEY.match(here)
    named = f"'{found['key']}'" if found else "It"
    indent, column = _indent(here), f"begins in column {_indent(here) + 1}"
    number, before = next(
        ((n, one) for n, one in reversed([*enumerate(above, 1)]) if _says_something(one)), (0, "")
    )
    if found and _indent(before) < indent and _WHOLE.match(before):
        other = f"line {number} in column {_indent(before) + 1}"
        return f"{named} {column}, and {other}: keys of one mapping begin in the same one"
    if here.strip() and _is_off(above, indent):
        return f"{named} {column}, where no line above does: keys of one mapping share theirs"
    return ""


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_off(above: list[str], indent: int) -> bool:
    """Return whether a line with this indent belongs to none of the open mappings above it."""
    smallest: int | None = None
    for line in reversed(above):
        if not _says_something(line):
            continue
        there = _indent(line)
        if there == indent:
            return False
        smallest = there if smallest is None else min(smallest, there)
        if there < indent or line.startswith("---"):
            return smallest < indent and any(_indent(one) > indent for one in above if one.strip())
    return False
