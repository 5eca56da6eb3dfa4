"""Says on standard output and error what happens in a watch."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from klutchctl.entry import sentence
from klutchctl.render import apply_report
from reconciler.apply import Report, Status
from reconciler.core.errors import Locked, Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task


class Speaker:
    """Tells people what is new; what was said last is not said again."""

    def __init__(self) -> None:
        self._of_source, self._of_rounds = "", ""
        self._trouble: tuple[str, ...] | None = None

    def unreadable(self, error: Exception) -> None:
        """Say so."""
        said = apply_report.fleet_unreadable(sentence(error))
        if said != self._of_source:
            self._of_source = said
            print(said, file=sys.stderr, flush=True)

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Say what is of use now."""
        if warnings is None and self._of_source.startswith("Fleet "):
            return
        self._of_source = apply_report.fleet_read(fleet, warnings or ())
        print(self._of_source, file=sys.stderr, flush=True)

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Say what was done, and what is in the way where that is something else."""
        trouble = apply_report.trouble(report)
        news = any(one.status is Status.DONE for one in report.outcomes)
        if news or trouble != self._trouble:
            now = datetime.now(UTC)
            print(apply_report.round_ended(task, report, seconds, now=now), flush=True)
        self._of_rounds, self._trouble = "", trouble

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Say why."""
        said = sentence(error)
        # How long it has been held is another figure each time.
        about = error.holder if isinstance(error, Locked) else said
        if about != self._of_rounds:
            self._of_rounds = about
            print(apply_report.round_failed(said), file=sys.stderr, flush=True)
