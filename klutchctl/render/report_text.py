"""What an apply did, for people: what failed, what waits, and one line of sums at the end."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from klutchctl.render import plan_rows
from klutchctl.render.visible import visible
from reconciler.apply import Outcome, Report, Status
from reconciler.apply.outcomes import GOOD
from reconciler.planning.changes import Action

_WIDTH: Final = max(map(len, Status))
# As they came, and by the plan: what a guard holds stands there too.
_TOLD_BEFORE: Final = GOOD | {Status.HELD}
_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_COLORS: Final[Mapping[Status, str]] = {
    Status.DONE: "\x1b[32m",
    Status.STALE: "\x1b[31m",
    Status.HELD: "\x1b[33m",
    Status.FAILED: "\x1b[31m",
    Status.SKIPPED: "\x1b[33m",
    Status.UNCONFIRMED: "\x1b[33m",
    Status.INTERRUPTED: "\x1b[33m",
}


def render(report: Report, *, whole: bool = True, color: bool = False) -> str:
    """Return the report as text that ends in a newline.

    Not `whole`: without the lines that were done, and those that a guard holds, which it tells.
    """
    outcomes = [one for one in report.outcomes if whole or one.status not in _TOLD_BEFORE]
    blocks = [
        [_bold(f"Cluster {visible(name)}", color=color), *_lines(list(found), color=color)]
        for name, found in groupby(outcomes, key=lambda one: one.change.cluster)
    ]
    plan = report.plan
    blocked = [plan_rows.row(one) for one in plan.changes if one.action is Action.BLOCKED]
    for title, lines in (
        ("Held back", [visible(one.message) for one in plan.held]),
        ("Blocked", [f"{row.subject}   {row.what}   {row.origin}" for row in blocked]),
        ("Not read", [f"{visible(o.name)}: {visible(o.reason)}" for o in plan.unseen]),
    ):
        if lines:
            blocks.append([_bold(title, color=color), *(f"  {line}" for line in lines)])
    if report.not_ready:
        late = [f"  {visible(one.unit)}: {visible(one.reason)}" for one in report.not_ready]
        blocks.append([_bold("Not Ready", color=color), *late])
    blocks.append([_bold(summary(report), color=color)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def summary(report: Report) -> str:
    """Return the last sentence: what was done, and what was not."""
    counted = Counter(one.status for one in report.outcomes)
    parts = [f"{counted[status]} {status.value}" for status in Status if counted[status]]
    if report.ready or report.not_ready:
        parts.append(f"{report.ready} of {report.ready + len(report.not_ready)} units Ready")
    ended = f" The run was stopped: {visible(report.ended)}." if report.ended else ""
    return f"Applied: {', '.join(parts) or 'nothing to do'}.{ended}"


def _lines(outcomes: Sequence[Outcome], *, color: bool) -> Iterator[str]:
    for outcome in outcomes:
        row = plan_rows.row(outcome.change)
        word = f"{outcome.status.value:<{_WIDTH}}"
        if color and outcome.status in _COLORS:
            word = f"{_COLORS[outcome.status]}{word}{_RESET}"
        yield f"  {word}  {row.action.value:<7}  {row.subject}   {row.what}"
        if outcome.message:
            yield f"  {'':<{_WIDTH}}  {visible(outcome.message)}"


def _bold(text: str, *, color: bool) -> str:
    return f"{_BOLD}{text}{_RESET}" if color else text
