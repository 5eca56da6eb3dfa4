"""The metrics of queues, controllers and caches, in a registry of their own.

Queues bear the names and labels of client-go (`workqueue_*`, label `name`), so that dashboards
fit; the rest is named after controller-runtime with our prefix. Labels are words of ours and
names of clusters, never of objects.
"""

from collections import Counter as Count
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reconciler.controller.health_server import Activity
from reconciler.controller.queue import Observer
from reconciler.kube.informer import Informer

_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.activity = Activity()
        ProcessCollector(registry=self.registry)
        self._views = _Views(self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        self.depth = gauge("workqueue_depth", "Keys that wait to be worked on.", ("name",))
        self.adds = counter("workqueue_adds", "Keys that came to wait.", ("name",))
        self.retries = counter("workqueue_retries", "Keys that came again.", ("name",))
        self.waited = histogram(
            "workqueue_queue_duration_seconds", "How long keys waited.", ("name",)
        )
        self.active = gauge("klutch_active_workers", "Keys worked on now.", ("controller",))
        self.ends = counter(
            "klutch_reconcile", "Reconciles of a key, by result.", ("controller", "result")
        )
        self.errors = counter(
            "klutch_reconcile_errors", "Ends of work on a key with an error.", ("controller",)
        )
        self.seconds = histogram(
            "klutch_reconcile_time_seconds", "How long the work on a key took.", ("controller",)
        )
        self.leader = gauge(
            "klutch_leader_election_master_status", "1 while this process leads.", ("name",)
        )
        self._events = counter("klutch_events", "Kubernetes Events, by outcome.", ("result",))
        self._blocked_writes = counter(
            "klutch_held_writes", "Writes that a guard against loss blocked, each time.", ("verb",)
        )
        self._orphans = gauge(
            "klutch_orphaned_copies",
            "Copies that are kept though their origin is absent.",
            ("resource",),
        )

    def controller(self, name: str) -> "ControllerMetrics":
        """Return the metrics of the controllers of this name; they share them."""
        return ControllerMetrics(self, name)

    def watch(self, view: Informer) -> Callable[[], None]:
        """Count the objects of a view and its restarts, until a call of the returned function."""
        removals = self._views.add(view), self.activity.view(view)

        def remove() -> None:
            for each in removals:
                each()

        return remove

    def leading(self, name: str, *, leads: bool) -> None:
        """Note whether this process holds the Lease of this name."""
        self.leader.labels(name).set(leads)

    def event(self, result: str) -> None:
        """Count an Event: `sent`, `counted` (as part of a series), `dropped` or `failed`."""
        self._events.labels(result).inc()

    def blocked_write(self, verb: str) -> None:
        """Count a `delete` or a `create` that a guard against loss did not let happen."""
        self._blocked_writes.labels(verb).inc()

    def orphans(self, resource: str, change: int) -> None:
        """Count so many more orphaned copies of a resource, or fewer."""
        self._orphans.labels(resource).inc(change)


class StateCounts:
    """Counts objects by the state that each is in. All states are there from the start, at zero.

    `labels` are those of the gauge before its last, which is the state.
    """

    def __init__(self, gauge: Gauge, *labels: str, states: Iterable[str]) -> None:
        self._gauges = {state: gauge.labels(*labels, state) for state in states}
        self._states: dict[Hashable, str] = {}

    def note(self, key: Hashable, state: str | None) -> None:
        """Note the state of an object; None where it is gone."""
        before = self._states.get(key)
        if before == state:
            return
        if before is not None:
            self._gauges[before].dec()
        if state is None:
            del self._states[key]
        else:
            self._states[key] = state
            self._gauges[state].inc()

    def clear(self) -> None:
        for key in list(self._states):
            self.note(key, None)


class ControllerMetrics(Observer):
    """The metrics of one controller and its queue: they are there from the start, at zero."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._depth, self._adds = metrics.depth.labels(name), metrics.adds.labels(name)
        self._retries, self._waited = metrics.retries.labels(name), metrics.waited.labels(name)
        self._active, self._errors = metrics.active.labels(name), metrics.errors.labels(name)
        self._seconds = metrics.seconds.labels(name)
        self._ends = {
            result: metrics.ends.labels(name, result)
            for result in ("success", "requeue_after", "conflict", "error", "stopped")
        }

    def added(self) -> None:
        """A key came to wait."""
        self._adds.inc()
        self._depth.inc()

    def taken(self, waited: float) -> None:
        """A key is worked on after it waited so many seconds."""
        self._depth.dec()
        self._waited.observe(waited)
        self._active.inc()

    def failed(self) -> None:
        """A key will come again because the work on it failed."""
        self._retries.inc()

    def dropped(self, count: int) -> None:
        """So many keys that wait will never be worked on."""
        self._depth.dec(count)

    def ended(self, result: str, seconds: float) -> None:
        """The work on a key has ended after so many seconds."""
        self._active.dec()
        self._seconds.observe(seconds)
        self._ends[result].inc()
        if result == "error":
            self._errors.inc()


class _Views(Collector):
    """Looks at the views when metrics are asked for, from a thread of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._views: tuple[Informer, ...] = ()
        self._ended: Count[tuple[str, str]] = Count()  # restarts of views that are gone
        registry.register(self)

    def add(self, view: Informer) -> Callable[[], None]:
        self._views = (*self._views, view)

        def remove() -> None:
            self._views = tuple(each for each in self._views if each is not view)
            self._ended[_labels(view)] += view.restarts

        return remove

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        labels = ("cluster", "resource")
        objects = GaugeMetricFamily("klutch_cache_objects", "Objects in caches.", labels=labels)
        old = GaugeMetricFamily(
            "klutch_cache_troubled", "Views that may be old, as they cannot be read.", labels=labels
        )
        restarts = CounterMetricFamily(
            "klutch_watch_restarts", "Watches that ended.", labels=labels
        )
        count: Count[tuple[str, str]] = Count()
        troubled: Count[tuple[str, str]] = Count()
        ended = Count(self._ended)
        for view in self._views:
            count[_labels(view)] += len(view.store)
            troubled[_labels(view)] += bool(view.trouble)
            ended[_labels(view)] += view.restarts
        for family, values in ((objects, count), (old, troubled), (restarts, ended)):
            for names, value in values.items():
                family.add_metric(names, value)
            yield family


def _labels(view: Informer) -> tuple[str, str]:
    return view.ref.cluster, view.ref.kind.resource
