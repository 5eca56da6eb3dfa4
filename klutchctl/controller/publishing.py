"""Turns what happens in a watch into states of its fleet, and publishes them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.apply import Status
from reconciler.core.errors import InvalidRepository, Locked
from reconciler.fleet.values import Fleet
from reconciler.source.following import SourceState
from reconciler.source.signature import Signature, Unverified
from reconciler.watch import fleet_state
from reconciler.watch.agenda import AGAIN, Task
from reconciler.watch.fleet_state import RoundRecord, RoundResult, SourceProblem
from reconciler.watch.loop import result_of
from reconciler.watch.states import States

if TYPE_CHECKING:
    from reconciler.fleet.files import Snapshot


class Publishing:
    """A recorder that fills `states`. `sentence` is what a person reads of an error."""

    def __init__(
        self, states: States, *, now: Callable[[], datetime], sentence: Callable[[Exception], str]
    ) -> None:
        self._states, self._now, self._sentence = states, now, sentence
        self._signature: Signature | None = None
        self.snapshot: Snapshot | None = None  # of the files in use

    def unreadable(self, error: Exception) -> None:
        """Publish why the files are not used."""
        state = fleet_state.source_failed(
            self._states.now,
            problem_of(error),
            self._sentence(error),
            refused=error.revision if isinstance(error, Unverified) else "",
            now=self._now(),
        )
        self._states.put(state)

    def read(self, fleet: Fleet, found: SourceState | None) -> None:
        """Publish which files are in use."""
        if found is not None:
            self._signature, self.snapshot = found.signature, found.snapshot
        state = fleet_state.source_read(self._states.now, fleet, self._signature, now=self._now())
        self._states.put(replace(state, suspended=fleet.suspended or ""))

    def began(self, task: Task) -> None:
        """Publish that a round goes on."""
        self._states.put(fleet_state.round_began(self._states.now, task))

    def ended(self, task: Task, result: RoundResult, seconds: float) -> None:
        """Publish what a round came to."""
        report = result.report
        done = sum(one.status is Status.DONE for one in report.outcomes)
        failed = sum(one.status in AGAIN for one in report.outcomes)
        record = self._record(task, seconds, result_of(report), done=done, failed=failed)
        self._states.put(fleet_state.round_ended(self._states.now, task, result, record))

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Publish why a round failed."""
        word = "locked" if isinstance(error, Locked) else "failed"
        record = self._record(task, seconds, word, why=self._sentence(error))
        self._states.put(fleet_state.round_failed(self._states.now, record))

    def _record(
        self,
        task: Task,
        seconds: float,
        result: str,
        *,
        done: int = 0,
        failed: int = 0,
        why: str = "",
    ) -> RoundRecord:
        return RoundRecord(
            ended_at=self._now(),
            seconds=seconds,
            trigger=task.trigger,
            revision=self._states.now.source.revision,
            result=result,
            done=done,
            failed=failed,
            why=why,
        )


def problem_of(error: Exception) -> SourceProblem:
    """Return the kind of a failure to read the files."""
    if isinstance(error, Unverified):
        return SourceProblem.UNVERIFIED
    if isinstance(error, InvalidRepository):
        return SourceProblem.INVALID
    return SourceProblem.UNREADABLE
