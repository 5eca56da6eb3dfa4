"""Decides whether this process is the only one that writes to a space. Pure.

A clone of an app cluster has the uids and the kubeconfig of the original, and deletes its data.
So a process marks the ClusterBinding, waits before it deletes, and writes its mark again where it
finds another: only a process that runs can answer. A predecessor that has ended does not: nothing
stops after it. The original's konnector has no mark.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from reconciler.core import conditions
from reconciler.core.conditions import Condition
from reconciler.core.decision import Decision, Note
from reconciler.core.manifest import Manifest

ALONE: Final = 60.0  # seconds without another process's mark before this one continues
HESITATION: Final = timedelta(seconds=5)  # before a new process deletes
_ANSWERS: Final = 2
_REMINDER: Final = 20.0  # seconds between two marks of a process that has stopped


@dataclass(frozen=True, slots=True)
class Standing:
    """The mark of this process, and those that it met. Times are seconds of one clock.

    `wrote` is when its mark was written last, `began` at first; None: not yet. `met` counts the
    marks of others that came after its own, `other` was the last one, at `since`.
    """

    mark: str
    began: float | None = None
    wrote: float = 0.0
    met: int = 0
    other: str = ""
    since: float = 0.0
    answered: bool = False

    @property
    def stopped(self) -> bool:
        """Whether both have answered, so that neither may write."""
        return self.met > _ANSWERS


def follow(before: Standing, found: str, now: float) -> Standing:
    """Take in whose mark the ClusterBinding has."""
    if found not in ("", before.mark):
        if not before.answered:
            return before  # was met already, or is the predecessor's
        return replace(before, met=before.met + 1, other=found, since=now, answered=False)
    if found and not before.answered:
        began = now if before.began is None else before.began
        return replace(before, began=began, wrote=now, answered=True)
    alone = before.met and now - before.since >= ALONE
    return replace(before, met=0, other="") if alone else before


def writes(standing: Standing, found: str, now: float) -> bool:
    """Return whether to write the mark: at once, and as a reminder after both have stopped."""
    reminded = standing.met > _ANSWERS + 1 and now - standing.wrote < _REMINDER
    return found != standing.mark and not reminded


def _changes_in(standing: Standing, now: float) -> timedelta | None:
    if not standing.met:
        return None
    due = standing.since + ALONE if standing.answered else standing.wrote + _REMINDER
    return timedelta(seconds=max(due - now, 0.1))


def deletes_in(standing: Standing, now: float) -> timedelta | None:
    """Return how long deletions wait; None: not at all."""
    if standing.began is None:
        return HESITATION
    left = HESITATION - timedelta(seconds=now - standing.began)
    return left if left > timedelta() else None


def mark_in(cluster_binding: Manifest) -> str:
    """Return the mark in a ClusterBinding: a holder, and the number of its process."""
    condition = conditions.get(cluster_binding, conditions.KONNECTOR_ACTIVE)
    return "" if condition is None else " ".join(condition.message.split()[:2])


def report(standing: Standing, found: str, now: float) -> Decision:
    """Return the condition with the mark, new Events, and the time of the next look."""
    again, why, cause = _changes_in(standing, now), why_stopped(standing), conditions.TWO_KONNECTORS
    if found != standing.mark and not writes(standing, found, now):
        return Decision(again=again)
    if not why:
        active = Condition(cause.type, conditions.TRUE, message=standing.mark)
        return Decision(conditions=(active,), again=again)
    note = Note(cause.reason, why, "Warning", action="Hold")
    return Decision(conditions=(conditions.false(cause, why),), notes=(note,), again=again)


def why_stopped(standing: Standing) -> str:
    """Return why nothing may be written on either side, or ""."""
    if not standing.stopped:
        return ""
    return (
        f"{standing.mark} is one of two konnectors of this space, and {standing.other} the other:"
        " neither writes. Is one of their app clusters a clone? Stop its konnector, and give it a"
        " space of its own; the other continues after a minute"
    )
