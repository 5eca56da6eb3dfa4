"""Logs what happens in a watch, for a program that nobody sits in front of."""

import logging
from collections.abc import Sequence

from klutchctl.controller.news import News
from klutchctl.render import watch_lines
from reconciler.apply import GOOD, Outcome, Report, Status
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task
from reconciler.watch.loop import result_of

log = logging.getLogger(__name__)


class Journal(News):
    """An observer that logs."""

    def outcome(self, outcome: Outcome) -> None:
        """Log what became of a line."""
        change = outcome.change
        level = logging.INFO if outcome.status in GOOD else logging.WARNING
        fields = {
            "cluster": change.cluster,
            "object": str(change.ref.object),
            "action": change.action.value,
            "status": outcome.status.value,
        }
        why = {"why": outcome.message} if outcome.message else {}
        log.log(level, "a line of the plan", extra={**fields, **why})

    def cannot_be_used(self, why: str) -> None:
        """Log that nothing is written, and why."""
        log.warning("the files cannot be used; nothing is changed", extra={"why": why})

    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem], *, same: bool) -> None:
        """Log which files are in use."""
        del same  # a round that changes nothing is not logged
        fields = {"fleet": fleet.name, "revision": fleet.revision, "units": len(fleet.units)}
        log.info("the files can be used", extra=fields)
        for problem in warnings:
            log.warning("the files are odd", extra={"why": str(problem)})

    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        """Log what was done, and what is in the way."""
        trouble = watch_lines.trouble(report)
        fields: dict[str, object] = {
            "trigger": task.trigger.value,
            "result": result_of(report),
            "done": sum(one.status is Status.DONE for one in report.outcomes),
            "seconds": round(seconds, 1),
            "plan": report.plan.id,
        }
        if trouble:
            fields["why"] = "; ".join(trouble)
        log.log(logging.WARNING if trouble else logging.INFO, "a round", extra=fields)

    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        """Log why a round did not come to its end."""
        fields = {"trigger": task.trigger.value, "seconds": round(seconds, 1), "why": why}
        log.warning("a round failed; it is made again", extra=fields)
