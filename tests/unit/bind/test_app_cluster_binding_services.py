"""APIServiceBindings, export requests and exports of an AppClusterBinding."""

from typing import Any

import pytest

from reconciler import api
from reconciler.core import keys
from reconciler.core.manifest import get, get_text
from reconciler.core.refs import SECRET
from tests.unit.bind.app_cluster_world import (
    DATABASES,
    LABELS,
    QUEUES,
    SECRETS_CLAIM,
    SETTINGS_CLAIM,
    SPACE,
    World,
    ago,
    export,
    inside,
    template,
)

DB = "databases.shop.example"
DB_REQUEST = "appclusterbinding-shop-databases-de5c2691"
ACCEPT = {"annotations": {keys.ACCEPT_CLAIMS: "Template"}}
ACCEPTED = [{**SECRETS_CLAIM, "state": "Accepted"}, {**SETTINGS_CLAIM, "state": "Accepted"}]


def served(*exports: Any, **metadata: Any) -> World:
    world = World(**metadata, **({"spec": {"apiExports": list(exports)}} if exports else {}))
    world.serve()
    return world


def lists(world: World, *exports: Any) -> None:
    world.change(api.APP_CLUSTER_BINDING, "shop", {"spec": {"apiExports": list(exports)}}, "team-a")


def beats(world: World, time: str = "", interval: str = "5m0s") -> None:
    """The konnector lives: its last heartbeat was just now, or at `time`."""
    beat = {"lastHeartbeatTime": time or ago(seconds=5), "heartbeatInterval": interval}
    world.change(api.CLUSTER_BINDING, "cluster", {"status": beat})


def status(world: World, name: str = DB_REQUEST, **fields: Any) -> None:
    world.change(api.API_SERVICE_EXPORT_REQUEST, name, {"status": fields})


def claims(world: World) -> Any:
    return get(world.get(api.API_SERVICE_BINDING, DB), "spec", "permissionClaims")


def asked(world: World) -> str:
    request = world.get(api.API_SERVICE_EXPORT_REQUEST, DB_REQUEST)
    return get_text(request, "spec", "resources", 0, "resource")


def test_one_resource_without_template_does_not_stop_pruning():
    world = served()
    lists(world, QUEUES)
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB) is None
    assert world.get(api.API_SERVICE_EXPORT_REQUEST, DB_REQUEST) is None


def test_a_template_that_goes_takes_nothing_along():
    world = served()
    world.put(api.API_SERVICE_EXPORT, export())
    world.remove(api.API_SERVICE_EXPORT_TEMPLATE, "databases", "platform")
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB)
    assert world.get(api.API_SERVICE_EXPORT_REQUEST, DB_REQUEST)
    assert world.get(api.API_SERVICE_EXPORT, DB)


def test_no_claim_is_accepted_for_somebody():
    assert claims(served()) is None


def test_a_binding_that_says_nothing_of_claims_gets_them_later():
    world = served()
    world.change(api.APP_CLUSTER_BINDING, "shop", {"metadata": ACCEPT}, "team-a")
    world.serve()
    assert claims(world) == ACCEPTED


DECIDED = {
    "none": [],
    "some": [{**SECRETS_CLAIM, "state": "Accepted"}],
    "rejected": [{**SECRETS_CLAIM, "state": "Rejected"}],
}


@pytest.mark.parametrize("decided", DECIDED.values(), ids=DECIDED)
@pytest.mark.parametrize("metadata", [{}, ACCEPT], ids=["not asked for", "accepting"])
def test_claims_that_were_decided_stay(decided, metadata):
    world = served(**metadata)
    world.change(api.API_SERVICE_BINDING, DB, {"spec": {"permissionClaims": decided}})
    assert world.serve() == 0
    assert claims(world) == decided


def test_foreign_labels_stay_and_ours_come_back():
    world = served()
    mine = {"binding": "x", keys.APP_CLUSTER_BINDING_NAME: "wrong"}
    world.change(api.API_SERVICE_BINDING, DB, {"metadata": {"labels": mine}})
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB)["metadata"]["labels"] == {
        **LABELS,
        "binding": "x",
    }


def test_a_binding_to_another_secret_is_named_and_left():
    world = served()
    world.change(api.API_SERVICE_BINDING, DB, {"spec": {"kubeconfigSecretRef": {"name": "x"}}})
    before = world.get(api.API_SERVICE_BINDING, DB)
    world.serve()
    assert world.conditions()["APIServiceBindingsReady"] == "Error APIServiceBindingInvalid"
    assert f"{SPACE}/x" in world.message("APIServiceBindingsReady")
    assert world.get(api.API_SERVICE_BINDING, DB) == before


READY = {"type": "ExportsReady", "status": "True"}
WAITS = {"type": "ExportsReady", "status": "False", "message": "no CRD"}
STATES = {
    "pending for a reason": (
        {"phase": "Pending", "conditions": [WAITS]},
        "Warning APIServiceExportRequestWaiting",
        False,
    ),
    "failed is final": (
        {"phase": "Failed", "terminalMessage": "no CRD"},
        "Error APIServiceExportRequestFailed",
        False,
    ),
    "succeeded, the export was deleted": (
        {"phase": "Succeeded", "conditions": [{**READY, "lastTransitionTime": ago(seconds=10)}]},
        "",
        True,
    ),
}


@pytest.mark.parametrize(("fields", "said", "replaced"), STATES.values(), ids=STATES)
def test_a_request_without_an_export(fields, said, replaced):
    world = served()
    uid = world.get(api.API_SERVICE_EXPORT_REQUEST, DB_REQUEST)["metadata"]["uid"]
    status(world, **fields)
    world.serve()
    found = world.get(api.API_SERVICE_EXPORT_REQUEST, DB_REQUEST)
    assert (found["metadata"]["uid"] != uid) is replaced
    assert world.conditions().get("ExportsReady", "") == said
    assert ("no CRD" in world.message("ExportsReady")) if said else True
    assert world.serve() == 0


def test_an_export_that_is_not_seen_yet_is_looked_for_again():
    world = served()
    status(world, phase="Succeeded", conditions=[{**READY, "lastTransitionTime": ago(seconds=9)}])
    again = world.look().again
    assert again is not None
    assert again.total_seconds() == 1


def test_two_templates_of_one_name_ask_one_after_the_other():
    world = World(spec={"apiExports": [DATABASES, QUEUES]})
    world.put(api.API_SERVICE_EXPORT_TEMPLATE, template(QUEUES, name="databases", namespace="zoo"))
    world.serve()
    assert asked(world) == "databases"
    world.put(api.API_SERVICE_EXPORT, export())
    assert world.serve() == 0
    status(world, phase="Succeeded")
    world.serve()
    assert asked(world) == "queues"


def test_bindings_of_others_are_not_pruned():
    world = served()
    world.put(api.API_SERVICE_BINDING, inside("x.y", labels={}))
    elsewhere = inside("z.y")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    world.put(api.API_SERVICE_BINDING, elsewhere)
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, "x.y")
    assert world.get(api.API_SERVICE_BINDING, "z.y", "elsewhere")


def test_a_living_konnector_gets_a_moment_to_drain():
    world = served()
    world.put(api.API_SERVICE_EXPORT, export(status="True"))
    beats(world)
    lists(world)
    world.serve()
    bound = world.get(api.API_SERVICE_BINDING, DB)
    assert bound["metadata"]["annotations"][keys.DELETION_POLICY] == "Release"
    assert "deletionTimestamp" not in bound["metadata"]
    assert world.conditions()["APIServiceBindingsReady"] == "Info Draining"
    assert world.again is not None
    assert world.again.total_seconds() == 10
    world.pass_time(seconds=10)
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB) is None
    assert world.get(api.API_SERVICE_EXPORT, DB), "the konnector still says that it is connected"
    world.put(api.API_SERVICE_EXPORT, export(status="False"))
    world.serve()
    assert world.get(api.API_SERVICE_EXPORT, DB) is None
    assert world.conditions()["APIServiceBindingsReady"] == "True"


def test_a_konnector_that_drains_is_waited_for():
    world = served()
    beats(world)
    lists(world)
    world.serve()
    world.change(api.API_SERVICE_BINDING, DB, {"metadata": {"finalizers": [keys.DRAIN]}})
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB)["metadata"]["deletionTimestamp"]
    assert world.serve() == 0


def test_a_konnector_that_never_lets_go_loses_what_is_not_listed_once_somebody_says_so():
    world = served()
    beats(world)
    lists(world)
    world.put(api.API_SERVICE_EXPORT, export(status="True"))
    held = {"finalizers": ["evil.example/stay", keys.DRAIN]}
    world.change(api.API_SERVICE_BINDING, DB, {"metadata": held})
    world.serve()
    world.pass_time(minutes=1)
    beats(world)
    world.serve()
    assert world.get(api.API_SERVICE_EXPORT, DB)
    assert "force-cleanup=true" in world.message("APIServiceBindingsReady")
    marks = {"metadata": {"annotations": {keys.FORCE_CLEANUP: "true"}}}
    world.change(api.APP_CLUSTER_BINDING, "shop", marks, "team-a")
    world.serve()
    assert world.get(api.API_SERVICE_EXPORT, DB) is None
    assert world.get(api.API_SERVICE_BINDING, DB)["metadata"]["finalizers"] == ["evil.example/stay"]


def test_a_konnector_cannot_have_itself_waited_for_until_the_end_of_time():
    world = served()
    beats(world)
    lists(world)
    ends = {keys.DELETION_POLICY: "Release", keys.DRAINING: "9999-01-01T00:00:00Z"}
    world.change(api.API_SERVICE_BINDING, DB, {"metadata": {"annotations": ends}})
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB) is None


def test_who_is_listed_again_in_time_is_not_let_go():
    world = served()
    beats(world)
    lists(world)
    world.serve()
    lists(world, DATABASES)
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB)["metadata"]["annotations"] == {}
    world.pass_time(minutes=1)
    assert world.serve() == 0


BEATS = {
    "by a clock that is ahead": (ago(minutes=-4), True),
    "in the far future": ("9999-01-01T00:00:00Z", False),
    "longer ago than anybody waits": (ago(minutes=61), False, "1000000h"),
}


@pytest.mark.parametrize("beat", BEATS.values(), ids=BEATS)
def test_a_konnector_lives_by_its_heartbeat(beat):
    time, waits, *interval = beat
    world = served()
    if time:
        beats(world, time, *interval)
    lists(world)
    world.serve()
    assert (world.get(api.API_SERVICE_BINDING, DB) is not None) is waits


def test_pruning_needs_no_kubeconfig():
    world = served()
    lists(world)
    world.remove(SECRET, "shop-kubeconfig", "team-a")
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB) is None
    assert world.conditions()["SecretValid"] == "Error KubeconfigSecretNotFound"
