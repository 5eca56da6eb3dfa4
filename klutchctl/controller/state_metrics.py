"""Shows the state of a fleet as metrics: a pure projection, made when metrics are asked for.

Labels are names of control planes and clusters, and words of ours; never claims, namespaces,
commits or texts. The label `cluster` has a cap, so that a fleet of any size stays readable.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from reconciler.fleet.values import Fleet
from reconciler.health.board import Board
from reconciler.health.verdict import State
from reconciler.planning.changes import Action
from reconciler.source.signature import Signature
from reconciler.watch.fleet_state import FleetState, SourceProblem

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
    counted: Counter[tuple[str, str]] = Counter()
    for plane in () if fleet is None else fleet.control_planes:
        counted.update(dict.fromkeys(((plane, state) for state in State), 0))
    for cluster in () if board is None else board.clusters:
        states = Counter(one.health.state for one in cluster.units)
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
    counted = Counter(change.action for change, _ in state.waiting.lines)
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
    counted = Counter(dict.fromkeys(planes, 0))
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
