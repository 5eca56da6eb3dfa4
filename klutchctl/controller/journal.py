"""Logs what happens in a watch, for a program that nobody sits in front of."""

import logging
from collections.abc import Sequence

from klutchctl.entry import sentence
from klutchctl.render import apply_report
from reconciler.apply import GOOD, Outcome, Report, Status
from reconciler.core.errors import Locked, Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task
from reconciler.watch.loop import result_of

log = logging.getLogger(__name__)


class Journal:
    """An observer that logs what is new; what was logged last is not logged again."""

    def __init__(self) -> None:
        self._of_source, self._of_rounds = "", ""
        self._trouble: tuple[str, ...] | None = None

    def unreadable(self, error: Exception) -> None:
        """Log that nothing is written, and why."""
        why = sentence(error)
        if why != self._of_source:
            self._of_source = why
            log.warning("the files cannot be used; nothing is changed", extra={"why": why})

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Log which files are in use."""
        if warnings is None and not self._of_source:
            return
        self._of_source = ""
        fields = {"fleet": fleet.name, "revision": fleet.revision, "units": len(fleet.units)}
        log.info("the files can be used", extra=fields)
        for problem in warnings or ():
            log.warning("the files are odd", extra={"why": str(problem)})

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

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Log what was done, and what is in the way where that is something else."""
        trouble = apply_report.trouble(report)
        done = sum(one.status is Status.DONE for one in report.outcomes)
        if done or trouble != self._trouble:
            fields: dict[str, object] = {
                "trigger": task.trigger.value,
                "result": result_of(report),
                "done": done,
                "seconds": round(seconds, 1),
                "plan": report.plan.id,
            }
            if trouble:
                fields["why"] = "; ".join(trouble)
            log.log(logging.WARNING if trouble else logging.INFO, "a round", extra=fields)
        self._of_rounds, self._trouble = "", trouble

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Log why a round did not come to its end."""
        why = sentence(error)
        # How long it has been held is another figure each time.
        about = error.holder if isinstance(error, Locked) else why
        if about != self._of_rounds:
            self._of_rounds = about
            fields = {"trigger": task.trigger.value, "seconds": round(seconds, 1), "why": why}
            log.warning("a round failed; it is made again", extra=fields)
