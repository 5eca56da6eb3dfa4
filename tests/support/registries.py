"""The metrics that each program registers, from programs that were made and never started."""

from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from bind import program
from bind.door.audit import Audit
from bind.osb import program as osb
from bind.osb.settings import Settings as OsbSettings
from bind.settings import Settings as BindSettings
from klutchctl.controller.metrics import FleetMetrics
from konnector import APP_CLUSTER
from konnector import program as konnector
from reconciler.api import API_SERVICE_BINDING
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.kube import kubeconfig
from reconciler.kube.client import KubeCluster
from tests.support.konnector import USUAL

NOW = datetime(2026, 11, 26, tzinfo=UTC)
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
_KUBECONFIG = b"""
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: x, user: {token: x}}]
"""


def registries() -> dict[str, CollectorRegistry]:
    """Return the registry of each program, by its name. Call it within an event loop."""
    return {
        "klutchctl": _of_controller(),
        "klutch-bind": _of_backend(),
        "klutch-osb": _of_brokers(),
        "konnector": _of_konnector(),
    }


def shown(registry: CollectorRegistry) -> Iterator[str]:
    """Yield the names of all series of a program, also of those that it has none of so far."""
    for family in registry.collect():
        for suffix in _SUFFIXES.get(family.type, ("",)):
            yield f"{family.name}{suffix}"


def _cluster(name: str) -> KubeCluster:
    return KubeCluster(kubeconfig.from_secret(_KUBECONFIG, name=name, environ={}))


def _of_controller() -> CollectorRegistry:
    registry = FleetMetrics(NOW.timestamp).registry
    registry.register(Metrics().leader)
    return registry


def _of_backend() -> CollectorRegistry:
    cluster = _cluster(program.CONTROL_PLANE)
    term = program.wired(
        BindSettings(),
        cluster,
        leases=cluster,
        deployments_served=True,
        lease_namespace="klutch-bind",
        clock=SystemClock(),
    )
    for counter in Audit(SystemClock()).counters:  # as with a front door
        term.metrics.registry.register(counter)
    return term.metrics.registry


def _of_brokers() -> CollectorRegistry:
    cluster = _cluster("control-plane")
    made = osb.wired(
        OsbSettings(), cluster, leases=cluster, namespace="klutch-osb", clock=SystemClock()
    )
    return made.metrics.registry


def _of_konnector() -> CollectorRegistry:
    cluster = _cluster(APP_CLUSTER)
    made = konnector.wired(
        USUAL, cluster, cluster, leases=cluster, kind=API_SERVICE_BINDING, clock=SystemClock()
    )
    return made.metrics.registry
