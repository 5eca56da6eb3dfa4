"""What a ClusterBinding says, and which rights its konnector gets."""

from datetime import timedelta
from typing import Any

import pytest

from bind import rbac_changes
from bind.cluster_binding.decide import Seen, decide
from reconciler.blueprints import rbac
from reconciler.core import conditions, keys
from reconciler.core.decision import NOTHING, Create, Delete, Patch
from reconciler.core.manifest import JSON, Manifest, get, name_of, put
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING
from tests.support.space_objects import (
    CONFIG_MAPS,
    CONTROL_PLANE,
    NOW,
    SECRETS,
    SPACE,
    ago,
    cluster_binding,
    condition,
    crd,
    deleting,
    export,
    live_like,
    served,
    space,
)


def seen(**facts):
    return Seen(CONTROL_PLANE, **{"binding": cluster_binding(), "space": space(), **facts})


def conditions_of(decision):
    return {one.type: one for one in decision.conditions}


def steps_of(decision):
    return [step for task in decision.tasks for step in task.steps]


def beating(last, interval="5m0s"):
    return {"lastHeartbeatTime": last, "heartbeatInterval": interval}


AHEAD_11 = ago(seconds=-11)
HEALTH = {
    "a beat without an interval": (beating(ago(seconds=1), ""), "HeartbeatIntervalMissing", None),
    "right after a beat (F2)": (beating(ago(seconds=0)), "", timedelta(minutes=10)),
    "seven seconds after a beat (F2)": (beating(ago(seconds=7)), "", timedelta(seconds=593)),
    "two beats missed, to the second (F3)": (beating(ago(minutes=10)), "HeartbeatTimeout", None),
    "far ahead": (beating(AHEAD_11), "HeartbeatTimeDrift", timedelta(seconds=1)),
}  # fmt: skip


@pytest.mark.parametrize(("status", "reason", "again"), HEALTH.values(), ids=HEALTH.keys())
def test_health_is_reported_and_looked_at_again_when_it_changes(status, reason, again):
    decision = decide(seen(binding=cluster_binding(**status)), scope="Namespaced", now=NOW)
    healthy = conditions_of(decision)["Healthy"]
    assert (healthy.status, healthy.reason) == ("False" if reason else "True", reason)
    assert decision.again == again
    assert again is None or again > timedelta()


def test_the_message_of_a_silence_stays_the_same_while_it_lasts():
    status = beating(ago(hours=1))
    reported = {
        conditions_of(
            decide(seen(binding=cluster_binding(**status)), scope="Namespaced", now=NOW + later)
        )["Healthy"].message
        for later in (timedelta(), timedelta(minutes=3), timedelta(days=1))
    }
    assert reported == {f"No heartbeat since {ago(hours=1)}; one is due every 5m"}


EXPORTS = [export(claims=[SECRETS, CONFIG_MAPS]), export(crd("queues"), claims=[SECRETS])]
IN_SPACE: Any = served(rbac.binding_in_space(SPACE))
ROLE: Any = live_like(rbac.space_role(space(), EXPORTS), uid="uid-of-role", resourceVersion="7")
EVERYWHERE = live_like(
    rbac.binding_everywhere(space()), uid="uid-of-everywhere", resourceVersion="7"
)
CALM: Any = {"exports": EXPORTS, "role_binding": IN_SPACE, "cluster_role": ROLE}
NAME = f"klutch-binder-{SPACE}"
OF_OLD_SPACE = {"ownerReferences": [{"kind": "Namespace", "name": SPACE, "uid": "of-before"}]}
OTHER_SUBJECT = {"kind": "ServiceAccount", "name": "default", "namespace": "team-b"}
OTHER_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
REVERSED = {**ROLE, "rules": [*reversed(ROLE["rules"]), ROLE["rules"][0]]}

RIGHTS = {
    "a new space gets two objects, and nothing cluster-wide": (
        "Namespaced", {"exports": EXPORTS},
        [("Create", ROLE_BINDING, "klutch-binder"), ("Create", CLUSTER_ROLE, NAME)],
    ),
    "in Cluster scope its role is given everywhere, once it is there": (
        "Cluster", {"exports": EXPORTS},
        [("Create", ROLE_BINDING, "klutch-binder"), ("Create", CLUSTER_ROLE, NAME),
         ("Create", CLUSTER_ROLE_BINDING, NAME)],
    ),
    "agreement is silence": ("Namespaced", CALM, []),
    "agreement is silence in Cluster scope": (
        "Cluster", {**CALM, "cluster_role_binding": EVERYWHERE}, [],
    ),
    "the order and doubles of the original's rules are no difference (F21)": (
        "Namespaced", {**CALM, "cluster_role": REVERSED}, [],
    ),
    "what is given everywhere is taken before anything is given (F1)": (
        "Namespaced", {"exports": EXPORTS, "cluster_role_binding": EVERYWHERE},
        [("Delete", CLUSTER_ROLE_BINDING, NAME), ("Create", ROLE_BINDING, "klutch-binder"),
         ("Create", CLUSTER_ROLE, NAME)],
    ),
    "it is taken once": ("Namespaced", {**CALM, "cluster_role_binding": deleting(EVERYWHERE)}, []),
    "it is taken also while the space goes": (
        "Namespaced", {**CALM, "space": deleting(space()), "cluster_role_binding": EVERYWHERE},
        [("Delete", CLUSTER_ROLE_BINDING, NAME)],
    ),
    "a new export widens the role": (
        "Namespaced", {**CALM, "exports": [*EXPORTS, export(crd("notes"))]},
        [("Patch", CLUSTER_ROLE, NAME)],
    ),
    "an export that went narrows it": (
        "Namespaced", {**CALM, "exports": EXPORTS[1:]}, [("Patch", CLUSTER_ROLE, NAME)],
    ),
    "another subject is corrected": (
        "Namespaced", {**CALM, "role_binding": {**IN_SPACE, "subjects": [OTHER_SUBJECT]}},
        [("Patch", ROLE_BINDING, "klutch-binder")],
    ),
    "one subject more is taken away": (
        "Namespaced",
        {**CALM, "role_binding": {**IN_SPACE, "subjects": [*IN_SPACE["subjects"], OTHER_SUBJECT]}},
        [("Patch", ROLE_BINDING, "klutch-binder")],
    ),
    "another role means a new RoleBinding (F41)": (
        "Namespaced", {**CALM, "role_binding": {**IN_SPACE, "roleRef": OTHER_ROLE}},
        [("Delete", ROLE_BINDING, "klutch-binder"), ("Create", ROLE_BINDING, "klutch-binder")],
    ),
    "another role means a new ClusterRoleBinding": (
        "Cluster", {**CALM, "cluster_role_binding": {**EVERYWHERE, "roleRef": OTHER_ROLE}},
        [("Delete", CLUSTER_ROLE_BINDING, NAME), ("Create", CLUSTER_ROLE_BINDING, NAME)],
    ),
    "the role of an earlier space of that name is left alone": (
        "Namespaced", {**CALM, "exports": [], "cluster_role": live_like(ROLE, **OF_OLD_SPACE)}, [],
    ),
    "and is given to nobody everywhere": (
        "Cluster", {**CALM, "cluster_role": live_like(ROLE, **OF_OLD_SPACE)}, [],
    ),
    "a ClusterRoleBinding of somebody else is left alone": (
        "Namespaced", {**CALM, "cluster_role_binding": live_like(EVERYWHERE, ownerReferences=[])},
        [],
    ),
    "nothing is made in a space that goes": ("Cluster", {"space": deleting(space())}, []),
    "nothing is made for a space that is not there yet": ("Cluster", {"space": None}, []),
}  # fmt: skip


@pytest.mark.parametrize(("scope", "facts", "want"), RIGHTS.values(), ids=RIGHTS.keys())
def test_rights(scope, facts, want):
    decision = decide(seen(**facts), scope=scope, now=NOW)
    reported = []
    for step in steps_of(decision):
        match step:
            case Create(kind, manifest):
                reported.append(("Create", kind, name_of(manifest)))
            case Patch(ref) | Delete(ref):
                reported.append((type(step).__name__, ref.kind, ref.name))
    assert reported == want


FOREIGN = {
    "a ClusterRole": {"cluster_role": live_like(ROLE, **OF_OLD_SPACE)},
    "a ClusterRoleBinding": {"cluster_role_binding": live_like(EVERYWHERE, ownerReferences=[])},
}


@pytest.mark.parametrize("scope", ["Namespaced", "Cluster"])
@pytest.mark.parametrize("facts", FOREIGN.values(), ids=FOREIGN.keys())
def test_somebody_elses_object_is_reported_of(facts, scope):
    decision = decide(seen(**{**CALM, **facts}), scope=scope, now=NOW)
    reported = conditions_of(decision)["PermissionsGranted"]
    assert (reported.status, reported.reason) == ("False", "ForeignPermissions")
    assert NAME in reported.message


def test_conditions_of_ours_appear_with_the_first_trouble_and_then_stay():
    assert set(conditions_of(decide(seen(**CALM), scope="Namespaced", now=NOW))) == {"Healthy"}
    status = {"conditions": [
        condition("PermissionsGranted", "False", "PermissionsUpdateFailed"),
        condition("ServiceNamespacesReady", "False", "NamespaceCollision"),
    ]}  # fmt: skip
    mended = seen(**{**CALM, "binding": cluster_binding(**status)})
    reported = conditions_of(decide(mended, scope="Namespaced", now=NOW))
    assert {type_: one.status for type_, one in reported.items() if type_ != "Healthy"} == {
        "PermissionsGranted": "True",
        "ServiceNamespacesReady": "True",
    }


def test_app_namespaces_without_room_are_reported_whatever_their_order():
    obstacles = [
        (conditions.NAMESPACE_OF_FORMER_SPACE, "c"),
        (conditions.NAMESPACE_COLLISION, "b"),
        (conditions.NAMESPACE_COLLISION, "a"),
    ]
    for order in (obstacles, obstacles[::-1]):
        decision = decide(seen(**CALM, obstacles=order), scope="Namespaced", now=NOW)
        reported = conditions_of(decision)["ServiceNamespacesReady"]
        assert (reported.reason, reported.message) == ("NamespaceCollision", "a (and 2 more)")


def test_a_binding_that_goes_is_left_alone():
    gone = seen(binding=deleting(cluster_binding()), cluster_role_binding=EVERYWHERE)
    assert decide(gone, scope="Namespaced", now=NOW) == NOTHING


# What konnectors ever had rights to stays noted on the role that the backend keeps.

CLUSTER = "control-plane"


def role(noted: str | None):
    annotations = {} if noted is None else {keys.EVER_EXPORTED: noted}
    live = live_like(rbac.binder_role(), uid="u-1", resourceVersion="7")
    return put(live, annotations, "metadata", "annotations")


def test_an_export_grants_itself_and_what_it_claims():
    claims: list[JSON] = [
        {"group": "", "resource": "secrets"},
        {"group": "b.example", "resource": "users"},
    ]
    export: Manifest = {"metadata": {"name": "dbs.a.example"}, "spec": {"permissionClaims": claims}}
    assert rbac_changes.granted(export) == ["dbs.a.example", "secrets", "users.b.example"]


NOTED = {
    "a role without a note": (None, {"a.x", "b.x"}, "a.x,b.x"),
    "another one comes": ("a.x,c.x", {"b.x"}, "a.x,b.x,c.x"),
    "somebody wrote into it": ("a.x,, c.x,a.x", {"b.x"}, "a.x,b.x,c.x"),
}


@pytest.mark.parametrize(("before", "now", "after"), NOTED.values(), ids=NOTED)
def test_what_is_new_is_noted_beside_what_was(before, now, after):
    live = role(before)
    (step,) = rbac_changes.note(CLUSTER, live, now)
    assert isinstance(step, Patch)
    assert get(step.body, "metadata", "annotations") == {keys.EVER_EXPORTED: after}
    assert get(step.body, "metadata", "uid") == "u-1"
    assert get(step.body, "metadata", "resourceVersion") == "7"
    assert rbac_changes.noted(role(after)) >= now


QUIET = {
    "nothing was exported": (role(None), set[str]()),
    "all of it is noted": (role("a.x,b.x"), {"b.x"}),
    "the role is not there yet": (None, {"a.x"}),
    "the role is on its way out": (deleting(role(None)), {"a.x"}),
}


@pytest.mark.parametrize(("live", "now"), QUIET.values(), ids=QUIET)
def test_nothing_is_written_in_vain(live, now):
    assert rbac_changes.note(CLUSTER, live, now) == ()
