"""Keeps what a watch has said of its files and rounds, so that only news is said."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from klutchctl.entry import sentence
from klutchctl.render import watch_lines
from reconciler.apply import Report, Status
from reconciler.core.errors import Locked, Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task, concerned


class News(ABC):
    """An observer that says what is new; what it said last it does not say again.

    `is_first`: no round has come to an end before the present one.
    """

    def __init__(self) -> None:
        self._of_files: str | None = None
        self._of_rounds = ""
        self._trouble: tuple[str, ...] | None = None
        self._fleet: Fleet | None = None
        self.is_first = True

    def unreadable(self, error: Exception) -> None:
        """Say that the files cannot be used, and why."""
        why = sentence(error)
        if why != self._of_files:
            self._of_files = why
            self.cannot_be_used(why)

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Say which files are in use; no warnings are None where they are as they were."""
        before, self._fleet = self._fleet, fleet
        if warnings is None and self._of_files == "":
            return
        self._of_files = ""
        asked = warnings is None or before is None or concerned(before, fleet) != frozenset()
        self.can_be_used(fleet, warnings or (), same=not asked)

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Say what was done, and what is in the way where that is something else."""
        trouble = watch_lines.trouble(report)
        done = sum(one.status is Status.DONE for one in report.outcomes)
        if done or trouble != self._trouble:
            self.round_ended(task, report, seconds)
        self._of_rounds, self._trouble, self.is_first = "", trouble, False

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Say why a round did not come to its end."""
        why = sentence(error)
        # How long a lock has been held is another figure each time.
        about = error.holder if isinstance(error, Locked) else why
        if about != self._of_rounds:
            self._of_rounds = about
            self.round_failed(task, why, seconds)
        self.is_first = False

    @abstractmethod
    def cannot_be_used(self, why: str) -> None:
        """Say that nothing is written until the files can be used."""

    @abstractmethod
    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem], *, same: bool) -> None:
        """Say which files are in use, and what is odd in them.

        `same`: they are others, and ask for just what those before them did.
        """

    @abstractmethod
    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        """Say what came of a round."""

    @abstractmethod
    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        """Say why a round did not come to its end."""
