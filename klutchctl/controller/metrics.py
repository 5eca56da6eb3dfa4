"""Counts what a watch does, and shows what is known of its fleet, in a registry of its own.

Labels are names of control planes, clusters, hooks and sinks, and words of ours, never texts.
Times are Unix times, so that an age is `time() - metric` (the practice of Prometheus).
"""

from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from klutchctl.controller.waits import CommitWait, ReadyWaits
from reconciler.apply import Report, Status
from reconciler.core.errors import Locked, Problem
from reconciler.core.live import control_plane_ref_name
from reconciler.fleet.values import Fleet
from reconciler.health.board import Board
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Change
from reconciler.source.signature import Signature
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, SourceProblem
from reconciler.watch.loop import result_of

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_LONG: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_REPAIRS: Final = frozenset({Action.CREATE, Action.UPDATE, Action.REPLACE})


class FleetMetrics(Collector):
    """An observer of a watch and a listener of its states. `now` is in seconds since 1970.

    As an observer it stands before what publishes states: a round's lines come before its board.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._digest = ""
        self._unseen: frozenset[str] = frozenset()
        self._state = FleetState(name="")
        self._commit, self._ready = CommitWait(), ReadyWaits()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self._add_rounds()
        self._add_source()
        self._add_events()

    def _add_rounds(self) -> None:
        self._rounds = self._counter(
            "watch_rounds_total", "Rounds, by what they came to.", "trigger", "result"
        )
        self._outcomes = self._counter(
            "watch_outcomes_total", "Lines of plans, by what became of them.", "status"
        )
        self._duration = self._histogram(
            "watch_round_duration_seconds",
            "From the start of a round to its end.",
            "trigger",
            buckets=_SECONDS,
        )
        self._success = self._gauge(
            "watch_last_success_timestamp_seconds", "End of the last whole round."
        )
        self._guards = self._gauge(
            "watch_guards_held",
            "Times that a guard held something back in the last round.",
            "guard",
        )

    def _add_source(self) -> None:
        self._failures = self._counter(
            "watch_source_failures_total",
            "Looks at the files that found them unreadable, or of no use.",
        )
        self._read = self._gauge(
            "watch_source_read_timestamp_seconds", "When the files were last read."
        )
        self._changed = self._gauge(
            "watch_source_changed_timestamp_seconds", "When these files were first read."
        )
        self._readable = self._gauge(
            "watch_source_readable", "1 while the files can be read and used."
        )

    def _add_events(self) -> None:
        self._in_place = self._histogram(
            "commit_to_applied_seconds",
            "From the first look at a commit until nothing is left to do for it, without waits.",
        )
        self._until_ready = self._histogram(
            "unit_time_to_ready_seconds",
            "From the start of the round that wrote a unit until it is Ready.",
            "action",
        )
        self._repairs = self._counter(
            "drift_repairs_total",
            "Objects that were made again as the files say though these had not changed.",
            "control_plane",
        )
        self._hooks = self._counter(
            "webhook_requests_total", "Calls of webhooks, by what became of them.", "hook", "result"
        )
        self._notifications = self._counter(
            "notifications_total", "Notifications, by what became of them.", "sink", "result"
        )

    def describe(self) -> list[Metric]:
        """Return what `collect` yields, without values."""
        return list(families(FleetState(name=""), frozenset()))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the present state. May be called from any thread."""
        yield from families(self._state, self._unseen)

    def listener(self, before: FleetState, after: FleetState) -> None:
        """Take the next state: what `States` calls."""
        self._state = after
        if (seconds := self._commit.after(before, after, self._now())) is not None:
            self._in_place.observe(seconds)
        for action, seconds in self._ready.after(before.board, after.board):
            self._until_ready.labels(action.value).observe(seconds)

    def webhook(self, hook: str, result: str) -> None:
        self._hooks.labels(hook, result).inc()

    def notification(self, sink: str, result: str) -> None:
        self._notifications.labels(sink, result).inc()

    def unreadable(self, error: Exception) -> None:
        del error
        self._readable.set(0)
        self._failures.inc()

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        del warnings
        self._readable.set(1)
        self._read.set(self._now())
        for plane in fleet.control_planes:
            self._repairs.labels(plane)
        if fleet.digest != self._digest:
            self._digest = fleet.digest
            self._changed.set(self._now())

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        result = result_of(report)
        self._count(task, result, seconds)
        for status, number in Count(outcome.status for outcome in report.outcomes).items():
            self._outcomes.labels(status.value).inc(number)
        if result in ("done", "nothing"):
            self._success.set(self._now())
        self._guards.clear()
        for guard, number in Count(guarded.guard for guarded in report.plan.held).items():
            self._guards.labels(guard).set(number)
        self._ready.written(report, self._now() - seconds)
        if task.trigger is Trigger.DRIFT:
            self._count_repairs(report)
        self._see(task, report)

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Count a round that did not come to its end."""
        self._count(task, "locked" if isinstance(error, Locked) else "failed", seconds)

    def _count_repairs(self, report: Report) -> None:
        """Count what changed by itself; what was left undone before, or unread, is no drift."""
        made = [
            one.change
            for one in report.outcomes
            if one.status is Status.DONE and one.change.action in _REPAIRS
        ]
        if not made:
            return
        undone = {_place(change) for change, _ in self._state.waiting.lines}
        clusters = Count(
            change.cluster
            for change in made
            if change.cluster not in self._unseen and _place(change) not in undone
        )
        for cluster, number in clusters.items():
            self._repairs.labels(report.plan.sections.get(cluster, "")).inc(number)

    def _see(self, task: Task, report: Report) -> None:
        planes = frozenset(map(control_plane_ref_name, report.plan.sections.values()))
        looked_at = self._unseen if task.scope is None else task.scope | planes
        unseen = {cluster.name for cluster in report.plan.unseen}
        self._unseen = (self._unseen - looked_at) | unseen

    def _count(self, task: Task, result: str, seconds: float) -> None:
        self._rounds.labels(task.trigger.value, result).inc()
        self._duration.labels(task.trigger.value).observe(seconds)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"klutchctl_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"klutchctl_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: Sequence[float] = _LONG
    ) -> Histogram:
        name = f"klutchctl_{name}"
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)


def _place(change: Change) -> tuple[str, str, str, str]:
    """Return which object a line is about, in what is quick to hash."""
    ref = change.ref
    return ref.cluster, ref.kind.plural, ref.namespace, ref.name


SERIES: Final = 500  # of one metric with the label `cluster`
UNSEEN: Final = "klutchctl_watch_cluster_unseen"
NOT_READY: Final = "klutchctl_cluster_units_not_ready"
_LINES: Final = tuple(action for action in Action if action is not Action.NOOP)
_AT_REST: Final = frozenset({State.READY, State.SUSPENDED, State.RELEASED})


def families(state: FleetState, unseen: frozenset[str]) -> Iterator[GaugeMetricFamily]:
    """Yield the metrics of a state. `unseen` are the clusters that could not be read."""
    yield _units(state.fleet, state.board)
    yield _plan_lines(state)
    yield _storms(state)
    yield _verified(state.source.signature, state.source.problem)
    omitted = GaugeMetricFamily(
        "klutchctl_series_omitted",
        "Clusters that a metric leaves out because more than 500 are concerned.",
        labels=("metric",),
    )
    for name, text, values in (
        (UNSEEN, "1 for a cluster that could not be read.", dict.fromkeys(unseen, 1)),
        (NOT_READY, "Units of a cluster that should be Ready and are not.", not_ready(state.board)),
    ):
        family = GaugeMetricFamily(name, text, labels=("cluster",))
        for cluster in worst(values):
            family.add_metric((cluster,), values[cluster])
        yield family
        omitted.add_metric((name,), max(len(values) - SERIES, 0))
    yield omitted


def worst(values: Mapping[str, int]) -> list[str]:
    """Return the clusters that are shown: those with the highest values, then by name."""
    return sorted(values, key=lambda name: (-values[name], name))[:SERIES]


def not_ready(board: Board | None) -> dict[str, int]:
    """Return how many units should be Ready and are not, by the clusters that have any."""
    counted = {
        cluster.name: sum(one.health.state not in _AT_REST for one in cluster.units)
        for cluster in (() if board is None else board.clusters)
    }
    return {name: count for name, count in counted.items() if count}


def _units(fleet: Fleet | None, board: Board | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "klutchctl_units",
        "Units by how they were when last looked at.",
        labels=("control_plane", "state"),
    )
    counted: Count[tuple[str, str]] = Count()
    for plane in () if fleet is None else fleet.control_planes:
        counted.update(dict.fromkeys(((plane, state) for state in State), 0))
    for cluster in () if board is None else board.clusters:
        states = Count(one.health.state for one in cluster.units)
        for state, count in states.items():
            counted[cluster.control_plane, state] += count
    for labels, count in sorted(counted.items()):
        family.add_metric(labels, count)
    return family


def _plan_lines(state: FleetState) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "klutchctl_plan_lines",
        "Lines of the plan that were not in place after the last round.",
        labels=("action",),
    )
    counted = Count(change.action for change, _ in state.waiting.lines)
    for action in _LINES:
        family.add_metric((action.value,), counted[action])
    return family


def _storms(state: FleetState) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "klutchctl_drift_storms",
        "Objects that rest because another manager changes them back again and again.",
        labels=("control_plane",),
    )
    planes = () if state.fleet is None else state.fleet.control_planes
    counted = Count(dict.fromkeys(planes, 0))
    counted.update(plane_of(state.fleet, storm.cluster) for storm in state.storms)
    for plane, count in sorted(counted.items()):
        family.add_metric((plane,), count)
    return family


def plane_of(fleet: Fleet | None, cluster: str) -> str:
    """Return the control plane of an app cluster; "" where no document names the cluster."""
    found = None if fleet is None else fleet.clusters.get(cluster)
    return "" if found is None else found.control_plane


def _verified(signature: Signature | None, problem: SourceProblem) -> GaugeMetricFamily:
    """Return no sample where nobody asks for signatures: that is neither 1 nor 0."""
    family = GaugeMetricFamily(
        "klutchctl_source_verified",
        "1 while the newest commit is signed as --verify asks, 0 while one is refused for that.",
    )
    if problem is SourceProblem.UNVERIFIED:
        family.add_metric((), 0)
    elif signature is not None:
        family.add_metric((), 1)
    return family
