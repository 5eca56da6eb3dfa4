"""Counts what a watch did. Labels are names of clusters and words of ours, never texts.

Times are Unix times, so that an age is `time() - metric` (the practice of Prometheus).
"""

from collections import Counter as Count
from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from reconciler.apply import Report, Status
from reconciler.apply.outcomes import GOOD
from reconciler.core.errors import Locked, Problem
from reconciler.core.live import control_plane_ref_name
from reconciler.fleet.values import Fleet
from reconciler.watch.agenda import Task

_PREFIX: Final = "klutchctl_watch"
_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_BAD: Final = frozenset(Status) - GOOD


class Metrics:
    """An observer that counts, into a registry of its own. `now` is in seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._digest = ""
        self._unseen: frozenset[str] = frozenset()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._rounds = self._counter("rounds", "Rounds, by what they came to.", "trigger", "result")
        self._failures = Counter(
            f"{_PREFIX}_source_failures_total",
            "Looks at the files that found them unreadable, or of no use.",
            registry=self.registry,
        )
        self._outcomes = self._counter(
            "outcomes", "Lines of plans, by what became of them.", "status"
        )
        self._duration = Histogram(
            f"{_PREFIX}_round_duration_seconds",
            "From the start of a round to its end.",
            ("trigger",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._success = self._gauge(
            "last_success_timestamp_seconds", "End of the last whole round."
        )
        self._read = self._gauge("source_read_timestamp_seconds", "When the files were last read.")
        self._changed = self._gauge(
            "source_changed_timestamp_seconds", "When these files were first read."
        )
        self._readable = self._gauge("source_readable", "1 while the files can be read and used.")
        self._cluster_unseen = self._gauge(
            "cluster_unseen", "1 for a cluster that could not be read.", "cluster"
        )
        self._guards = self._gauge(
            "guards_held", "Times that a guard held something back in the last round.", "guard"
        )

    def unreadable(self, error: Exception) -> None:
        """Note it."""
        del error
        self._readable.set(0)
        self._failures.inc()

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Note it."""
        del warnings
        self._readable.set(1)
        self._read.set(self._now())
        if fleet.digest != self._digest:
            self._digest = fleet.digest
            self._changed.set(self._now())

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Count a round and its lines."""
        result = result_of(report)
        self._count(task, result, seconds)
        for status, number in Count(outcome.status for outcome in report.outcomes).items():
            self._outcomes.labels(status.value).inc(number)
        if result in ("done", "nothing"):
            self._success.set(self._now())
        self._guards.clear()
        for guard, number in Count(guarded.guard for guarded in report.plan.held).items():
            self._guards.labels(guard).set(number)
        self._see(task, report)

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Count a round that did not come to its end."""
        self._count(task, "locked" if isinstance(error, Locked) else "failed", seconds)

    def _see(self, task: Task, report: Report) -> None:
        known = self._unseen
        planes = frozenset(map(control_plane_ref_name, report.plan.sections.values()))
        looked_at = known if task.scope is None else task.scope | planes
        self._unseen = (known - looked_at) | {cluster.name for cluster in report.plan.unseen}
        for name in known - self._unseen:
            self._cluster_unseen.remove(name)
        for name in self._unseen - known:
            self._cluster_unseen.labels(name).set(1)

    def _count(self, task: Task, result: str, seconds: float) -> None:
        self._rounds.labels(task.trigger.value, result).inc()
        self._duration.labels(task.trigger.value).observe(seconds)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}_total", description, labels, registry=self.registry)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", description, labels, registry=self.registry)


def result_of(report: Report) -> str:
    """Return what a round came to, in one word: the worst of it."""
    found = {outcome.status for outcome in report.outcomes}
    if report.lock_lost:
        return "locked"
    if found & _BAD - {Status.HELD, Status.SKIPPED} or report.plan.unseen:
        return "partial"
    if report.plan.held or found & _BAD:
        return "held"
    return "done" if found else "nothing"
