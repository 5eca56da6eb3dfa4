"""Keeps the parsed and resolved parts of a repository from one load to the next.

Pure: a part is taken from the cache only where all that it was made of is equal, so that a pass
with a cache gives what one without it gives. A watch keeps one: a commit that changes one file of
thousands then costs little more than that file.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from reconciler.core.problems import Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Part:
    made_of: tuple[object, ...]
    value: Any
    problems: tuple[Problem, ...]


class LoadCache:
    """The parts of the last pass. Values are shared by passes, and must not be changed."""

    def __init__(self) -> None:
        self._before: dict[Hashable, _Part] = {}
        self._now: dict[Hashable, _Part] = {}

    def begin(self) -> None:
        """Begin a pass; what the last one did not use is forgotten."""
        self._before, self._now = self._now, {}

    def recall(
        self,
        key: Hashable,
        made_of: tuple[object, ...],
        make: Callable[[list[Problem]], T],
        *,
        problems: list[Problem],
    ) -> T:
        """Return what `make` makes, and add the problems that it finds.

        `key` names the part; `made_of` is all that `make` looks at.
        """
        part = self._before.get(key)
        if part is None or part.made_of != made_of:
            found: list[Problem] = []
            value = make(found)
            part = _Part(made_of, value, tuple(found))
        self._now[key] = part
        problems.extend(part.problems)
        made: T = part.value
        return made
