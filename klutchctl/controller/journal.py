"""Observes a watch: logs its changes, and reports whether it works."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from klutchctl.entry import sentence
from klutchctl.render import apply_report
from reconciler.apply import GOOD, Outcome, Report, Status
from reconciler.core.errors import Locked, Problem
from reconciler.fleet.values import Fleet
from reconciler.source.following import SourceState
from reconciler.watch.agenda import Task, concerned
from reconciler.watch.fleet_state import RoundResult
from reconciler.watch.loop import Observer, Signs, ailment, result_of


class News(Observer, ABC):
    """An observer that reports news once.

    `is_first`: no round has come to an end before the present one.
    """

    def __init__(self) -> None:
        self._of_files: str | None = None
        self._of_rounds = ""
        self._trouble: tuple[str, ...] | None = None
        self._fleet: Fleet | None = None
        self.is_first = True

    def unreadable(self, error: Exception) -> None:
        why = sentence(error)
        if why != self._of_files:
            self._of_files = why
            self.cannot_be_used(why)

    def read(
        self, fleet: Fleet, _found: SourceState | None, warnings: Sequence[Problem] | None
    ) -> None:
        """Log the files in use; None instead of warnings means that they did not change."""
        before, self._fleet = self._fleet, fleet
        if warnings is None and self._of_files == "":
            return
        self._of_files = ""
        asked = warnings is None or before is None or concerned(before, fleet) != frozenset()
        self.can_be_used(fleet, warnings or (), same=not asked)

    def ended(self, task: Task, result: RoundResult, seconds: float) -> None:
        report = result.report
        trouble = apply_report.trouble(report)
        done = sum(one.status is Status.DONE for one in report.outcomes)
        if done or trouble != self._trouble:
            self.round_ended(task, report, seconds)
        self._of_rounds, self._trouble, self.is_first = "", trouble, False

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        why = sentence(error)
        # How long a lock has been held is another figure each time.
        about = error.holder if isinstance(error, Locked) else why
        if about != self._of_rounds:
            self._of_rounds = about
            self.round_failed(task, why, seconds)
        self.is_first = False

    @abstractmethod
    def cannot_be_used(self, why: str) -> None:
        """Log that nothing is written until the files are usable."""

    @abstractmethod
    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem], *, same: bool) -> None:
        """Log the files in use, and their warnings.

        `same`: they are others, and ask for just what those before them did.
        """

    @abstractmethod
    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        """Log the result of a round."""

    @abstractmethod
    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        """Log the reason of a round that ended early."""


log = logging.getLogger(__name__)


class Journal(News):
    """An observer that logs."""

    def outcome(self, outcome: Outcome) -> None:
        change = outcome.change
        level = logging.INFO if outcome.status in GOOD else logging.WARNING
        fields = {
            "cluster": change.cluster,
            "object": str(change.ref.object),
            "action": change.action.value,
            "status": outcome.status.value,
        }
        why = {"why": outcome.message} if outcome.message else {}
        log.log(level, "a line of the plan was processed", extra={**fields, **why})

    def cannot_be_used(self, why: str) -> None:
        log.warning("the files are unusable: no cluster is changed", extra={"why": why})

    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem], *, same: bool) -> None:
        del same  # a round that changes nothing is not logged
        fields = {"fleet": fleet.name, "revision": fleet.revision, "units": len(fleet.units)}
        log.info("the files can be used", extra=fields)
        for problem in warnings:
            log.warning("the files have a warning", extra={"why": str(problem)})

    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        trouble = apply_report.trouble(report)
        fields: dict[str, object] = {
            "trigger": task.trigger.value,
            "result": result_of(report),
            "done": sum(one.status is Status.DONE for one in report.outcomes),
            "seconds": round(seconds, 1),
            "plan": report.plan.id,
        }
        if trouble:
            fields["why"] = "; ".join(trouble)
        log.log(logging.WARNING if trouble else logging.INFO, "a round ended", extra=fields)

    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        fields = {"trigger": task.trigger.value, "seconds": round(seconds, 1), "why": why}
        log.warning("a round failed and will be repeated", extra=fields)


class Vitals(Observer):
    """Notes how rounds go. Asked from another thread, so each note is one new value.

    `needs_source`: without files it is not well. A restart does not bring them back. A round may
    wait for a peer for `wait` seconds, more than once: a restart begins that again.
    """

    def __init__(self, interval: float, *, needs_source: bool = True, wait: float = 0.0) -> None:
        self._interval, self._needs_source = max(interval, wait), needs_source
        self._signs = Signs(round_at=time.monotonic())

    def ailment(self) -> str:
        """Return why the watch is not healthy, or ""."""
        if not (self._needs_source or self._signs.readable):
            return ""
        return ailment(self._signs, time.monotonic(), interval=self._interval)

    def unreadable(self, _error: Exception) -> None:
        self._signs = replace(self._signs, readable=False)

    def read(
        self, _fleet: Fleet, _found: SourceState | None, _warnings: Sequence[Problem] | None
    ) -> None:
        # While there were no files there were no rounds to make.
        at = self._signs.round_at if self._signs.readable else time.monotonic()
        self._signs = Signs(round_at=at, readable=True)

    def ended(self, _task: Task, _result: RoundResult, _seconds: float) -> None:
        self._signs = replace(self._signs, round_at=time.monotonic())
