"""Knows whether a watch does its work, for a probe."""

import time
from collections.abc import Sequence
from dataclasses import replace

from reconciler.apply import Report
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task
from reconciler.watch.loop import Signs, ailment


class Vitals:
    """Notes how rounds go. Asked from another thread, so each note is one new value.

    `needs_source`: without files it is not well. A restart does not bring them back. A round may
    wait for a peer for `wait` seconds, more than once: a restart begins that anew.
    """

    def __init__(self, interval: float, *, needs_source: bool = True, wait: float = 0.0) -> None:
        self._interval, self._needs_source = max(interval, wait), needs_source
        self._signs = Signs(round_at=time.monotonic())

    def ailment(self) -> str:
        """Return why the watch is not healthy, or ""."""
        if not (self._needs_source or self._signs.readable):
            return ""
        return ailment(self._signs, time.monotonic(), interval=self._interval)

    def unreadable(self, error: Exception) -> None:
        """Note it."""
        del error
        self._signs = replace(self._signs, readable=False)

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Note it."""
        del fleet, warnings
        # While there were no files there were no rounds to make.
        at = self._signs.round_at if self._signs.readable else time.monotonic()
        self._signs = Signs(round_at=at, readable=True)

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Note the time."""
        del task, report, seconds
        self._signs = replace(self._signs, round_at=time.monotonic())

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """A round that did not end is no sign of life."""
