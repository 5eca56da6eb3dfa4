"""Which clusters left a fleet, and how they are reached."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reconciler.api.bindings import APP_CLUSTER_BINDING
from reconciler.core import keys
from reconciler.core.live import Address, ClusterState, Unavailable
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE, Kind
from reconciler.fleet.values import Access, Guards, PruneMode
from reconciler.observe.read_scope import RemovedCluster, access_of, removed_clusters
from tests.support import fleets

FLEET = replace(fleets.fleet(), name="acme")

ACCESSES: Mapping[str, tuple[str, Access | None]] = {
    "a context": ("context/eu-1", Access(context="eu-1")),
    "a context with slashes": ("context/arn:aws:eks/a/b", Access(context="arn:aws:eks/a/b")),
    "a key of a Secret": ("secret/shop/config", Access(secret=("shop", "config"))),
    "in the cluster": ("in-cluster", Access(in_cluster=True)),
    "nothing": ("", None),
    "no context": ("context/", None),
    "no key": ("secret/shop", None),
    "an empty key": ("secret/shop/", None),
    "a path": ("secret/shop/../x", None),
    "something else": ("ssh://shop", None),
}


@pytest.mark.parametrize(("text", "access"), ACCESSES.values(), ids=ACCESSES.keys())
def test_access(text: str, access: Access | None) -> None:
    assert access_of(text) == access
    assert access is None or str(access) == text


def space(cluster: str, access: str = "context/x", fleet: str = "acme", **more: str) -> Manifest:
    labels = {keys.FLEET: fleet, keys.CLUSTER: cluster}
    return {"metadata": {"labels": labels, "annotations": {keys.ACCESS: access, **more}}}


def plane(*spaces: Manifest, kind: Kind = NAMESPACE) -> ClusterState:
    return ClusterState("u", Address("https://x", ""), {kind: spaces})


UNTOLD = "nothing says how to reach it"
CONTRADICTORY = "it cannot be told how to reach it"
FOUND: Mapping[
    str, tuple[Mapping[str, ClusterState | Unavailable], RemovedCluster | str | None]
] = {
    "a space without a document": (
        {"eu": plane(space("old"))},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "an AppClusterBinding without a document": (
        {"eu": plane(space("old"), kind=APP_CLUSTER_BINDING)},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "a cluster that is in the files": ({"eu": plane(space("shop"))}, None),
    "a space of another fleet": ({"eu": plane(space("old", fleet="other"))}, None),
    "a space of no cluster": ({"eu": plane(space(""))}, None),
    "a space that was released": (
        {"eu": plane(space("old", **{keys.RELEASED: "2026-06-01T12:00:00Z"}))},
        None,
    ),
    "an unseen control plane tells nothing": ({"eu": Unavailable("no connection")}, None),
    "no annotation": ({"eu": plane(space("old", access=""))}, UNTOLD),
    "an annotation beside none": (
        {"eu": plane(space("old", access=""), space("old"))},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "two that agree": (
        {"eu": plane(space("old")), "us": plane(space("old"))},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "two that do not": ({"eu": plane(space("old"), space("old", "in-cluster"))}, CONTRADICTORY),
    "one Secret's name on two control planes": (
        {"eu": plane(space("old", "secret/a/b")), "us": plane(space("old", "secret/a/b"))},
        CONTRADICTORY,
    ),
    "garbage": ({"eu": plane(space("old", "ssh://x"))}, CONTRADICTORY),
}


@pytest.mark.parametrize(("planes", "found"), FOUND.values(), ids=FOUND.keys())
def test_who_left(
    planes: Mapping[str, ClusterState | Unavailable], found: RemovedCluster | str | None
) -> None:
    gone = removed_clusters(FLEET, planes)
    if isinstance(found, str):
        verdict = gone["old"]
        assert isinstance(verdict, Unavailable)
        assert found in verdict.reason
        assert verdict.remedy
    else:
        assert gone == ({} if found is None else {"old": found})


def test_nobody_is_looked_for_without_pruning() -> None:
    fleet = replace(FLEET, guards=Guards(mode=PruneMode.OFF))
    assert removed_clusters(fleet, {"eu": plane(space("old"))}) == {}
