"""The deletion of an AppClusterBinding: what goes, what stays, and what is waited for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.decision import Delete, Note
from reconciler.core.keys import FORCE_CLEANUP
from reconciler.core.manifest import is_deleting
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
)
from reconciler.core.times import format_time
from tests.unit.bind.app_cluster_world import LABELS, NOW, SPACE, World, ago, export, inside

DB = "databases.shop.example"
SYNCED = (api.API_SERVICE_NAMESPACE, "prod")
WAITING, LATE = "Info Waiting", "Error DeadlineExceeded"


def served(policy: str = "", *, beat: str = "") -> World:
    """An AppClusterBinding in use: its konnector deployed, one claim in app namespace prod."""
    marks = {"annotations": {keys.DELETION_POLICY: policy}} if policy else {}
    world = World(spec={"konnector": {"deploy": True}}, **marks)
    world.serve()
    world.put(api.API_SERVICE_EXPORT, export(status="True"))
    world.put(api.API_SERVICE_NAMESPACE, inside("prod", labels={}))
    if beat:
        status = {"lastHeartbeatTime": beat, "heartbeatInterval": "5m0s"}
        world.change(api.CLUSTER_BINDING, "cluster", {"status": status})
    return world


def deleted(policy: str = "", *, beat: str = "") -> World:
    world = served(policy, beat=beat)
    world.delete()
    world.serve()
    return world


def annotate(world: World, **annotations: Any) -> None:
    marks = {"metadata": {"annotations": annotations}}
    world.change(api.APP_CLUSTER_BINDING, "shop", marks, "team-a")


def drains(world: World) -> None:
    """Our konnector has seen the annotation and will not let go at once."""
    world.change(api.API_SERVICE_BINDING, DB, {"metadata": {"finalizers": [keys.DRAIN]}})


def done(world: World) -> None:
    """Our konnector is through: it takes its finalizer off."""
    world.remove(api.API_SERVICE_BINDING, DB)


KEEPING = {"nothing is said": "", "Release": "Release", "something else": "delete"}


@pytest.mark.parametrize("policy", KEEPING.values(), ids=KEEPING)
def test_space_and_data_stay_unless_delete_is_said(policy):
    world = deleted(policy)
    assert world.app_cluster_binding is None
    assert world.get(*SYNCED)
    namespace = world.get(NAMESPACE, SPACE)
    assert namespace["metadata"]["annotations"][keys.RELEASED] == "2026-06-01T12:00:00Z"
    assert world.get(api.CLUSTER_BINDING, "cluster"), "it says whose the space is"
    deletes = {step.ref.kind for step in world.written if isinstance(step, Delete)}
    assert deletes == {
        api.API_SERVICE_BINDING,
        api.API_SERVICE_EXPORT,
        api.API_SERVICE_EXPORT_REQUEST,
        DEPLOYMENT,
        SECRET,
    }


def test_an_event_tells_how_to_delete_what_stays():
    world = served()
    world.delete()
    notes: list[Note] = []
    while world.app_cluster_binding is not None:
        notes.extend(world.look().notes)
        world.serve_once()
    (note,) = notes
    assert note.reason == "Released"
    assert f"kubectl delete namespace {SPACE}" in note.message
    assert "klutchctl.dev/deletion-policy=Delete" in note.message


def found(policy: str, *, age: str) -> World:
    """An AppClusterBinding whose Namespace was there already, with who knows what in it."""
    world = World(annotations={keys.DELETION_POLICY: policy})
    world.put(NAMESPACE, {"metadata": {"name": SPACE, "creationTimestamp": age}})
    world.serve()
    return world


def test_a_namespace_that_was_there_before_is_not_deleted_unasked():
    world = found("Delete", age=ago(minutes=6))
    world.delete()
    world.serve()
    assert not is_deleting(world.get(NAMESPACE, SPACE))
    assert world.conditions()["CleanedUp"] == WAITING
    labels = "appclusterbinding-name=shop klutch.anynines.com/appclusterbinding-namespace=team-a"
    assert f"kubectl label namespace {SPACE} klutch.anynines.com/{labels}" in world.message(
        "CleanedUp"
    )
    world.change(NAMESPACE, SPACE, {"metadata": {"labels": LABELS}}, "")
    world.serve()
    assert world.get(NAMESPACE, SPACE) is None
    assert world.app_cluster_binding is None


def test_a_namespace_of_the_backend_goes_although_it_was_restarted_in_between():
    world = found("Delete", age=ago(minutes=4))
    world.delete()
    world.serve()
    assert world.get(NAMESPACE, SPACE) is None
    assert world.app_cluster_binding is None


def returned(**metadata):
    """Return the world in which an AppClusterBinding of that name is made again."""
    world = deleted()
    again = World(spec={"konnector": {"deploy": True}}, uid="another", **metadata)
    again.objects |= {key: one for key, one in world.objects.items() if SPACE in key}
    return again


LINE = f"kubectl annotate namespace {SPACE} klutchctl.dev/confirm-space="
BEFORE_UIDS = {keys.APP_CLUSTER_BINDING_UID: None}
MADE_LATER = "2026-06-01T12:30:00Z"
RETURNS = {
    "it is another one": ({}, {}, "uid-1"),
    "its author says otherwise": ({"annotations": {keys.CONFIRM_SPACE: "uid-1"}}, {}, "uid-1"),
    "it is not the one that a person meant": ({}, {keys.CONFIRM_SPACE: "uid-0"}, "uid-0,uid-1"),
    "nothing was noted before uids": ({"creationTimestamp": MADE_LATER}, BEFORE_UIDS, "none"),
    "a person gave it": ({}, {keys.CONFIRM_SPACE: "uid-0, uid-1"}, ""),
    "or what has no uid": (
        {"creationTimestamp": MADE_LATER}, BEFORE_UIDS | {keys.CONFIRM_SPACE: "none"}, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "notes", "line"), RETURNS.values(), ids=RETURNS)
def test_a_released_space_is_no_namesakes(metadata, notes, line):
    """Also where AppClusterBinding, or its Namespace, was deleted by another tenant (T1, S1)."""
    again = returned(**metadata)
    again.change(NAMESPACE, SPACE, {"metadata": {"annotations": notes}}, "")
    before = again.get(NAMESPACE, SPACE)["metadata"]["annotations"]
    again.serve()
    held = again.get(NAMESPACE, SPACE)["metadata"]["annotations"]
    assert bool(again.get(SECRET, "shop-kubeconfig")) == (not line)
    if not line:
        assert keys.RELEASED not in held
        assert held[keys.APP_CLUSTER_BINDING_UID] == "another"
        assert again.get(*SYNCED)
        return
    assert held == before
    assert any(f"{LINE}{line} --overwrite" in again.message(one) for one in again.conditions())
    again.delete()
    again.serve()
    assert again.app_cluster_binding is None
    assert again.get(NAMESPACE, SPACE)["metadata"]["annotations"] == before


def test_no_account_is_made_where_an_earlier_space_left_something():
    world = World()
    world.left = "Namespace x is of an earlier space"
    world.serve()
    assert world.get(SERVICE_ACCOUNT, names.BINDER) is None
    assert world.conditions()["BindingSpaceReady"] == "Error BindingSpaceLeftOvers"
    world.left = ""
    world.serve()
    assert world.get(SERVICE_ACCOUNT, names.BINDER)


ORDER = {
    "Release": [
        api.API_SERVICE_BINDING,
        api.API_SERVICE_EXPORT_REQUEST,
        api.API_SERVICE_EXPORT,
        DEPLOYMENT,
        SECRET,
    ],
    "Delete": [api.API_SERVICE_BINDING, NAMESPACE],
}


@pytest.mark.parametrize(("policy", "order"), ORDER.items(), ids=ORDER)
def test_each_thing_goes_when_the_one_before_it_is_gone(policy, order):
    world = served(policy, beat=ago(seconds=5))
    world.delete()
    world.serve()
    marks = world.get(api.API_SERVICE_BINDING, DB)["metadata"]["annotations"]
    assert marks[keys.DELETION_POLICY] == policy
    drains(world)
    world.serve()
    assert world.conditions()["CleanedUp"] == WAITING
    assert keys.DRAIN in world.message("CleanedUp")
    done(world)
    world.put(api.API_SERVICE_EXPORT, export(status="False"))
    world.serve()
    assert world.app_cluster_binding is None
    assert [step.ref.kind for step in world.written if isinstance(step, Delete)] == order


def test_a_konnector_that_says_it_still_syncs_keeps_its_rights():
    world = deleted(beat=ago(seconds=5))
    world.pass_time(seconds=10)
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, DB) is None
    assert world.get(api.API_SERVICE_EXPORT, DB)
    assert DB in world.message("CleanedUp")
    world.pass_time(minutes=10)
    world.serve()
    assert world.app_cluster_binding is None, "a silent konnector is not believed for ever"


def test_bindings_of_others_are_let_go_too():
    world = served("Delete")
    world.put(
        api.API_SERVICE_BINDING, inside("x.y", labels={}, metadata={"finalizers": [keys.DRAIN]})
    )
    world.delete()
    world.serve()
    assert world.get(api.API_SERVICE_BINDING, "x.y")["metadata"]["deletionTimestamp"]
    assert world.get(NAMESPACE, SPACE)["metadata"].get("deletionTimestamp") is None


def gone_for_good(policy: str) -> World:
    """The app cluster went away while our konnector held its finalizer."""
    world = deleted(policy, beat=ago(seconds=5))
    drains(world)
    world.serve()
    return world


@pytest.mark.parametrize("policy", ["Release", "Delete"])
def test_after_the_deadline_it_is_an_error_and_nothing_is_given_up(policy):
    world = gone_for_good(policy)
    assert world.again is not None
    world.pass_time(minutes=10)
    world.serve()
    assert world.conditions()["CleanedUp"] == LATE
    assert world.notes == ["CleanupTimedOut"]
    message = world.message("CleanedUp")
    assert f"APIServiceBinding {DB} still exists (finalizers: {keys.DRAIN})" in message
    assert "klutchctl.dev/force-cleanup=true" in message
    assert "2026-06-01T11:59:55Z" in message
    world.pass_time(days=30)
    assert world.serve() == 0
    assert world.get(*SYNCED)
    assert world.notes == ["CleanupTimedOut"]


def test_the_deadline_is_looked_at_in_time():
    world = gone_for_good("Release")
    assert world.look().again == world.terms.drain_deadline


@pytest.mark.parametrize(("policy", "stays"), [("Release", True), ("Delete", False)])
def test_who_forces_goes_on_without_the_konnector(policy, stays):
    world = gone_for_good(policy)
    annotate(world, **{FORCE_CLEANUP: "true"})
    world.serve()
    assert world.app_cluster_binding is None
    assert (world.get(*SYNCED) is not None) is stays


def test_forcing_takes_off_no_finalizer_of_others():
    world = gone_for_good("Delete")
    theirs = {"metadata": {"finalizers": ["example.com/backup", keys.DRAIN]}}
    world.change(api.API_SERVICE_BINDING, DB, theirs)
    annotate(world, **{FORCE_CLEANUP: "true"})
    world.serve()
    left = world.get(api.API_SERVICE_BINDING, DB)["metadata"]["finalizers"]
    assert left == ["example.com/backup"]
    assert "example.com/backup" in world.message("CleanedUp")
    assert world.get(NAMESPACE, SPACE)["metadata"].get("deletionTimestamp") is None


@pytest.mark.parametrize("policy", ["Release", "Delete"])
def test_who_forces_is_rid_of_a_konnector_that_holds_its_bindings(policy):
    world = gone_for_good(policy)
    for name in (DB, "x.y"):
        holding = inside(name, labels={}, metadata={"finalizers": ["evil.example/stay"]})
        world.put(api.API_SERVICE_BINDING, holding)
    world.serve()
    assert world.get(DEPLOYMENT, "konnector-shop")
    annotate(world, **{FORCE_CLEANUP: "true"})
    world.serve()
    for kind in (DEPLOYMENT, SECRET, api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_REQUEST):
        left = [name for of, place, name in world.objects if (of, place) == (kind, SPACE)]
        assert left == []
    assert "evil.example/stay" in world.message("CleanedUp")
    assert not is_deleting(world.get(NAMESPACE, SPACE))
    assert world.get(*SYNCED)


def test_a_request_that_others_made_stays():
    world = served()
    world.put(api.API_SERVICE_EXPORT_REQUEST, inside("theirs", labels={}))
    world.delete()
    world.serve()
    assert world.app_cluster_binding is None
    assert world.get(api.API_SERVICE_EXPORT_REQUEST, "theirs", SPACE)


@pytest.mark.parametrize("value", ["false", "yes", ""])
def test_only_true_forces(value):
    world = gone_for_good("Delete")
    annotate(world, **{FORCE_CLEANUP: value})
    assert world.serve() == 0


def test_a_namespace_that_does_not_go_is_named_with_its_reason():
    world = served("Delete")
    world.change(NAMESPACE, SPACE, {"metadata": {"finalizers": ["example.com/hold"]}})
    world.delete()
    world.serve()
    reason = {
        "type": "NamespaceContentRemaining",
        "status": "True",
        "message": "Some resources are remaining: databases.shop.example has 1 resource instances",
    }
    world.change(NAMESPACE, SPACE, {"status": {"conditions": [reason]}})
    world.serve()
    assert world.message("CleanedUp") == f"Namespace {SPACE} still exists: {reason['message']}."
    assert world.app_cluster_binding


def test_an_old_backends_cluster_roles_go_first():
    world = served()
    name = "klutch-konnector-team-a-shop"
    for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
        world.put(kind, {"metadata": {"name": name, "finalizers": ["example.com/hold"]}})
    world.delete()
    world.serve()
    assert f"ClusterRole {name} still exists" in world.message("CleanedUp")
    for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
        world.remove(kind, name)
    world.serve()
    assert world.app_cluster_binding is None


NEVER_SERVED = {
    "its secret was never there": lambda world: world.remove(SECRET, "shop-kubeconfig", "team-a"),
    "it was never looked at": lambda world: None,
}


@pytest.mark.parametrize("before", NEVER_SERVED.values(), ids=NEVER_SERVED)
def test_one_that_never_had_a_space_goes_at_once(before):
    world = World()
    before(world)
    world.delete()
    assert world.serve() == 1
    assert world.app_cluster_binding is None


def test_one_without_our_finalizer_is_left_alone():
    world = World(finalizers=["other"])
    world.delete()
    assert world.serve() == 0


def test_a_namespace_that_somebody_deletes_is_not_marked():
    world = served()
    held = {"finalizers": ["example.com/hold"], "deletionTimestamp": "2026-06-01T12:00:00Z"}
    world.change(NAMESPACE, SPACE, {"metadata": held})
    world.delete()
    world.serve()
    assert world.app_cluster_binding is None
    assert keys.RELEASED not in world.get(NAMESPACE, SPACE)["metadata"]["annotations"]


def test_it_can_be_deleted_long_after_it_was_asked_for():
    world = served()
    world.delete()
    world.now = NOW.replace(year=2027)
    world.serve()
    assert world.app_cluster_binding is None


EVENTS = {
    "a heartbeat": lambda world: world.change(
        api.CLUSTER_BINDING, "cluster", {"status": {"lastHeartbeatTime": format_time(world.now)}}
    ),
    "the konnector holds": drains,
    "the konnector lets go": lambda world: world.change(
        api.API_SERVICE_BINDING, DB, {"metadata": {"finalizers": []}}
    ),
    "sync has stopped": lambda world: world.put(api.API_SERVICE_EXPORT, export(status="False")),
    "a minute": lambda world: world.pass_time(minutes=1),
    "an hour": lambda world: world.pass_time(hours=1),
    "forced": lambda world: annotate(world, **{FORCE_CLEANUP: "true"}),
    "unlisted": lambda world: world.change(
        api.APP_CLUSTER_BINDING, "shop", {"spec": {"apiExports": []}}, "team-a"
    ),
    "the kubeconfig is lost": lambda world: world.objects.pop(
        (SECRET, "team-a", "shop-kubeconfig"), None
    ),
    "unlabelled": lambda world: world.change(
        api.CLUSTER_BINDING, "cluster", {"metadata": {"labels": {"a": "b"}}}
    ),
    "deleted": lambda world: world.delete(),
}
KEPT = (NAMESPACE, api.CLUSTER_BINDING, api.API_SERVICE_NAMESPACE)


@given(
    policy=st.sampled_from(["", "Release"]),
    beat=st.sampled_from(["", ago(seconds=5)]),
    events=st.lists(st.sampled_from(sorted(EVENTS)), max_size=8),
)
def test_whatever_happens_without_delete_the_data_stays(policy, beat, events):
    world = served(policy, beat=beat)
    for event in (*events, "deleted"):
        if world.app_cluster_binding is None:
            break
        if world.get(api.API_SERVICE_BINDING, DB) is None and "konnector" in event:
            continue
        EVENTS[event](world)
        world.serve()
    assert {step.ref.kind for step in world.written if isinstance(step, Delete)}.isdisjoint(KEPT)
    assert world.get(*SYNCED)
