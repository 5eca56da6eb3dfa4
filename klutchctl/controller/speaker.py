"""Says on standard output and error what happens in a watch."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from klutchctl.controller.news import News
from klutchctl.render import apply_report, watch_lines
from reconciler.apply import Report
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task


class Speaker(News):
    """An observer that speaks to people, with the time in each line."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__()
        self._now = now

    def cannot_be_used(self, why: str) -> None:
        """Say so."""
        self._say(watch_lines.fleet_unreadable(why), sys.stderr)

    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem], *, same: bool) -> None:
        """Say what is of use now."""
        self._say(watch_lines.fleet_read(fleet, warnings, same=same), sys.stderr)

    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        """Say what was done."""
        said = watch_lines.round_ended(task, report, seconds, first=self.is_first)
        self._say(said, sys.stdout)

    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        """Say why."""
        self._say(watch_lines.round_failed(why), sys.stderr)

    def _say(self, text: str, stream: TextIO) -> None:
        print(apply_report.stamped(text, self._now()), file=stream, flush=True)
