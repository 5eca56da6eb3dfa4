"""Applies an approved plan: each write has its precondition, each line its outcome.

Here are the settings of an apply, and its outcome: values only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from reconciler.observe import Pace
from reconciler.planning.changes import Change, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of an apply. `wait_seconds` bounds each wait for a peer, and for Ready.

    `wait`: end only when all units are Ready, or late. `force`: release without the proof that the
    sync has stopped, and write addresses that no konnector has tried. `holder` names this run in
    the lock. `now` is the time in UTC. `ancestors` are those of the commit, as far as they are
    known: a commit is refused that a later applied one follows. None: it is not, as the branch
    that a controller follows may be set back.
    """

    holder: str
    now: Callable[[], datetime]
    pace: Pace
    wait: bool = False
    wait_seconds: float = 120.0
    force: bool = False
    break_lock: bool = False
    ancestors: Sequence[str] | None = None


class Status(StrEnum):
    """The end of one line; the values are the words that people read."""

    DONE = "done"
    UNCHANGED = "unchanged"  # it was so already when its turn came
    STALE = "stale"  # the object is not what the plan saw: nothing was written
    HELD = "held"  # by a guard
    FAILED = "failed"
    SKIPPED = "skipped"  # what it builds upon was not done
    UNCONFIRMED = "unconfirmed"  # as far as it could be done; something did not happen in time
    INTERRUPTED = "interrupted"  # the run was ended before its turn, or within it


GOOD = frozenset({Status.DONE, Status.UNCHANGED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """A line of the plan and its result. `message` is a sentence, or ""."""

    change: Change
    status: Status
    message: str = ""

    @classmethod
    def held(cls, change: Change) -> "Outcome":
        """Return the outcome of a line that guards hold back."""
        return cls(change, Status.HELD, f"held back: {', '.join(change.held)}")


@dataclass(frozen=True, slots=True)
class NotReady:
    """A unit that was not Ready in time, and why."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of a run, in the order of the plan.

    `ended` is why the run stopped before its end, "" where it did not: a signal, or the lock
    that was lost. `ready` counts the units that were waited for and became Ready.
    """

    plan: Plan
    outcomes: tuple[Outcome, ...]
    not_ready: tuple[NotReady, ...] = ()
    ready: int = 0
    ended: str = ""
    lock_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Callbacks for each outcome and stage, at once."""

    outcome: Callable[[Outcome], None]
    stage: Callable[[str], None]
