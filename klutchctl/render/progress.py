"""What runs tell people while they go on: an apply each step, a watch each round.

On a terminal an apply also shows, below its steps, a line for each cluster.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from klutchctl.render import plan_rows, report
from klutchctl.render.terminal import visible, visible_lines
from reconciler.apply import Outcome, Report
from reconciler.apply.outcomes import GOOD
from reconciler.core.problems import Problem
from reconciler.fleet.values import Fleet
from reconciler.watch import Task, Trigger

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN: Final = 20  # clusters at once; a terminal has so many lines
_SHOWN_DIGITS: Final = 12  # of a commit
_BECAUSE: Final = {
    Trigger.SOURCE: "the files have changed",
    Trigger.RETRY: "another try of what was left undone",
    Trigger.DRIFT: "a look at everything",
}


class Progress(Protocol):
    """Hears what happens."""

    def stage(self, text: str) -> None:
        """The run as a whole has come to something new."""

    def outcome(self, outcome: Outcome) -> None:
        """A line has been done, or will not be."""


@contextmanager
def progress(stream: TextIO) -> Iterator[Progress]:
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
    head = f"{time} {_BECAUSE[task.trigger]} ({seconds:.1f} s). {report.summary(result)}"
    return "\n".join([head, *(f"  {one}" for one in trouble(result))])


def trouble(result: Report) -> tuple[str, ...]:
    """Return what is not as the files say after a round, a line each."""
    held = (f"held: {visible(one.guard)}: {visible(one.message)}" for one in result.plan.held)
    unseen = (f"not read: {visible(one.name)}: {visible(one.reason)}" for one in result.plan.unseen)
    bad = (one for one in result.outcomes if one.status not in GOOD)
    counted = Counter((one.change.cluster, one.status.value) for one in bad)
    undone = (f"{visible(name)}: {n} {status}" for (name, status), n in sorted(counted.items()))
    return (*held, *unseen, *undone)
