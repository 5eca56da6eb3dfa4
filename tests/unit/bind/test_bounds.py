"""What bounds tenants: which Namespace is a space, what is counted, written and kept."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bind import bounds
from bind.bounds import IN_SPACE, Countable, countable, hard, is_space, pod_security, quota
from bind.export import decide
from bind.export.decide import RequestView
from reconciler.blueprints.export import Terms
from reconciler.core import keys
from reconciler.core.decision import Patch
from reconciler.core.times import format_time

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
OWNER = keys.app_cluster_binding_labels("team-a", "shop")


def crd(**age):
    return {"metadata": {"creationTimestamp": format_time(NOW - timedelta(**age))}}


def namespace(name, *, annotations=None, labels=None):
    metadata = {"name": name, "uid": "u", "annotations": annotations or {}, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def bound(**labels):
    return {"metadata": {"labels": labels}}


SPACES = {
    "by its identity": (namespace("x", annotations={keys.IDENTITY: "a#b"}), bound(), True),
    "by its name": (namespace("klutch-bind-team-a-shop"), bound(**OWNER), True),
    "another name": (namespace("kube-system"), bound(**OWNER), False),
    "nothing says so": (namespace("kube-system"), bound(), False),
}


@pytest.mark.parametrize(("live", "binding", "want"), SPACES.values(), ids=SPACES)
def test_which_namespace_is_a_space(live, binding, want):
    assert is_space(live, binding) is want


A, B, FLEET = "a.example", "b.example", {"labels": {keys.FLEET: "shop"}}
LET_GO = {**FLEET, "annotations": {keys.RELEASED: format_time(NOW)}}
NOTES = {
    "nothing noted": (None, {}, None),
    "nothing bound": ("", {}, frozenset()),
    "one": (A, {}, frozenset({A})),
    "as administrators write it": (f" {A}, {B},", {}, frozenset({A, B})),
    "taken over by a fleet": (A, FLEET, None),
    "let go by that fleet": (A, LET_GO, frozenset({A})),
    "let go by the fleet that made it": (None, LET_GO, None),
}


@pytest.mark.parametrize(("note", "marks", "want"), NOTES.values(), ids=NOTES)
def test_what_was_bound_at_the_door(note, marks, want):
    annotations = {} if note is None else {keys.MAY_BIND: note}
    annotations |= marks.get("annotations", {})
    live = namespace("x", annotations=annotations, labels=marks.get("labels"))
    assert bounds.bound_at_door(live) == want


def test_a_door_note_is_read_as_it_was_written():
    noted = bounds.door_note([B, A])
    assert noted == {keys.MAY_BIND: f"{A},{B}"}
    assert bounds.bound_at_door(namespace("x", annotations=noted)) == frozenset({A, B})


def test_pod_security_is_said_once_and_never_changed():
    (step,) = pod_security("cp", namespace("x"))
    assert isinstance(step, Patch)
    said = namespace("x", labels={keys.POD_SECURITY_ENFORCE: "baseline"})
    assert pod_security("cp", said) == ()


COUNTED = {
    "built in": (["secrets", "configmaps"], {}, {"secrets", "configmaps"}, None),
    "an old kind": (["a.b"], {"a.b": crd(minutes=2)}, {"a.b"}, None),
    "a new kind": (["a.b", "secrets"], {"a.b": crd(seconds=30)}, {"secrets"}, 90),
    "an unknown kind": (["a.b"], {}, set(), None),
    "a name that a quota cannot hold": (["a" * 64], {"a" * 64: crd(days=1)}, set(), None),
}


@pytest.mark.parametrize(("resources", "crds", "want", "again"), COUNTED.values(), ids=COUNTED)
def test_what_may_be_counted(resources, crds, want, again):
    found = countable(resources, crds, NOW)
    assert found.resources == want
    assert found.again == (None if again is None else timedelta(seconds=again))


def test_no_number_is_no_quota():
    assert hard(0, Countable(frozenset(IN_SPACE))) == {}
    assert quota("cp", None, "x", {}) == ()


def live_quota(held: Any, used: Any, noted: str):
    metadata = {"name": "klutch-bind", "namespace": "x", "uid": "u", "resourceVersion": "1"}
    notes = {"annotations": {keys.COUNTED: noted}} if noted else {}
    live = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {**metadata, **notes}}
    return {**live, "spec": {"hard": held}, "status": {"used": used}}


SECRETS = "count/secrets"
WANTED = {SECRETS: 5000}


# What is held, is used, and was noted; what is held then (None: nothing is written), and noted.
QUOTAS: dict[str, tuple[Any, Any, str, str | None, str]] = {
    "another number": ({SECRETS: "4"}, {}, "", "5000", ""),
    "few at first": ({SECRETS: "5k"}, {SECRETS: "7"}, "", "5000", f"{SECRETS}=7"),
    "many at first": ({SECRETS: "20k"}, {SECRETS: "4k"}, "", "8000", f"{SECRETS}=4000"),
    "more later": ({SECRETS: "5k"}, {SECRETS: "4k"}, f"{SECRETS}=7", None, ""),
    "a note that is none": ({SECRETS: "5k"}, {}, f"x,{SECRETS}=many", None, ""),
}


@pytest.mark.parametrize(("held", "used", "noted", "want", "note"), QUOTAS.values(), ids=QUOTAS)
def test_a_quota_is_repaired_and_stops_nobody_with_an_upgrade(held, used, noted, want, note):
    steps: Any = quota("cp", live_quota(held, used, noted), "x", WANTED)
    assert [one.body["spec"]["hard"][SECRETS] for one in steps] == ([want] if want else [])
    assert [one.body["metadata"]["annotations"][keys.COUNTED] for one in steps] == [note] * len(
        steps
    )


# What is kept of objects that app clusters write.

HUGE = "x" * 10_000
METADATA: Any = {
    "name": "a",
    "namespace": "s",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": format_time(NOW),
    "managedFields": [{"manager": HUGE}],
    "annotations": {"a": HUGE, keys.DELETION_POLICY: HUGE},
    "labels": {keys.APP_CLUSTER_BINDING_NAME: "shop", "other": "x"},
    "finalizers": [f"a.example/{n}" for n in range(100)],
}
WHOLE: Any = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "K", "metadata": METADATA}


def test_of_a_request_what_it_asks_for():
    resources = [
        {"group": "a.example", "resource": f"r{n}", "permissionClaims": [HUGE]} for n in range(500)
    ]
    live: Any = {
        **WHOLE,
        "spec": {"parameters": {"a": HUGE}, "resources": resources, "b": HUGE},
        "status": {"phase": "Pending"},
    }
    kept: Any = bounds.trimmed_request(live)
    assert len(str(kept)) < 10_000
    assert kept["status"] == {"phase": "Pending"}
    assert kept["metadata"]["labels"] == {keys.APP_CLUSTER_BINDING_NAME: "shop"}
    assert decide.resources(kept)[:2] == ["r0.a.example", "r1.a.example"]
    decision = decide.answer(
        RequestView("cp", kept), terms=Terms("Namespaced", "Prefixed"), now=NOW
    )
    (reported,) = decision.conditions
    assert (reported.type, reported.reason) == ("ExportsReady", "TooManyResources")


def test_of_a_name_no_more_than_shows_that_it_is_too_long():
    resources = [{"group": HUGE, "resource": HUGE}]
    kept: Any = bounds.trimmed_request({**WHOLE, "spec": {"resources": resources}})
    assert len(decide.resources(kept)[0]) < 600


def test_of_a_binding_whether_it_says_anything_of_claims():
    spec: Any = {"kubeconfigSecretRef": {"name": "k"}, "permissionClaims": [HUGE]}
    kept: Any = bounds.trimmed_binding({**WHOLE, "spec": spec})
    assert kept["spec"] == {"kubeconfigSecretRef": {"name": "k"}, "permissionClaims": []}
    assert len(kept["metadata"]["finalizers"]) == 100
    assert len(kept["metadata"]["annotations"][keys.DELETION_POLICY]) < 2000
    bare: Any = bounds.trimmed_binding({**WHOLE, "spec": {}})
    assert "permissionClaims" not in bare["spec"]


def test_of_the_others_hardly_anything():
    for trim in (
        bounds.trimmed_service_namespace,
        bounds.trimmed_marks,
        bounds.trimmed_cluster_binding,
    ):
        kept: Any = trim({**WHOLE, "spec": {"serviceProviderSpec": HUGE}, "data": {"a": HUGE}})
        assert len(str(kept)) < 1000


NOISE = [{"type": f"T{n}", "status": "True", "message": "m" * 40} for n in range(17_000)]
READY_ROW = {"type": "Ready", "status": "False", "message": "x" * 2_000}
FLOODS: dict[str, Any] = {
    "conditions": {"conditions": [*NOISE, READY_ROW]},
    "one condition again and again": {"conditions": [READY_ROW] * 600},
    "another field": {
        "conditions": [READY_ROW],
        "acceptedNames": {f"k{n}": {} for n in range(9999)},
    },
    "one long message": {"conditions": [{**READY_ROW, "message": "x" * 90_000}]},
}
OURS: dict[str, Any] = {
    "a request": bounds.trimmed_request,
    "a ClusterBinding": bounds.trimmed_cluster_binding,
    "an export": bounds.trimmed_export,
}


@pytest.mark.parametrize("trim", OURS.values(), ids=OURS)
@pytest.mark.parametrize("status", FLOODS.values(), ids=FLOODS)
def test_a_status_is_bounded_whatever_a_tenant_writes(trim: Any, status: Any) -> None:
    cut = trim({"metadata": {"name": "x"}, "status": {**status, "phase": "Failed"}})["status"]
    assert cut == {"phase": "Failed", "conditions": [{**READY_ROW, "message": "x" * 512}]}


@pytest.mark.parametrize("trim", OURS.values(), ids=OURS)
def test_a_status_of_usual_length_stays_as_it_is(trim: Any) -> None:
    status = {"conditions": [*NOISE[:100], READY_ROW], "heartbeatInterval": "10s"}
    assert trim({"metadata": {"name": "x"}, "status": status})["status"] == status
