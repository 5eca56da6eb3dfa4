"""Metrics of the konnector. Labels are kinds and words of ours, never names of objects."""

from collections.abc import Hashable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from konnector import APP_CLUSTER, CONTROL_PLANE
from reconciler.controller.metrics import StateCounts
from reconciler.core.decision import Apply, Create, Decision, Patch
from reconciler.core.manifest import get_map

UP: Final = "up"
DOWN: Final = "down"
STATES: Final = ("synced", "pending", "held", "refused", "deleting")
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class SyncMetrics(Collector):
    """The metrics of a konnector: syncs, their speed, and its heartbeats."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "klutch_sync_seconds",
            "From the event of a change to the answer of the write that carries it over.",
            ["resource", "direction"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._claims = Gauge(
            "klutch_claims",
            "Claims, by how they and their copies are.",
            ["resource", "state"],
            registry=registry,
        )
        self._beats: dict[Hashable, float] = {}
        registry.register(self)

    def claims(self, resource: str) -> StateCounts:
        return StateCounts(self._claims, resource, states=STATES)

    def direction(self, resource: str, direction: str) -> Histogram:
        """Return the observer of the seconds of a kind's syncs in one direction."""
        return self._seconds.labels(resource, direction)

    def beat(self, space: Hashable, at: float | None) -> None:
        """Note when the heart of a space last beat; None where it is served no more."""
        if at is None:
            self._beats.pop(space, None)
        else:
            self._beats[space] = at

    def describe(self) -> list[Metric]:
        """Return the metrics of `collect`."""
        return list(self.collect())

    def collect(self) -> Iterator[Metric]:
        """Yield the heartbeat that is the oldest, of several spaces; none before the first."""
        family = GaugeMetricFamily(
            "klutch_heartbeat_timestamp_seconds",
            "Last heartbeat at a control plane, the oldest of several.",
        )
        if beats := list(self._beats.values()):
            family.add_metric((), min(beats))
        yield family


def directions(decision: Decision) -> Iterator[str]:
    """Yield the ways that a decision carries something: up, down, or both.

    A patch of annotations only marks, and one of finalizers counts where nothing else is written.
    """
    patches = [
        one for one in decision.steps if isinstance(one, Patch) and one.body.keys() == {"metadata"}
    ]
    carrying = [one for one in decision.steps if one not in patches]
    freeing = [one for one in patches if "annotations" not in get_map(one.body, "metadata")]
    clusters = {
        step.cluster if isinstance(step, Create | Apply) else step.ref.cluster
        for step in carrying or freeing
    }
    if CONTROL_PLANE in clusters:
        yield UP
    if APP_CLUSTER in clusters:
        yield DOWN
