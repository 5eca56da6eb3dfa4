"""Patterns for paths: `*` and `?` inside one name, `[...]` sets, `**` for any number of folders.

A wildcard does not match a name that begins with a dot, as in a shell: `.git` and `.github` are
never meant. Where a pattern forbids (`dots`), it does: no name may escape it. Matching goes name
by name, so that a folder which no pattern can reach is never opened.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

Pattern: TypeAlias = tuple[str, ...]  # its segments

_WILD: Final = frozenset("*?[")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")


def path_problem(path: str) -> str:
    """Return why `path` cannot name a file of the repository, or ""."""
    if not path:
        return "is empty"
    if _CONTROL.search(path):
        return "holds a control character or a backslash"
    if path.startswith("/") or re.match("[A-Za-z]:", path):
        return "is absolute, and must be relative to the repository"
    segments = path.split("/")
    if ".." in segments:
        return "leaves the repository"
    if "" in segments or "." in segments:
        return "holds an empty name or a `.`"
    return ""


def pattern_problem(text: str) -> str:
    """Return why `text` is not a pattern, or ""."""
    if problem := path_problem(text):
        return problem
    if any("**" in segment and segment != "**" for segment in text.split("/")):
        return "uses ** beside other characters; ** stands alone between slashes"
    return ""


def parse(text: str) -> Pattern:
    """Return the pattern that `text` is. It must have no problem."""
    return tuple(text.split("/"))


@dataclass(frozen=True, slots=True)
class Reach:
    """What patterns have to say about one name.

    `below` are the patterns for what is inside it. `whole`: a pattern ends here. `named`: one
    ends here by more than `**`, so that this was meant to be a file.
    """

    below: frozenset[Pattern]
    whole: bool
    named: bool


def step(patterns: Iterable[Pattern], name: str, *, dots: bool = False) -> Reach:
    """Return how far the patterns reach when `name` is the next name of a path.

    `dots`: wildcards match names that begin with a dot.
    """
    below: set[Pattern] = set()
    whole = named = False
    todo = list(patterns)
    while todo:
        head, *rest = todo.pop()
        if head == "**":
            if rest:
                todo.append(tuple(rest))
            if name.startswith(".") and not dots:
                continue
            below.add((head, *rest))
            whole = whole or not rest
        elif _matches(head, name, dots=dots):
            if rest:
                below.add(tuple(rest))
            else:
                whole = named = True
    return Reach(frozenset(below), whole, named)


def matches(pattern: Pattern, path: str, *, dots: bool = False) -> bool:
    """Tell whether `pattern` names the file at `path`."""
    *folders, name = path.split("/")
    patterns = frozenset({pattern})
    for folder in folders:
        patterns = step(patterns, folder, dots=dots).below
    return step(patterns, name, dots=dots).whole


def _matches(segment: str, name: str, *, dots: bool) -> bool:
    if _WILD.isdisjoint(segment):
        return segment == name
    if name.startswith(".") and not (dots or segment.startswith(".")):
        return False
    return fnmatchcase(name, segment)
