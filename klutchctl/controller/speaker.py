"""Says on standard output and error what happens in a watch."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from klutchctl.controller.news import News
from klutchctl.render import apply_report
from reconciler.apply import Report
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task


class Speaker(News):
    """An observer that speaks to people."""

    def cannot_be_used(self, why: str) -> None:
        """Say so."""
        print(apply_report.fleet_unreadable(why), file=sys.stderr, flush=True)

    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem]) -> None:
        """Say what is of use now."""
        print(apply_report.fleet_read(fleet, warnings), file=sys.stderr, flush=True)

    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        """Say what was done."""
        now = datetime.now(UTC)
        print(apply_report.round_ended(task, report, seconds, now=now), flush=True)

    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        """Say why."""
        print(apply_report.round_failed(why), file=sys.stderr, flush=True)
