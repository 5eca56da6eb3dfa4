"""Of which control planes a part is read, which spaces are in it, and what a snapshot reads."""

from dataclasses import replace

import pytest

from reconciler.api.bindings import API_SERVICE_BINDING
from reconciler.api.exports import API_SERVICE_EXPORT
from reconciler.api.kubeconfig import KubeconfigFacts, as_value
from reconciler.core import keys, names
from reconciler.core.live import Address, ClusterState, Live, Questions, Unavailable, instances
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Ref
from reconciler.fleet.values import Mode
from reconciler.observe import read_scope
from reconciler.observe.read_scope import follow_up_reads
from tests.support import fleets

DIRECT, OTHER = fleets.control_plane("eu"), fleets.control_plane("us")
MANY = [f"app-{number:02}" for number in range(80)]
LARGE = fleets.fleet(
    control_planes=[
        DIRECT,
        OTHER,
        fleets.control_plane("whole", mode=Mode.APP_CLUSTER_BINDING),
    ],
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
            "data": {"kubeconfig": as_value(KubeconfigFacts("https://x", "", "", there, "t"))},
        }
        for number, there in enumerate(led_to)
    ]
    objects = {API_SERVICE_BINDING: bindings, SECRET: secrets}
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


SMALL = fleets.fleet()


def named(*names: str) -> tuple[Manifest, ...]:
    return tuple({"metadata": {"name": name, "namespace": "s"}} for name in names)


def test_every_bound_service_is_counted_and_the_export_of_every_unit_is_read() -> None:
    labels = {keys.FLEET: SMALL.name, keys.CLUSTER: "old"}
    left: Manifest = {"metadata": {"labels": labels, "annotations": {keys.ACCESS: "context/old"}}}
    plane = ClusterState(
        "u",
        Address("", ""),
        {
            API_SERVICE_EXPORT: named("databases.shop.example", "caches.shop.example"),
            NAMESPACE: (left,),
        },
    )
    app = ClusterState(
        "v",
        Address("", ""),
        {
            CRD: named("databases.shop.example", "queues.shop.example", "other.example"),
            API_SERVICE_BINDING: named("queues.shop.example", "gone.shop.example"),
        },
    )

    asked = follow_up_reads(SMALL, Live({"eu": plane}, {"shop": app}, {"old": app}))

    databases, queues = (instances("shop.example", name) for name in ("databases", "queues"))
    assert asked == Questions(
        in_use=frozenset(
            (cluster, kind) for cluster in ("shop", "old") for kind in (databases, queues)
        ),
        bodies=frozenset(
            {Ref("control-plane/eu", API_SERVICE_EXPORT, "s", "databases.shop.example")}
        ),
    )


def test_nothing_is_asked_of_what_is_unseen() -> None:
    lost = Unavailable("no connection")
    assert follow_up_reads(SMALL, Live({"eu": lost}, {"shop": lost})) == Questions()
