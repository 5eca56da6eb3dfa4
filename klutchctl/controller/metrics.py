"""The metrics of a watch and its fleet, in a registry of their own.

Labels are names of control planes, clusters, hooks and sinks, and words of ours, never texts.
Times are Unix times, so that an age is `time() - metric` (the practice of Prometheus).
"""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reconciler.apply import Report, Status
from reconciler.core.errors import Locked, Problem
from reconciler.core.live import control_plane_ref_name
from reconciler.fleet.values import Fleet, UnitKey
from reconciler.health.board import UNREADY, Board, BoundUnit
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Change
from reconciler.source.following import SourceState
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, RoundResult, SourceProblem
from reconciler.watch.loop import Observer, result_of

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_LONG: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_REPAIRS: Final = frozenset({Action.CREATE, Action.UPDATE, Action.REPLACE})


_MADE: Final = frozenset({Action.CREATE, Action.UPDATE, Action.REPLACE, Action.ADOPT})


class CommitWait:
    """The time from the first look at a commit until nothing is left to do for it.

    While a guard or a suspension holds it back, people are waited for, and no time is counted. The
    commit that a process finds at its start is left out: nobody knows when it came.
    """

    def __init__(self) -> None:
        self._began: datetime | None = None
        self._guarded = 0.0
        self._guarded_since: float | None = None

    def after(self, before: FleetState, after: FleetState, now: float) -> float | None:
        """Take the next state; return the seconds where it is the first in which all is done."""
        if after.source.changed_at != before.source.changed_at:
            self._began = None if before.fleet is None else after.source.changed_at
            self._guarded, self._guarded_since = 0.0, None
        if self._began is None:
            return None
        self._count_guarded(is_guarded=bool(after.waiting.held or after.suspended), now=now)
        if before.applied_at is not None or after.applied_at is None:
            return None
        took = after.applied_at - self._began
        self._began = None
        return max(took.total_seconds() - self._guarded, 0.0)

    def _count_guarded(self, *, is_guarded: bool, now: float) -> None:
        if is_guarded and self._guarded_since is None:
            self._guarded_since = now
        elif not is_guarded and self._guarded_since is not None:
            self._guarded += now - self._guarded_since
            self._guarded_since = None


class ReadyWaits:
    """The time from the round that wrote a unit until the unit is Ready."""

    def __init__(self) -> None:
        self._written: dict[str, dict[UnitKey, tuple[Action, float]]] = {}  # by cluster

    def written(self, report: Report, began: float) -> None:
        """Take the lines of a round that began then."""
        for outcome in report.outcomes:
            change = outcome.change
            done = outcome.status is Status.DONE and change.action in _MADE
            if done and change.unit is not None:
                of_cluster = self._written.setdefault(change.cluster, {})
                of_cluster.setdefault(change.unit, (change.action, began))

    def after(self, before: Board | None, after: Board | None) -> Iterator[tuple[Action, float]]:
        """Take the next board; yield the action and seconds of each unit that is Ready now."""
        if after is None or after is before or not self._written:
            return
        known = {} if before is None else {one.name: one for one in before.clusters}
        for cluster in after.clusters:
            waiting = self._written.get(cluster.name)
            if waiting is None or known.get(cluster.name) is cluster:
                continue
            units = {one.health.unit: one for one in cluster.units}
            for key, (action, began) in list(waiting.items()):
                unit = units.get(key)
                if unit is None or unit.health.ready:
                    del waiting[key]
                if unit is not None and unit.health.ready:
                    yield action, max(_ready_at(unit, after.time, began) - began, 0.0)
            if not waiting:
                del self._written[cluster.name]


def _ready_at(unit: BoundUnit, looked: datetime, began: float) -> float:
    """Return when the unit became Ready: by its status, or when it was found so and stayed."""
    since = unit.health.since
    if since is not None and unit.health.exact and since.timestamp() > began:
        return since.timestamp()
    return looked.timestamp()


class FleetMetrics(Collector, Observer):
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
        self._counter = partial(Counter, namespace="klutchctl", registry=self.registry)
        self._gauge = partial(Gauge, namespace="klutchctl", registry=self.registry)
        self._histogram = partial(
            Histogram, namespace="klutchctl", registry=self.registry, buckets=_LONG
        )
        self._add_rounds()
        self._add_source()
        self._add_events()

    def _add_rounds(self) -> None:
        self._rounds = self._counter(
            "watch_rounds_total", "Rounds, by result.", ("trigger", "result")
        )
        self._outcomes = self._counter(
            "watch_outcomes_total", "Lines of plans, by result.", ("status",)
        )
        self._duration = self._histogram(
            "watch_round_duration_seconds",
            "From the start of a round to its end.",
            ("trigger",),
            buckets=_SECONDS,
        )
        self._success = self._gauge(
            "watch_last_success_timestamp_seconds", "End of the last whole round."
        )
        self._guards = self._gauge(
            "watch_guards_held",
            "Times that a guard held something back in the last round.",
            ("guard",),
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
            ("action",),
        )
        self._repairs = self._counter(
            "drift_repairs_total",
            "Repaired objects: they differed, though the files had not changed.",
            ("control_plane",),
        )
        self._hooks = self._counter(
            "webhook_requests_total", "Calls of webhooks, by outcome.", ("hook", "result")
        )
        self._notifications = self._counter(
            "notifications_total", "Notifications, by outcome.", ("sink", "result")
        )

    def describe(self) -> list[Metric]:
        """Return the metrics of `collect`, without values."""
        return list(families(FleetState(name=""), frozenset()))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the present state. May be called from any thread."""
        yield from families(self._state, self._unseen)

    def listener(self, before: FleetState, after: FleetState) -> None:
        """Take the next state: `States` calls this."""
        self._state = after
        if (seconds := self._commit.after(before, after, self._now())) is not None:
            self._in_place.observe(seconds)
        for action, seconds in self._ready.after(before.board, after.board):
            self._until_ready.labels(action.value).observe(seconds)

    def webhook(self, hook: str, result: str) -> None:
        self._hooks.labels(hook, result).inc()

    def notification(self, sink: str, result: str) -> None:
        self._notifications.labels(sink, result).inc()

    def unreadable(self, _error: Exception) -> None:
        self._readable.set(0)
        self._failures.inc()

    def read(
        self, fleet: Fleet, _found: SourceState | None, _warnings: Sequence[Problem] | None
    ) -> None:
        self._readable.set(1)
        self._read.set(self._now())
        for plane in fleet.control_planes:
            self._repairs.labels(plane)
        if fleet.digest != self._digest:
            self._digest = fleet.digest
            self._changed.set(self._now())

    def ended(self, task: Task, result: RoundResult, seconds: float) -> None:
        report, word = result.report, result_of(result.report)
        self._count(task, word, seconds)
        for status, number in Count(outcome.status for outcome in report.outcomes).items():
            self._outcomes.labels(status.value).inc(number)
        if word in ("done", "nothing"):
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
        """Count the repairs of drift; lines that were left undone before, or unread, are none."""
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
        self._unseen = self._unseen - looked_at | {cluster.name for cluster in report.plan.unseen}

    def _count(self, task: Task, result: str, seconds: float) -> None:
        self._rounds.labels(task.trigger.value, result).inc()
        self._duration.labels(task.trigger.value).observe(seconds)


def _place(change: Change) -> tuple[str, str, str, str]:
    """Return the object of a line, in a form that is quick to hash."""
    ref = change.ref
    return ref.cluster, ref.kind.plural, ref.namespace, ref.name


SERIES: Final = 500  # of one metric with the label `cluster`
UNSEEN: Final = "klutchctl_watch_cluster_unseen"
NOT_READY: Final = "klutchctl_cluster_units_not_ready"
_LINES: Final = tuple(action for action in Action if action is not Action.NOOP)


def families(state: FleetState, unseen: frozenset[str]) -> Iterator[GaugeMetricFamily]:
    """Yield the metrics of a state. `unseen` are the clusters that could not be read."""
    for name, text, labels, values in _tables(state):
        yield _family(name, text, labels, values)
    omitted: dict[str, int] = {}
    for name, text, by_cluster in (
        (UNSEEN, "1 for a cluster that could not be read.", dict.fromkeys(unseen, 1)),
        (NOT_READY, "Units of a cluster that should be Ready and are not.", not_ready(state.board)),
    ):
        shown = (((cluster,), by_cluster[cluster]) for cluster in worst(by_cluster))
        yield _family(name, text, ("cluster",), shown)
        omitted[name] = max(len(by_cluster) - SERIES, 0)
    yield _family(
        "klutchctl_series_omitted",
        "Clusters that a metric leaves out because more than 500 are concerned.",
        ("metric",),
        (((name,), count) for name, count in omitted.items()),
    )


_Values: TypeAlias = Iterable[tuple[tuple[str, ...], int]]  # by labels


def _family(name: str, text: str, labels: tuple[str, ...], values: _Values) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for names, value in values:
        family.add_metric(names, value)
    return family


def _tables(state: FleetState) -> Iterator[tuple[str, str, tuple[str, ...], _Values]]:
    """Yield name, text and labels of metrics, and their values."""
    yield (
        "klutchctl_units",
        "Units by how they were when last looked at.",
        ("control_plane", "state"),
        _units(state.fleet, state.board),
    )
    waiting = Count(change.action for change, _ in state.waiting.lines)
    yield (
        "klutchctl_plan_lines",
        "Lines of the plan that were not in place after the last round.",
        ("action",),
        [((action.value,), waiting[action]) for action in _LINES],
    )
    storms = Count(dict.fromkeys(() if state.fleet is None else state.fleet.control_planes, 0))
    storms.update(plane_of(state.fleet, storm.cluster) for storm in state.storms)
    yield (
        "klutchctl_drift_storms",
        "Objects that rest because another manager changes them back again and again.",
        ("control_plane",),
        [((plane,), count) for plane, count in sorted(storms.items())],
    )
    # No sample where nobody asks for signatures: that is neither 1 nor 0.
    refused = state.source.problem is SourceProblem.UNVERIFIED
    yield (
        "klutchctl_source_verified",
        "1 while the newest commit is signed as --verify asks, 0 while one is refused for that.",
        (),
        [((), int(not refused))] if refused or state.source.signature is not None else [],
    )


def worst(values: Mapping[str, int]) -> list[str]:
    """Return the clusters that are shown: those with the highest values, then by name."""
    return sorted(values, key=lambda name: (-values[name], name))[:SERIES]


def not_ready(board: Board | None) -> dict[str, int]:
    """Return how many units should be Ready and are not, by the clusters that have any."""
    counted = {
        cluster.name: sum(one.health.state in UNREADY for one in cluster.units)
        for cluster in (() if board is None else board.clusters)
    }
    return {name: count for name, count in counted.items() if count}


def _units(fleet: Fleet | None, board: Board | None) -> _Values:
    counted: Count[tuple[str, str]] = Count()
    for plane in () if fleet is None else fleet.control_planes:
        counted.update(dict.fromkeys(((plane, state) for state in State), 0))
    for cluster in () if board is None else board.clusters:
        for state, count in Count(one.health.state for one in cluster.units).items():
            counted[cluster.control_plane, state] += count
    return sorted(counted.items())


def plane_of(fleet: Fleet | None, cluster: str) -> str:
    """Return the control plane of an app cluster; "" where no document names the cluster."""
    found = None if fleet is None else fleet.clusters.get(cluster)
    return "" if found is None else found.control_plane
