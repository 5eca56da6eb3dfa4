"""Finds app clusters that no document names any more, by our labels, and the way to them.

Pure (mapping.md 1, 9).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.api.bindings import APP_CLUSTER_BINDING
from reconciler.core import keys
from reconciler.core.live import ClusterState, Unavailable
from reconciler.core.manifest import annotations_of, labels_of
from reconciler.core.refs import NAMESPACE
from reconciler.fleet.values import Access, Fleet, PruneMode
from reconciler.observe import unavailable

_CARRIERS: Final = (NAMESPACE, APP_CLUSTER_BINDING)


@dataclass(frozen=True, slots=True)
class RemovedCluster:
    """A cluster that was removed, the control plane that still knows it, and the way to it."""

    name: str
    control_plane: str
    access: Access


def removed_clusters(
    fleet: Fleet, control_planes: Mapping[str, ClusterState | Unavailable]
) -> Mapping[str, RemovedCluster | Unavailable]:
    """Return the clusters that left, by name; Unavailable where there is no one way to reach them.

    A cluster that is released left long ago. With pruning off there are none.
    """
    if fleet.guards.mode is PruneMode.OFF:
        return {}
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for plane, live in control_planes.items():
        if isinstance(live, ClusterState):
            for name, access in _marked(fleet, live):
                found[name].add((plane, access))
    return {name: _removed(name, sorted(found[name])) for name in sorted(found)}


def access_of(text: str) -> Access | None:
    """Read the annotation `access` (mapping.md 1), or None where it is not of that form."""
    form, _, rest = text.partition("/")
    if text == "in-cluster":
        return Access(in_cluster=True)
    if form == "context" and rest:
        return Access(context=rest)
    name, _, key = rest.partition("/")
    if form == "secret" and name and key and "/" not in key:
        return Access(secret=(name, key))
    return None


def _marked(fleet: Fleet, live: ClusterState) -> set[tuple[str, str]]:
    """Return (cluster, access) of every space and AppClusterBinding that lost its document."""
    return {
        (name, annotations_of(carrier).get(keys.ACCESS, ""))
        for kind in _CARRIERS
        for carrier in live.objects.get(kind, ())
        if labels_of(carrier).get(keys.FLEET) == fleet.name
        and (name := labels_of(carrier).get(keys.CLUSTER, ""))
        and name not in fleet.clusters
        and keys.RELEASED not in annotations_of(carrier)
    }


def _removed(name: str, ways: list[tuple[str, str]]) -> RemovedCluster | Unavailable:
    """Spaces without the annotation say nothing; all others must agree."""
    known = [(plane, access) for plane, text in ways if (access := access_of(text)) is not None]
    texts = sorted({text for _, text in ways})
    if not known or len({(access, access.secret and plane) for plane, access in known}) > 1:
        return unavailable.contradictory(texts)
    return RemovedCluster(name, *known[0])
