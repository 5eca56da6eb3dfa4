"""When a fault happens: at which call, at which of its turns, at which point of it.

Shared by the faults of a wrapped cluster (`faults`) and of a proxy (`http_faults`). It knows
neither Kubernetes nor HTTP.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, TypeVar

C = TypeVar("C")  # what happens: a call, a request
P = TypeVar("P")  # a point in the course of it
E = TypeVar("E")  # what is done there

_EVERY: Final = range(1, sys.maxsize)


class Moment(Enum):
    """BEFORE the real thing is done, or AFTER it was done and before the caller hears of it."""

    BEFORE = "before"
    AFTER = "after"


BEFORE: Final = Moment.BEFORE
AFTER: Final = Moment.AFTER


@dataclass(frozen=True, slots=True)
class Cue(Generic[C]):
    """Which calls, and which of these in turn: all of them, unless `nth` and the like say so."""

    matches: Callable[[C], bool]
    turns: range = _EVERY

    def nth(self, turn: int) -> "Cue[C]":
        """Return the cue for one matching call only. The first is 1."""
        return replace(self, turns=range(turn, turn + 1))

    def first(self, count: int) -> "Cue[C]":
        """Return the cue for the first `count` matching calls."""
        return replace(self, turns=range(1, count + 1))

    def since(self, turn: int) -> "Cue[C]":
        """Return the cue for one matching call and all later ones."""
        return replace(self, turns=range(turn, sys.maxsize))


@dataclass(slots=True)
class Rule(Generic[C, P, E]):
    """On this cue, at this point, these effects, in order; `turn` counts the calls that matched."""

    cue: Cue[C]
    at: P
    effects: tuple[E, ...]
    turn: int = 0

    def is_due(self, call: C) -> bool:
        """Count the call if it matches, and tell whether it is this rule's turn."""
        if not self.cue.matches(call):
            return False
        self.turn += 1
        return self.turn in self.cue.turns


class Rules(Generic[C, P, E]):
    """Rules in the order in which they were added; each counts its own turns from then on."""

    def __init__(self, *, usually: P) -> None:
        self._usually = usually
        self._rules: list[Rule[C, P, E]] = []

    def add(self, cue: Cue[C], *effects: E, at: P | None = None) -> None:
        """Add a rule; without `at` it acts at the usual point."""
        self._rules.append(Rule(cue, self._usually if at is None else at, effects))

    def clear(self) -> None:
        """Forget all rules. Calls under way keep those that they met."""
        self._rules.clear()

    def due(self, call: C) -> list[Rule[C, P, E]]:
        """Count the call, and return the rules whose turn it is."""
        return [rule for rule in self._rules if rule.is_due(call)]


@dataclass(frozen=True, slots=True)
class Delay:
    """An effect: time passes."""

    seconds: float

    async def perform(self, _call: object) -> None:
        await asyncio.sleep(self.seconds)


class Gate:
    """An effect: every call that meets it waits until the test opens it.

    `await gate.reached.wait()` returns once a call waits: the moment to kill its process, to
    write in its stead, or to look at the world.
    """

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let go those who wait and those who come."""
        self._opened.set()

    async def perform(self, _call: object) -> None:
        self.reached.set()
        await self._opened.wait()
