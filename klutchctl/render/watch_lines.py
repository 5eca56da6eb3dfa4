"""What a watch tells people: each thing once, when it begins and when it ends."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from klutchctl.render.report_text import summary
from klutchctl.render.visible import visible, visible_lines
from reconciler.apply import Report
from reconciler.apply.outcomes import GOOD
from reconciler.core.problems import Problem
from reconciler.fleet.values import Fleet
from reconciler.watch import Task, Trigger

_BECAUSE = {
    Trigger.SOURCE: "the files have changed",
    Trigger.RETRY: "another try of what was left undone",
    Trigger.DRIFT: "a look at everything",
}
_SHOWN_DIGITS = 12  # of a commit


def source(fleet: Fleet, warnings: Sequence[Problem]) -> str:
    """Return that the files are of use, and what is odd about them."""
    at = f" @ {fleet.revision[:_SHOWN_DIGITS]}" if fleet.revision else ""
    lines = [f"Fleet {visible(fleet.name)}{at}: {len(fleet.units)} units"]
    return "\n".join([*lines, *(f"Warning: {visible(str(one))}" for one in warnings)])


def unreadable(sentence: str) -> str:
    """Return that the files are of no use, and what follows from that."""
    return f"{visible_lines(sentence)}\nNothing is changed until the files can be used again."


def failed(sentence: str) -> str:
    """Return that a round did not come to its end."""
    return f"{visible_lines(sentence)}\nThis is tried again."


def ended(task: Task, report: Report, seconds: float, *, now: datetime) -> str:
    """Return what a round did, and what it left undone."""
    time = now.isoformat(timespec="seconds")
    head = f"{time} {_BECAUSE[task.trigger]} ({seconds:.1f} s). {summary(report)}"
    return "\n".join([head, *(f"  {one}" for one in trouble(report))])


def trouble(report: Report) -> tuple[str, ...]:
    """Return what is not as the files say after a round, a line each."""
    held = (f"held: {visible(one.guard)}: {visible(one.message)}" for one in report.plan.held)
    unseen = (f"not read: {visible(one.name)}: {visible(one.reason)}" for one in report.plan.unseen)
    bad = (one for one in report.outcomes if one.status not in GOOD)
    counted = Counter((one.change.cluster, one.status.value) for one in bad)
    undone = (f"{visible(name)}: {n} {status}" for (name, status), n in sorted(counted.items()))
    return (*held, *unseen, *undone)
