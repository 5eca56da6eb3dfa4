"""The lines of a watch about the files that it follows, and about each of its rounds."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from klutchctl.render.apply_report import summary
from klutchctl.render.terminal import visible, visible_lines
from reconciler.apply import GOOD, Report
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.planning.changes import Action
from reconciler.watch.agenda import Task, Trigger

_SHOWN_DIGITS: Final = 12  # of a commit
_BECAUSE: Final = {
    Trigger.SOURCE: "the files have changed",
    Trigger.RETRY: "another try of what was left undone",
    Trigger.DRIFT: "a look at everything",
}


def fleet_read(fleet: Fleet, warnings: Sequence[Problem], *, same: bool = False) -> str:
    """Return that the files are of use, and what is odd about them.

    `same`: they ask for just what those before them did.
    """
    at = f" @ {fleet.revision[:_SHOWN_DIGITS]}" if fleet.revision else ""
    news = ", as before: nothing to apply" if same else ""
    lines = [f"Fleet {visible(fleet.name)}{at}: {len(fleet.units)} units{news}"]
    return "\n".join([*lines, *(f"Warning: {visible(str(one))}" for one in warnings)])


def fleet_unreadable(sentence: str) -> str:
    """Return that the files are of no use, and what follows from that."""
    return f"{visible_lines(sentence)}\nNothing is changed until the files can be used again."


def round_failed(sentence: str) -> str:
    """Return that a round did not come to its end."""
    return f"{visible_lines(sentence)}\nThis is tried again."


def round_ended(task: Task, result: Report, seconds: float, *, first: bool = False) -> str:
    """Return what a round did, and what it left undone. `first`: of this process."""
    because = "start" if first else _BECAUSE[task.trigger]
    head = f"{because} ({seconds:.1f} s). {summary(result)}"
    return "\n".join([head, *(f"  {one}" for one in trouble(result))])


def trouble(result: Report) -> tuple[str, ...]:
    """Return what is not as the files say after a round, a line each."""
    plan = result.plan
    held = (f"held: {visible(one.guard)}: {visible(one.message)}" for one in plan.held)
    unseen = (f"not read: {visible(one.name)}: {visible(one.reason)}" for one in plan.unseen)
    bad = (one for one in result.outcomes if one.status not in GOOD)
    counted = Counter((one.change.cluster, one.status.value) for one in bad)
    counted.update(
        (one.cluster, one.action.value) for one in plan.changes if one.action is Action.BLOCKED
    )
    undone = (f"{visible(name)}: {n} {status}" for (name, status), n in sorted(counted.items()))
    return (*held, *unseen, *undone)
