"""Which clusters are read, of which control planes a part, and what a snapshot reads."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reconciler import api
from reconciler.api import leases
from reconciler.core import keys, names
from reconciler.core.live import Address, ClusterState, Live, Questions, Unavailable, instances
from reconciler.core.manifest import Manifest, put
from reconciler.core.refs import CRD, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind, Ref
from reconciler.fleet.values import Access, Guards, Mode, PruneMode
from reconciler.observe import read_scope
from reconciler.observe.read_scope import (
    RemovedCluster,
    access_of,
    follow_up_reads,
    removed_clusters,
)
from tests.support import fleets

DIRECT, OTHER = fleets.control_plane("eu"), fleets.control_plane("us")
MANY = [f"app-{number:02}" for number in range(80)]
LARGE = fleets.fleet(
    control_planes=[DIRECT, OTHER, fleets.control_plane("whole", mode=Mode.APP_CLUSTER_BINDING)],
    clusters=[
        *(fleets.app_cluster(name) for name in MANY),
        fleets.app_cluster("alone", "us"),
        fleets.app_cluster("listed", "whole"),
    ],
    units=[],
)
PARTS = {
    "one of many": (["app-07"], {"eu"}),
    "a few of many": (MANY[:8], {"eu"}),
    "more than a few": (MANY[:9], set()),
    "the only one": (["alone"], {"us"}),
    "each control plane is judged alone": ([*MANY, "alone"], {"us"}),
    "AppClusterBinding mode": (["listed"], set()),
    "nobody": ([], set()),
}


@pytest.mark.parametrize(("chosen", "want"), PARTS.values(), ids=PARTS.keys())
def test_in_part(chosen, want):
    found = read_scope.in_part(LARGE, [LARGE.clusters[name] for name in chosen])
    assert found.keys() == want
    assert all(one.control_plane == name for name in found for one in found[name])


def test_two_of_ten_are_as_quickly_read_with_all():
    small = replace(LARGE, clusters={name: LARGE.clusters[name] for name in MANY[:10]})
    assert read_scope.in_part(small, [small.clusters[name] for name in MANY[:2]]) == {}


FLEET = fleets.fleet(clusters=[fleets.app_cluster("shop"), fleets.app_cluster("cafe")])
NEW = names.direct_space("acme", "shop")


def space(name, cluster="shop", fleet="acme", uid=""):
    labels = {keys.FLEET: fleet, keys.CLUSTER: cluster}
    annotations = {keys.APP_CLUSTER_UID: uid} if uid else {}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


def app(*led_to):
    """Return a cluster whose bindings have kubeconfigs that lead to these spaces."""
    bind = names.KLUTCH_NAMESPACE
    bindings: list[Manifest] = [
        {
            "metadata": {"name": f"b{number}", "namespace": bind},
            "spec": {"kubeconfigSecretRef": {"namespace": bind, "name": f"k{number}"}},
        }
        for number, _ in enumerate(led_to)
    ]
    secrets: list[Manifest] = [
        {
            "metadata": {"name": f"k{number}", "namespace": bind},
            "data": {
                "kubeconfig": api.kubeconfig_value(
                    api.KubeconfigFacts("https://x", "", "", there, "t")
                )
            },
        }
        for number, there in enumerate(led_to)
    ]
    objects = {api.API_SERVICE_BINDING: bindings, SECRET: secrets}
    return ClusterState("uid-shop", Address("https://x", ""), objects)


SPACES = {
    "nothing yet": ([], app(), {NEW}),
    "its own": ([space("s")], app(), {"s"}),
    "its own, and where bindings lead to is not asked": ([space("s")], app("t"), {"s"}),
    "that of another": ([space("c", "cafe")], app(), {NEW}),
    "its own by name in another fleet": ([space("s", fleet="other")], app(), {NEW}),
    "several": ([space("s"), space("t")], app(), {"s", "t"}),
    "its own under a former name": ([space("s", "old", uid="uid-shop")], app(), {"s"}),
    "another's under a former name": ([space("s", "old", uid="uid-x")], app(), {NEW}),
    "of the same cluster, by another document": (
        [space("s", "cafe", uid="uid-shop"), space("t", "cafe", uid="uid-x")],
        app(),
        {NEW, "s"},
    ),
    "its own, and such a one": (
        [space("s"), space("t", "cafe", uid="uid-shop")],
        app(),
        {"s", "t"},
    ),
    "where bindings lead to": ([], app("t", "u"), {NEW, "t", "u"}),
    "what is no namespace": ([], app("../t", "", "t?x", "T", "a" * 64), {NEW}),
    "a cluster that was not read": (
        [space("s", "old", uid="uid-shop"), space("t")],
        Unavailable("x"),
        {"t"},
    ),
}


@pytest.mark.parametrize(("namespaces", "live", "want"), SPACES.values(), ids=SPACES.keys())
def test_spaces(namespaces, live, want):
    assert read_scope.spaces(FLEET, "shop", namespaces, live) == want


def named(*names: str) -> tuple[Manifest, ...]:
    return tuple({"metadata": {"name": name, "namespace": "s"}} for name in names)


def test_every_bound_service_is_counted_and_the_export_of_every_unit_is_read() -> None:
    labels = {keys.FLEET: ACME.name, keys.CLUSTER: "old"}
    left: Manifest = {"metadata": {"labels": labels, "annotations": {keys.ACCESS: "context/old"}}}
    plane = ClusterState(
        "u",
        Address("", ""),
        {
            api.API_SERVICE_EXPORT: named("databases.shop.example", "caches.shop.example"),
            NAMESPACE: (left,),
        },
    )
    app = ClusterState(
        "v",
        Address("", ""),
        {
            CRD: named("databases.shop.example", "queues.shop.example", "other.example"),
            api.API_SERVICE_BINDING: named("queues.shop.example", "gone.shop.example"),
        },
    )

    asked = follow_up_reads(ACME, Live({"eu": plane}, {"shop": app}, {"old": app}))

    databases, queues = (instances("shop.example", name) for name in ("databases", "queues"))
    assert asked == Questions(
        in_use=frozenset(
            (cluster, kind) for cluster in ("shop", "old") for kind in (databases, queues)
        ),
        bodies=frozenset(
            {
                Ref("control-plane/eu", api.API_SERVICE_EXPORT, "s", "databases.shop.example"),
                leases.of_backend("control-plane/eu"),
                Ref(
                    "control-plane/eu",
                    SERVICE_ACCOUNT,
                    names.direct_space("acme", "shop"),
                    "klutch-binder",
                ),
            }
        ),
    )


def test_nothing_is_asked_of_what_is_unseen() -> None:
    lost = Unavailable("no connection")
    assert follow_up_reads(ACME, Live({"eu": lost}, {"shop": lost})) == Questions()


# App clusters that no document names any more, and the way to them

ACME = fleets.fleet()
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


def left(cluster: str, access: str = "context/x", fleet: str = "acme", **more: str) -> Manifest:
    labels = {keys.FLEET: fleet, keys.CLUSTER: cluster}
    return {"metadata": {"labels": labels, "annotations": {keys.ACCESS: access, **more}}}


def plane(*spaces: Manifest, kind: Kind = NAMESPACE) -> ClusterState:
    return ClusterState("u", Address("https://x", ""), {kind: spaces})


def bound(carrier: Manifest, namespace: str) -> ClusterState:
    """Return a control plane where klutchctl made `klutch-fleet` for AppClusterBindings."""
    made: Manifest = {"metadata": {"name": "klutch-fleet", "labels": {keys.FLEET: "acme"}}}
    carrier = put(carrier, namespace, "metadata", "namespace")
    seen = plane(carrier, kind=api.APP_CLUSTER_BINDING)
    return replace(seen, objects={**seen.objects, NAMESPACE: [made]})


CONTRADICTORY = "the note of its kubeconfig is unclear"
FOUND: Mapping[
    str, tuple[Mapping[str, ClusterState | Unavailable], RemovedCluster | str | None]
] = {
    "a space without a document": (
        {"eu": plane(left("old"))},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "an AppClusterBinding without a document": (
        {"eu": bound(left("old"), "klutch-fleet")},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "a tenant's AppClusterBinding": ({"eu": bound(left("old"), "tenant-ns")}, None),
    "a cluster that is in the files": ({"eu": plane(left("shop"))}, None),
    "a space of another fleet": ({"eu": plane(left("old", fleet="other"))}, None),
    "a space of no cluster": ({"eu": plane(left(""))}, None),
    "a space that was released": (
        {"eu": plane(left("old", **{keys.RELEASED: "2026-06-01T12:00:00Z"}))},
        None,
    ),
    "an unseen control plane tells nothing": ({"eu": Unavailable("no connection")}, None),
    "no annotation": ({"eu": plane(left("old", access=""))}, "no note names its kubeconfig"),
    "an annotation beside none": (
        {"eu": plane(left("old", access=""), left("old"))},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "two that agree": (
        {"eu": plane(left("old")), "us": plane(left("old"))},
        RemovedCluster("old", "eu", Access(context="x")),
    ),
    "two that do not": ({"eu": plane(left("old"), left("old", "in-cluster"))}, CONTRADICTORY),
    "one Secret's name on two control planes": (
        {"eu": plane(left("old", "secret/a/b")), "us": plane(left("old", "secret/a/b"))},
        CONTRADICTORY,
    ),
    "garbage": ({"eu": plane(left("old", "ssh://x"))}, CONTRADICTORY),
}


@pytest.mark.parametrize(("planes", "found"), FOUND.values(), ids=FOUND.keys())
def test_who_left(
    planes: Mapping[str, ClusterState | Unavailable], found: RemovedCluster | str | None
) -> None:
    gone = removed_clusters(ACME, planes)
    if isinstance(found, str):
        verdict = gone["old"]
        assert isinstance(verdict, Unavailable)
        assert found in verdict.reason
        assert verdict.remedy
    else:
        assert gone == ({} if found is None else {"old": found})


def test_nobody_is_looked_for_without_pruning() -> None:
    fleet = replace(ACME, guards=Guards(mode=PruneMode.OFF))
    assert removed_clusters(fleet, {"eu": plane(left("old"))}) == {}
