"""What an apply did, as text, JUnit XML and JSON; and what it tells while it goes on.

An apply tells each step, a watch each round. On a terminal an apply also shows, below its steps, a
line for each cluster. Of the document, a new minor version adds fields, a major breaks.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TextIO
from xml.etree import ElementTree

from klutchctl.render import plan_rows, terminal
from klutchctl.render.terminal import Style, visible, visible_lines
from reconciler.apply import GOOD, Outcome, Report, Status
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.planning.changes import Action, Change
from reconciler.watch.agenda import Task, Trigger

if TYPE_CHECKING:
    from rich.console import Console

FORMAT: Final = "klutchctl.dev/report"
VERSION: Final = "1.0"

_WIDTH: Final = max(map(len, Status))
# Printed when they came, and by the plan: what a guard holds stands there too.
_SHOWN_BEFORE: Final = GOOD | {Status.HELD}
_SKIPPED: Final = frozenset({Status.HELD, Status.SKIPPED, Status.INTERRUPTED})
_STYLES: Final[Mapping[Status, Style]] = {
    Status.DONE: Style.GREEN,
    Status.STALE: Style.RED,
    Status.HELD: Style.YELLOW,
    Status.FAILED: Style.RED,
    Status.SKIPPED: Style.YELLOW,
    Status.UNCONFIRMED: Style.YELLOW,
    Status.INTERRUPTED: Style.YELLOW,
}
_SHOWN: Final = 20  # clusters at once; a terminal has so many lines
_SHOWN_DIGITS: Final = 12  # of a commit
_BECAUSE: Final = {
    Trigger.SOURCE: "the files have changed",
    Trigger.RETRY: "another try of what was left undone",
    Trigger.DRIFT: "a look at everything",
}


def text(report: Report, *, whole: bool = True, color: bool = False) -> str:
    """Return what failed, what waits, and one line of sums, as text that ends in a newline.

    Not `whole`: without the lines that were done, and those that a guard holds, which it tells.
    """
    outcomes = [one for one in report.outcomes if whole or one.status not in _SHOWN_BEFORE]
    plan = report.plan
    blocked = [plan_rows.row(one) for one in plan.changes if one.action is Action.BLOCKED]
    remarks = (
        ("Held back", [visible(one.message) for one in plan.held]),
        ("Blocked", [f"{row.subject}   {row.what}   {row.origin}" for row in blocked]),
        ("Not read", [f"{visible(o.name)}: {visible(o.reason)}" for o in plan.unseen]),
        ("Not Ready", [f"{visible(o.unit)}: {visible(o.reason)}" for o in report.not_ready]),
    )
    return terminal.paragraphs(
        [
            *(
                terminal.block(f"Cluster {visible(name)}", _lines(some, color=color), color=color)
                for name, some in groupby(outcomes, key=lambda one: one.change.cluster)
            ),
            *(
                terminal.block(title, [f"  {line}" for line in lines], color=color)
                for title, lines in remarks
                if lines
            ),
            terminal.block(summary(report), color=color),
        ]
    )


def summary(report: Report) -> str:
    """Return the last sentence: what was done, and what was not."""
    counted = Counter(one.status for one in report.outcomes)
    parts = [f"{counted[status]} {status.value}" for status in Status if counted[status]]
    if report.ready or report.not_ready:
        parts.append(f"{report.ready} of {report.ready + len(report.not_ready)} units Ready")
    ended = f" The run was stopped: {visible(report.ended)}." if report.ended else ""
    return f"Applied: {', '.join(parts) or 'nothing to do'}.{ended}"


def _lines(outcomes: Iterator[Outcome], *, color: bool) -> Iterator[str]:
    for outcome in outcomes:
        row = plan_rows.row(outcome.change)
        word = f"{outcome.status.value:<{_WIDTH}}"
        shown = terminal.styled(word, _STYLES.get(outcome.status), color=color)
        yield f"  {shown}  {row.action.value:<7}  {row.subject}   {row.what}"
        if outcome.message:
            yield f"  {'':<{_WIDTH}}  {visible(outcome.message)}"


def as_json(report: Report) -> str:
    """Return the report as one JSON object and a newline."""
    plan = report.plan
    document = {
        "format": FORMAT,
        "version": VERSION,
        "fleet": plan.fleet,
        "plan": plan.id,
        "revision": plan.revision,
        "outcomes": [_outcome(one) for one in report.outcomes],
        "notReady": [{"unit": one.unit, "reason": one.reason} for one in report.not_ready],
        "ready": report.ready,
        "ended": report.ended,
        "held": [{"guard": one.guard, "message": one.message} for one in plan.held],
        "blocked": [
            {**_subject(one), "reason": one.reason}
            for one in plan.changes
            if one.action is Action.BLOCKED
        ],
        "unseen": [{"name": one.name, "reason": one.reason} for one in plan.unseen],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _subject(change: Change) -> dict[str, Any]:
    return {
        "cluster": change.cluster,
        "subject": change.subject,
        "unit": None if change.unit is None else change.unit.name,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    change = outcome.change
    return {
        **_subject(change),
        "action": change.action.value,
        "kind": change.ref.kind.kind,
        "namespace": change.ref.namespace,
        "name": change.ref.name,
        "status": outcome.status.value,
        "message": outcome.message,
    }


def junit(report: Report) -> str:
    """Return a JUnit suite for each app cluster, with a case for each line.

    What was held, skipped or cut short is `skipped`, the rest `failure`.
    """
    root = ElementTree.Element("testsuites", name=f"klutchctl apply {visible(report.plan.fleet)}")
    for name, some in groupby(report.outcomes, key=lambda one: one.change.cluster):
        outcomes = list(some)
        suite = _suite(root, name, outcomes)
        suite.set("failures", str(sum(map(_failed, outcomes))))
        suite.set("skipped", str(sum(one.status in _SKIPPED for one in outcomes)))
        for outcome in outcomes:
            _case(suite, outcome)
    if report.not_ready:
        suite = _suite(root, "Ready", report.not_ready)
        suite.set("failures", str(len(report.not_ready)))
        for unit in report.not_ready:
            case = ElementTree.SubElement(
                suite, "testcase", classname="Ready", name=visible(unit.unit)
            )
            ElementTree.SubElement(case, "failure", message=visible(unit.reason))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, cases: Sequence[object]) -> ElementTree.Element:
    return ElementTree.SubElement(root, "testsuite", name=visible(name), tests=str(len(cases)))


def _case(suite: ElementTree.Element, outcome: Outcome) -> None:
    change = outcome.change
    row = plan_rows.row(change)
    name = f"{row.action.value} {row.subject}: {row.what}"
    case = ElementTree.SubElement(suite, "testcase", classname=visible(change.cluster), name=name)
    if outcome.status in _SKIPPED:
        reason = outcome.message or outcome.status.value
        ElementTree.SubElement(case, "skipped", message=visible(reason))
    elif _failed(outcome):
        reason = f"{outcome.status.value}: {outcome.message}"
        ElementTree.SubElement(case, "failure", message=visible(reason))


def _failed(outcome: Outcome) -> bool:
    return outcome.status not in GOOD and outcome.status not in _SKIPPED


class Lines:
    """A line for each outcome, for logs. That nobody reads them any more stops nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def stage(self, text: str) -> None:
        """Print it."""
        self._print(f"{text} ...")

    def outcome(self, outcome: Outcome) -> None:
        """Print it."""
        self._print(_line(outcome))

    def _print(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            print(line, file=self._stream, flush=True)
        except OSError:
            self._stream = None


def _line(outcome: Outcome) -> str:
    row = plan_rows.row(outcome.change)
    message = f": {visible(outcome.message)}" if outcome.message else ""
    return (
        f"{visible(outcome.change.cluster)}: {outcome.status.value}: {row.action.value} "
        f"{row.subject} {row.what}{message}"
    )


class _Board:
    """The clusters that something happened in last, one line each, below what was done."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._stage = ""
        self._counts: dict[str, Counter[str]] = {}

    def stage(self, text: str) -> None:
        """Show it."""
        self._stage = text

    def outcome(self, outcome: Outcome) -> None:
        """Print it above the clusters, and count it."""
        self._console.print(_line(outcome), markup=False, highlight=False, soft_wrap=True)
        name = outcome.change.cluster
        # The cluster goes to the end: the ones that moved last are shown.
        counts = self._counts.pop(name, Counter())
        counts[outcome.status.value] += 1
        self._counts[name] = counts

    def text(self) -> str:
        """Return what is shown now."""
        lines = [f"{self._stage} ..."]
        for name in list(self._counts)[-_SHOWN:]:
            counts = ", ".join(f"{n} {word}" for word, n in sorted(self._counts[name].items()))
            lines.append(f"  {visible(name)}: {counts}")
        return "\n".join(lines)


@contextmanager
def progress(stream: TextIO) -> Iterator[Lines | _Board]:
    """Show progress on a stream for as long as the block lasts."""
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    board = _Board(console)
    with Live(get_renderable=board.text, console=console, refresh_per_second=8, transient=True):
        yield board


def fleet_read(fleet: Fleet, warnings: Sequence[Problem]) -> str:
    """Return that the files are of use, and what is odd about them."""
    at = f" @ {fleet.revision[:_SHOWN_DIGITS]}" if fleet.revision else ""
    lines = [f"Fleet {visible(fleet.name)}{at}: {len(fleet.units)} units"]
    return "\n".join([*lines, *(f"Warning: {visible(str(one))}" for one in warnings)])


def fleet_unreadable(sentence: str) -> str:
    """Return that the files are of no use, and what follows from that."""
    return f"{visible_lines(sentence)}\nNothing is changed until the files can be used again."


def round_failed(sentence: str) -> str:
    """Return that a round did not come to its end."""
    return f"{visible_lines(sentence)}\nThis is tried again."


def round_ended(task: Task, result: Report, seconds: float, *, now: datetime) -> str:
    """Return what a round did, and what it left undone."""
    time = now.isoformat(timespec="seconds")
    head = f"{time} {_BECAUSE[task.trigger]} ({seconds:.1f} s). {summary(result)}"
    return "\n".join([head, *(f"  {one}" for one in trouble(result))])


def trouble(result: Report) -> tuple[str, ...]:
    """Return what is not as the files say after a round, a line each."""
    held = (f"held: {visible(one.guard)}: {visible(one.message)}" for one in result.plan.held)
    unseen = (f"not read: {visible(one.name)}: {visible(one.reason)}" for one in result.plan.unseen)
    bad = (one for one in result.outcomes if one.status not in GOOD)
    counted = Counter((one.change.cluster, one.status.value) for one in bad)
    undone = (f"{visible(name)}: {n} {status}" for (name, status), n in sorted(counted.items()))
    return (*held, *unseen, *undone)
