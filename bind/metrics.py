"""Metrics of klutch-bind. Labels are words of ours, never names of spaces."""

from prometheus_client import CollectorRegistry, Gauge

from bind.cluster_binding.decide import STATES
from reconciler.controller.metrics import StateCounts


def spaces(registry: CollectorRegistry) -> StateCounts:
    """Return what counts binding spaces, by how their konnectors are."""
    gauge = Gauge(
        "klutch_spaces", "Binding spaces, by what is heard of them.", ["state"], registry=registry
    )
    return StateCounts(gauge, states=STATES)
