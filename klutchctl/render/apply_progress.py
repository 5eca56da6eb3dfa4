"""How far an apply is: a line for each step, and on a terminal below them one for each cluster."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from klutchctl.render import plan_rows
from klutchctl.render.visible import visible
from reconciler.apply import Outcome

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN: Final = 20  # clusters at once; a terminal has so many lines


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
    told = f": {visible(outcome.message)}" if outcome.message else ""
    return (
        f"{visible(outcome.change.cluster)}: {outcome.status.value}: {row.action.value} "
        f"{row.subject} {row.what}{told}"
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
