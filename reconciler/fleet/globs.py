"""Patterns for paths: `*` and `?` inside one name, `[...]` sets, `**` for any number of folders.

A wildcard does not match a name that begins with a dot, as in a shell: `.git` and `.github` are
never meant. Where a pattern forbids (`dots`), it does: no name may escape it. Matching goes name
by name, so that a folder which no pattern can reach is never opened.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final, TypeAlias

Match: TypeAlias = Callable[[str], re.Match[str] | None]

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


@dataclass(eq=False, slots=True)
class _Node:
    """A place in patterns that begin alike: what may come next, and which patterns end here.

    `deep` is what `**` leads to: a place that stays (`stays`) below any folder.
    """

    stays: bool = False
    ends: set[int] = field(default_factory=set)
    named: dict[str, "_Node"] = field(default_factory=dict)
    wild: dict[str, tuple[Match, "_Node"]] = field(default_factory=dict)
    deep: "_Node | None" = None

    def next(self, segment: str) -> "_Node":
        """Return the place behind a segment, which is made where there is none."""
        if segment == "**":
            self.deep = self.deep or _Node(stays=True)
            return self.deep
        if _WILD.isdisjoint(segment):
            return self.named.setdefault(segment, _Node())
        if segment not in self.wild:
            self.wild[segment] = re.compile(translate(segment)).match, _Node()
        return self.wild[segment][1]

    def after(self, name: str, *, dots: bool) -> Iterator["_Node"]:
        """Yield the places behind a name, other than this one."""
        if name in self.named:
            yield self.named[name]
        hidden = name.startswith(".") and not dots
        for segment, (match, node) in self.wild.items():
            if match(name) and not (hidden and not segment.startswith(".")):
                yield node

    def with_deep(self) -> Iterator["_Node"]:
        """Yield this place, and those that no folder at all leads to."""
        node: _Node | None = self
        while node is not None:
            yield node
            node = node.deep


@dataclass(frozen=True, slots=True)
class Reach:
    """The verdict of patterns on one name.

    `below` is how far they are for what is inside it, empty where none of them is about that.
    `hits` are the numbers of the patterns that end here. `named`: one ends here by more than
    `**`, so that this was meant to be a file.
    """

    below: frozenset[_Node]
    hits: frozenset[int]
    named: bool


class Patterns:
    """Several patterns, compiled into one: a path is held against all of them in one pass."""

    def __init__(self, texts: Iterable[str], *, dots: bool = False) -> None:
        """Compile patterns that have no problem. `dots`: wildcards match names such as `.a`."""
        self.texts = tuple(texts)
        self._dots = dots
        root = _Node()
        for number, text in enumerate(self.texts):
            node = root
            for segment in text.split("/"):
                node = node.next(segment)
            node.ends.add(number)
        self.start: Final = frozenset(root.with_deep())
        self._folders: dict[str, frozenset[_Node]] = {"": self.start}

    def step(self, reached: frozenset[_Node], name: str) -> Reach:
        """Return how far the patterns are when `name` is the next name of a path."""
        below: set[_Node] = set()
        hits: set[int] = set()
        named = False
        for node in reached:
            if node.stays and (self._dots or not name.startswith(".")):
                below.update(node.with_deep())
                hits |= node.ends
            for other in node.after(name, dots=self._dots):
                below.update(other.with_deep())
                hits |= other.ends
                named = named or bool(other.ends)
        return Reach(frozenset(filter(_goes_on, below)), frozenset(hits), named)

    def hits(self, path: str) -> frozenset[int]:
        """Return the numbers of the patterns that name the file at `path`."""
        folder, _, name = path.rpartition("/")
        return self.step(self._reached(folder), name).hits

    def matches(self, path: str) -> bool:
        """Tell whether any of the patterns names the file at `path`."""
        return bool(self.hits(path))

    def _reached(self, folder: str) -> frozenset[_Node]:
        """Return how far the patterns are inside a folder; asked once for each."""
        if folder not in self._folders:
            above, _, name = folder.rpartition("/")
            self._folders[folder] = self.step(self._reached(above), name).below
        return self._folders[folder]


def _goes_on(node: _Node) -> bool:
    return node.stays or bool(node.named or node.wild)
