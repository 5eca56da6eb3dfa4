"""Renders the report of an apply as text, JUnit XML and JSON, and its progress.

On a terminal an apply also shows, below its steps, a line for each cluster. Of the document, a new
minor version adds fields, a major breaks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TextIO
from xml.etree import ElementTree

from klutchctl.render import plan_rows, terminal
from klutchctl.render.terminal import Style, visible, visible_lines
from reconciler.apply import GOOD, Outcome, Report, Status
from reconciler.core.documents import first_of
from reconciler.core.errors import Problem
from reconciler.core.times import format_time
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
_OF_A_CAUSE: Final = 3  # lines
_SHOWN: Final = 20  # clusters, or lines of a sort, at once; a terminal has so many


def text(report: Report, *, whole: bool = True, color: bool = False) -> str:
    """Return failures, waiting lines, and one line of sums, as text that ends in a newline.

    `whole`: every line by cluster, also those that went well. Else what was not done stands by its
    cause, so that one cause in many clusters is said once; what a guard holds back is told by it.
    """
    plan = report.plan
    blocked = [one for one in plan.changes if one.action is Action.BLOCKED]
    undone = [one for one in report.outcomes if one.status not in _SHOWN_BEFORE]

    def shown(lines: list[str]) -> list[str]:
        more = 0 if whole else len(lines) - _SHOWN
        return [*lines[:_SHOWN], f"and {more} more: -v lists all"] if more > 0 else lines

    remarks: tuple[tuple[str, list[str]], ...] = (
        ("Not done", [] if whole else list(_by_cause(undone, color=color))),
        ("Held back", [sentence for _, sentence in plan_rows.tripped(plan)]),
        ("Blocked", _blocked(blocked)),
        ("Not read", list(map(": ".join, plan_rows.unread(plan.unseen, plan.sections)))),
        ("Not Ready", [f"{visible(o.unit)}: {visible(o.reason)}" for o in report.not_ready]),
    )
    return terminal.paragraphs(
        [
            *(_by_cluster(report.outcomes, color=color) if whole else ()),
            *(
                terminal.block(title, [f"  {line}" for line in shown(lines)], color=color)
                for title, lines in remarks
                if lines
            ),
            terminal.block(summary(report), color=color),
        ]
    )


def summary(report: Report) -> str:
    """Return the last sentence: the lines that were done, were not, and could not be."""
    counted = Counter(one.status for one in report.outcomes)
    parts = [f"{counted[status]} {status.value}" for status in Status if counted[status]]
    if report.ready or report.not_ready:
        parts.append(f"{report.ready} of {report.ready + len(report.not_ready)} units Ready")
    actions = Counter(one.action for one in report.plan.changes)
    unseen = report.plan.unseen
    left = [f"{actions[Action.BLOCKED]} blocked"] if actions[Action.BLOCKED] else []
    left += [f"{terminal.plural(len(unseen), 'cluster')} not read"] if unseen else []
    done = "; ".join(filter(None, [", ".join(parts) or "nothing to do", ", ".join(left)]))
    ended = f" The run was stopped: {visible(report.ended)}." if report.ended else ""
    return f"Applied: {done}.{ended}"


def _by_cluster(outcomes: Sequence[Outcome], *, color: bool) -> Iterator[list[str]]:
    """Yield a block for each cluster, columns lined up over all of them."""
    rows = [plan_rows.row(one.change) for one in outcomes]
    wide = max((len(row.subject) for row in rows), default=0)
    lines = zip(outcomes, rows, strict=True)
    for name, some in groupby(lines, key=lambda line: line[0].change.cluster):
        shown: list[str] = []
        for one, row in some:
            shown.append(f"  {_word(one.status, color=color)}  {_columns(row, wide)}")
            shown += [f"  {'':<{_WIDTH}}  {visible(one.message)}"] if one.message else []
        yield terminal.block(f"Cluster {visible(name)}", shown, color=color)


def _by_cause(outcomes: Sequence[Outcome], *, color: bool) -> Iterator[str]:
    """Yield each cause of undone lines, and below it the first of them."""
    causes: dict[tuple[Status, str], list[Change]] = {}
    for one in outcomes:
        causes.setdefault((one.status, one.message), []).append(one.change)
    listed = {cause: changes[:_OF_A_CAUSE] for cause, changes in causes.items()}
    shown = [change for changes in listed.values() for change in changes]
    clusters = max((len(visible(one.cluster)) for one in shown), default=0)
    subjects = max((len(visible(one.subject)) for one in shown), default=0)
    for (status, message), changes in causes.items():
        yield f"{_word(status, color=color)}  {visible(message)}".rstrip()
        for change in listed[status, message]:
            row = plan_rows.row(change)
            cluster = f"{visible(change.cluster):<{clusters}}"
            yield f"{'':<{_WIDTH}}  {cluster}   {_columns(row, subjects)}"
        if more := changes[_OF_A_CAUSE:]:
            places = terminal.plural(len({one.cluster for one in more}), "cluster")
            count = terminal.plural(len(more), "line")
            yield f"{'':<{_WIDTH}}  and {count} more in {places}: -v lists all"


def _blocked(changes: Sequence[Change]) -> list[str]:
    """Return a line for each blocked unit, columns lined up; clusters where it is alike share."""
    clusters: dict[tuple[str, str, str], list[str]] = {}
    for one in changes:
        row = plan_rows.row(one)
        clusters.setdefault((row.subject, row.text, row.origin), []).append(visible(one.cluster))
    wide = max((len(subject) for subject, _, _ in clusters), default=0)
    return [
        f"{subject:<{wide}}   {text}   in {first_of(names)}" + (f"   {place}" if place else "")
        for (subject, text, place), names in clusters.items()
    ]


def _word(status: Status, *, color: bool) -> str:
    return terminal.styled(f"{status.value:<{_WIDTH}}", _STYLES.get(status), color=color)


def _columns(row: plan_rows.Row, wide: int) -> str:
    return f"{row.action.value:<7}  {row.subject:<{wide}}   {row.text}"


def as_json(report: Report) -> str:
    plan = report.plan
    content = {
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
    return terminal.document(FORMAT, VERSION, content)


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
    name = f"{row.action.value} {row.subject}: {row.text}"
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
    """A line for each outcome, for logs.

    `now`: puts the time before each line, for a log that goes on for ever.
    """

    def __init__(self, stream: TextIO, now: Callable[[], datetime] | None = None) -> None:
        self._stream = stream
        self._now = now

    def stage(self, text: str) -> None:
        self._print(f"{visible(text)} ...")

    def outcome(self, outcome: Outcome) -> None:
        self._print(_line(outcome))

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, line: str) -> None:
        shown = line if self._now is None else stamped(line, self._now())
        print(shown, file=self._stream, flush=True)


def _line(outcome: Outcome) -> str:
    row = plan_rows.row(outcome.change)
    message = f": {visible(outcome.message)}" if outcome.message else ""
    return (
        f"{visible(outcome.change.cluster)}: {outcome.status.value}: {row.action.value} "
        f"{row.subject} {row.text}{message}"
    )


class _Board:
    """The clusters of the last outcomes, one line each, below all outcomes."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._stage = ""
        self._counts: dict[str, Counter[str]] = {}

    def stage(self, text: str) -> None:
        self._stage = text

    def outcome(self, outcome: Outcome) -> None:
        """Print it above the clusters, and count it."""
        self._console.print(_line(outcome), markup=False, highlight=False, soft_wrap=True)
        name = outcome.change.cluster
        # The cluster goes to the end: the ones that moved last are shown.
        counts = self._counts.pop(name, Counter())
        counts[outcome.status.value] += 1
        self._counts[name] = counts

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def text(self) -> str:
        lines = [f"{visible(self._stage)} ..."]
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
    from rich.text import Text

    console = Console(file=getattr(stream, "plain", stream))
    board = _Board(console)
    # A plain string would be read as markup, and names and messages of others are in it.
    with Live(
        get_renderable=lambda: Text(board.text()),
        console=console,
        refresh_per_second=8,
        transient=True,
    ):
        yield board


def stamped(text: str, now: datetime) -> str:
    """Return the text with the time before each of its lines."""
    return "\n".join(f"{format_time(now)} {line}" for line in text.split("\n"))


def ends(why: str, sent: int, *, fetches: bool = False) -> str:
    """Return that a run ends, and the work that it waits for.

    `sent`: writes without an answer so far. `fetches`: its files come from a server.
    """
    writes = f"{terminal.plural(sent, 'write')} on the way" if sent else "no write"
    verb = "are" if sent > 1 else "is"
    fetch = "; a fetch is, if one has begun" if fetches else ""
    return f"{visible(why)}: no new write starts, and {writes} {verb} waited for{fetch}"


_SHOWN_DIGITS: Final = 12  # of a commit
_BECAUSE: Final = {
    Trigger.SOURCE: "the files have changed",
    Trigger.RETRY: "another try of the open changes",
    Trigger.DRIFT: "a look at everything",
}


def fleet_read(fleet: Fleet, warnings: Sequence[Problem], *, same: bool = False) -> str:
    """Return that the files are of use, with their warnings.

    `same`: they ask for just what those before them did.
    """
    at = f" @ {visible(fleet.revision[:_SHOWN_DIGITS])}" if fleet.revision else ""
    news = ", as before: nothing to apply" if same else ""
    lines = [f"Fleet {visible(fleet.name)}{at}: {len(fleet.units)} units{news}"]
    return "\n".join([*lines, *(f"Warning: {visible(str(one))}" for one in warnings)])


def round_failed(sentence: str, then: str = "This is tried again.") -> str:
    """Return that a round did not come to its end, or could not begin, and the effect of that."""
    return f"{visible_lines(sentence)}\n{then}"


def round_ended(task: Task, result: Report, seconds: float, *, first: bool = False) -> str:
    """Return the lines that a round did, and those that it did not. `first`: of this process."""
    because = "start" if first else _BECAUSE[task.trigger]
    head = f"{because} ({seconds:.1f} s). {summary(result)}"
    return "\n".join([head, *(f"  {one}" for one in trouble(result))])


def trouble(result: Report) -> tuple[str, ...]:
    """Return the differences from the files after a round, a line each."""
    plan = result.plan
    tripped = (f"held: {visible(one.guard)}: {visible(one.message)}" for one in plan.held)
    unseen = (f"not read: {visible(one.name)}: {visible(one.reason)}" for one in plan.unseen)
    bad = (one for one in result.outcomes if one.status not in GOOD)
    counted = Counter((one.change.cluster, one.status.value) for one in bad)
    counted.update(
        (one.cluster, one.action.value) for one in plan.changes if one.action is Action.BLOCKED
    )
    undone = (f"{visible(name)}: {n} {status}" for (name, status), n in sorted(counted.items()))
    return (*tripped, *unseen, *undone)
