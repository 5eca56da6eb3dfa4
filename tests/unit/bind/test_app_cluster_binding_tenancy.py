"""Whose a Namespace is that bears the name of a binding space (F6)."""

import copy
from typing import Any

import pytest

from reconciler import api
from reconciler.core import keys
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SECRET, Kind
from tests.unit.bind.app_cluster_world import LABELS, SPACE, World, inside

# The other reading of the same name, klutch-bind-team-a-shop.
OTHERS = keys.app_cluster_binding_labels("team", "a-shop")
ONE_LABEL = {keys.APP_CLUSTER_BINDING_NAME: "shop"}
TAKEN = "Error BindingSpaceTaken"
MADE, EARLIER = "2026-06-01T11:00:00Z", "2026-06-01T10:59:59Z"
NAMED = "databases.shop.example"


def held(*objects: tuple[Kind, Any], labels: Any = None, annotations: Any = None) -> World:
    """A world in which the Namespace is there before the AppClusterBinding was looked at."""
    world = World()
    metadata = {"name": SPACE, "labels": labels or {}, "annotations": annotations or {},
                "creationTimestamp": MADE}  # fmt: skip
    world.put(NAMESPACE, {"metadata": metadata})
    for kind, one in objects:
        world.put(kind, one)
    return world


BY_KLUTCHCTL = inside(
    NAMED,
    spec={
        "kubeconfigSecretRef": {"name": "shop-kubeconfig", "key": "kubeconfig", "namespace": SPACE}
    },
)
USABLE = {
    "nothing is in it": held(),
    "bindings that klutchctl prepared": held((api.API_SERVICE_BINDING, BY_KLUTCHCTL)),
    "a ClusterBinding with both labels": held((api.CLUSTER_BINDING, inside("cluster"))),
    "one label is enough where none contradicts": held(
        (api.CLUSTER_BINDING, inside("cluster", labels=ONE_LABEL))
    ),
    "a mirrored Secret": held((SECRET, inside("shop-kubeconfig", type="Opaque", data={}))),
    "an administrator hands it over by labels": held(
        (SECRET, inside("app", labels={})), labels=LABELS
    ),
    "the ClusterBinding counts more than what a konnector can write": held(
        (api.CLUSTER_BINDING, inside("cluster")),
        (api.API_SERVICE_EXPORT_REQUEST, inside("x", labels=OTHERS)),
    ),
}
SOMEBODY_ELSES = {
    "our ClusterBinding is that of a Namespace before it": (
        held(
            (api.CLUSTER_BINDING, inside("cluster", metadata={"creationTimestamp": EARLIER})),
            (SECRET, inside("app", labels={})),
        ),
        "Secret app, which is of no AppClusterBinding",
    ),
    "another's ClusterBinding": (
        held((api.CLUSTER_BINDING, inside("cluster", labels=OTHERS))),
        "AppClusterBinding team/a-shop",
    ),
    "another's by its Namespace": (held(labels=OTHERS), "AppClusterBinding team/a-shop"),
    "another's ClusterBinding, and bindings of ours": (
        held(
            (api.CLUSTER_BINDING, inside("cluster", labels=OTHERS)),
            (api.API_SERVICE_BINDING, BY_KLUTCHCTL),
        ),
        "AppClusterBinding team/a-shop",
    ),
    "bindings of two": (
        held(
            (api.API_SERVICE_BINDING, BY_KLUTCHCTL),
            (api.API_SERVICE_BINDING, inside("queues.shop.example", labels=OTHERS)),
        ),
        "AppClusterBinding team/a-shop",
    ),
    "a service namespace": (
        held(annotations={keys.API_SERVICE_NAMESPACE: "klutch-bind-team-a/shop"}),
        "is the service namespace of klutch-bind-team-a/shop",
    ),
    "a space of default mode": (
        held(
            (api.CLUSTER_BINDING, inside("cluster", labels={})),
            annotations={keys.IDENTITY: "alice#cfWssD"},
        ),
        "without AppClusterBinding",
    ),
    "a ClusterBinding of nobody": (
        held((api.CLUSTER_BINDING, inside("cluster", labels={}))),
        "contains ClusterBinding cluster",
    ),
    "an ordinary namespace with Secrets": (
        held((SECRET, inside("app", labels={}))),
        "contains Secret app",
    ),
    "an export": (held((api.API_SERVICE_EXPORT, inside(NAMED, labels={}))), f"Export {NAMED}"),
    "an app namespace": (
        held((api.API_SERVICE_NAMESPACE, inside("prod", labels={}))),
        "APIServiceNamespace prod",
    ),
}


@pytest.mark.parametrize("world", USABLE.values(), ids=USABLE)
def test_it_is_used(world):
    world = copy.deepcopy(world)
    world.serve()
    assert world.conditions() == {"SecretValid": "True", "KonnectorDeployed": "True"}
    assert world.get(api.CLUSTER_BINDING, "cluster")["metadata"]["labels"] == LABELS
    assert world.serve() == 0


@pytest.mark.parametrize(("world", "named"), SOMEBODY_ELSES.values(), ids=SOMEBODY_ELSES)
def test_nothing_is_written_into_it(world, named):
    world = copy.deepcopy(world)
    before = {key: one for key, one in world.objects.items() if key[0] != api.APP_CLUSTER_BINDING}
    world.serve()
    assert world.conditions()["BindingSpaceReady"] == TAKEN
    message = world.message("BindingSpaceReady")
    assert SPACE in message
    assert named in message
    assert {k: o for k, o in world.objects.items() if k[0] != api.APP_CLUSTER_BINDING} == before
    assert world.serve() == 0


@pytest.mark.parametrize("policy", ["Delete", "Release"])
@pytest.mark.parametrize("name", SOMEBODY_ELSES)
def test_nothing_of_it_is_deleted(name, policy):
    world = copy.deepcopy(SOMEBODY_ELSES[name][0])
    # What older backends left bears the same ambiguous name.
    legacy = "klutch-konnector-team-a-shop"
    for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
        world.put(kind, {"metadata": {"name": legacy}})
    world.change(
        api.APP_CLUSTER_BINDING,
        "shop",
        {"metadata": {"annotations": {keys.DELETION_POLICY: policy}}},
        "team-a",
    )
    world.delete()
    before = {key: one for key, one in world.objects.items() if key[0] != api.APP_CLUSTER_BINDING}
    world.serve()
    assert world.app_cluster_binding is None
    assert world.objects == before


def test_a_space_that_is_being_deleted_is_waited_for():
    world = World()
    world.serve()
    gone = {"deletionTimestamp": "2026-06-01T12:00:00Z"}
    world.change(NAMESPACE, SPACE, {"metadata": gone, "spec": {"finalizers": ["kubernetes"]}})
    world.serve()
    assert world.conditions()["BindingSpaceReady"] == "Warning BindingSpaceTerminating"
    for key in [key for key in world.objects if key[1] == SPACE or key[0] == NAMESPACE]:
        del world.objects[key]
    world.serve()
    assert world.conditions()["BindingSpaceReady"] == "True"
    assert world.get(api.API_SERVICE_BINDING, NAMED)
