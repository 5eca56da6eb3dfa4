"""What a ServiceBinding has the broker do, call by call, and what follows from each answer."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices import connection
from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices.binding.decide import Seen, next_step
from bind.osb.dataservices.binding.results import OVERLAP, answered
from bind.osb.decisions.record import identifier
from bind.osb.decisions.view import Place
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.catalogue import Schemas
from reconciler.core import keys
from reconciler.core.decision import Create, Decision, Delete, Patch
from reconciler.core.manifest import finalizers_of, get_map, get_text
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret
from tests.support import dataservices as objects
from tests.support.dataservices import NOW, UID, after, annotation, at_provider, conditions, message

SPEC = """
spec:
  forProvider: {instanceName: orders, acceptsIncomplete: true}
  writeConnectionSecretToRef: {namespace: shop, name: orders-creds}
"""
IDS = "instanceId: i-1, serviceID: service-1, planID: plan-small"
INTENT = SPEC + f"status: {{atProvider: {{{IDS}, state: Pending}}}}"
BOUND = (
    SPEC + f"status: {{atProvider: {{{IDS}, state: Created, connectionDetails: [{{port: '1'}}]}}}}"
)
INSTANCE = objects.managed(
    kinds.SERVICE_INSTANCE,
    "status: {atProvider: {instanceId: i-1, serviceId: service-1, planId: plan-small, "
    "state: provisioned}}",
)
DELETED = {"deletionTimestamp": objects.ago(5)}
CREDENTIALS = {"host": "db.example", "port": 5432, "username": "u", "password": "p-1"}
SECRET_OBJECT = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": connection.SECRET_TYPE,
    "metadata": {
        "namespace": "shop",
        "name": "orders-creds",
        "uid": "secret-uid",
        "resourceVersion": "3",
        "ownerReferences": [{"uid": UID, "controller": True}],
    },
    "data": {"host": base64.b64encode(b"db.example").decode()},
}
FIRST, SECOND, THIRD = (identifier(UID, number) for number in range(3))


def live(text=BOUND, /, annotations=None, *, created=None, **metadata):
    marks = {keys.EXTERNAL_NAME: "orders-x7k2p", keys.INSTANCE_TYPE: "x", **(annotations or {})}
    if text is BOUND if created is None else created:
        marks[keys.BINDING_CREATED] = "true"
    labels = {**objects.CLAIM, keys.INSTANCE_TYPE: "postgresql"}
    more = {"annotations": marks, "labels": labels}
    return objects.managed(kinds.SERVICE_BINDING, text, **more, **metadata)


def seen(of, **more):
    known: dict[str, Any] = {
        "config": objects.CONFIG,
        "usage": objects.USAGE,
        "catalogue": objects.CATALOGUE,
        "instance": INSTANCE,
        "secret": SECRET_OBJECT if annotation(of, keys.BINDING_CREATED) else None,
        "has_read": True,
        "confirmed": True,
        "place": Place("app-shop", "cluster-uid", "space-uid"),
    }
    return Seen("cp", kinds.SERVICE_BINDING, of, NOW, **(known | more))


def step(of, **more) -> Any:
    return next_step(seen(of, **more))


def follow(of, call, outcome, **more):
    """Return the object after an answer, and the decision."""
    decision = answered(seen(of, **more), call, outcome)
    assert isinstance(decision, Decision)
    return after(of, decision), decision


def quiet(**more):
    """Return a catalogue whose bindings cannot be read."""
    offering = replace(objects.CATALOGUE.offerings[0], bindings_retrievable=False)
    return {"catalogue": replace(objects.CATALOGUE, offerings=(offering,)), **more}


def given(**changed):
    return outcomes.Done(credentials=Secret(json.dumps(CREDENTIALS | changed)))


def ledger(of):
    return json.loads(annotation(of, keys.OSB_BINDINGS) or "{}")


BIND = messages.Bind("i-1", FIRST, "service-1", "plan-small")
FETCH = messages.FetchBinding("i-1", FIRST, "service-1", "plan-small")
UNBIND = messages.Unbind("i-1", FIRST, "service-1", "plan-small")


def test_parameters_that_a_plan_refuses_are_never_sent():
    small = replace(objects.SMALL, schemas=Schemas(bind={"required": ["role"]}))
    offering = replace(objects.CATALOGUE.offerings[0], plans=(small,))
    refusing = replace(objects.CATALOGUE, offerings=(offering,))
    fresh = live(SPEC, created=False)
    decision = step(fresh, catalogue=refusing)
    assert isinstance(decision, Decision)
    assert "plan small refuses it: parameters.role is missing" in message(after(fresh, decision))
    begun = live(INTENT, created=False)
    assert isinstance(step(begun, catalogue=refusing), messages.Bind)


# The first binding


def test_ids_and_finalizer_stand_there_before_the_first_call():
    fresh = live(SPEC, finalizers=[])
    held = after(fresh, step(fresh))
    assert finalizers_of(held) == [keys.MANAGED_RESOURCE]
    assert at_provider(held) == {
        "instanceId": "i-1", "serviceID": "service-1", "planID": "plan-small", "state": "Pending",
    }  # fmt: skip
    call = step(held)
    assert isinstance(call, messages.Bind)
    assert (call.binding, call.app, call.predecessor) == (UID, "space-uid", "")


WAITING = [
    ({"instance": None, "lookup": "No ServiceInstance has the labels"}, "No ServiceInstance has"),
    ({"instance": {**INSTANCE, "status": {}}}, "The service instance is not ready"),
    (
        {"instance": {**INSTANCE, "status": {**INSTANCE["status"], "pendingOperation": ""}}},
        "The service instance is not ready",
    ),
    ({"secret": {**SECRET_OBJECT, "type": "Opaque"}}, "Secret shop/orders-creds belongs to"),
    (
        {"secret": {**SECRET_OBJECT, "metadata": {"ownerReferences": [{"controller": True}]}}},
        "belongs to something else",
    ),
]


@pytest.mark.parametrize(("more", "problem"), WAITING)
def test_nothing_is_asked_before(more, problem):
    known = after(live(INTENT), step(live(INTENT), **more))
    assert problem in message(known)
    assert conditions(known)["Ready"] == "Creating"


def test_credentials_come_into_a_secret_before_they_count_as_handed_out():
    known, decision = follow(live(INTENT), BIND, given(), secret=None)
    made, noted = decision.tasks[0].steps
    assert isinstance(made, Create)
    assert isinstance(noted, Patch)
    assert made.manifest["type"] == "connection.crossplane.io/v1alpha1"
    assert get_text(made.manifest, "metadata", "annotations", keys.OSB_BINDING) == UID
    assert get_map(made.manifest, "data")["port"] == base64.b64encode(b"5432").decode()
    assert annotation(known, keys.BINDING_CREATED) == "true"
    assert not annotation(known, keys.OSB_BINDINGS)
    assert conditions(known) == {"Ready": "Available", "Synced": "ReconcileSuccess"}
    assert at_provider(known)["connectionDetails"] == [
        {"hostURL": "db.example", "port": "5432", "label": "SQL"}
    ]
    assert "p-1" not in repr(decision)


def test_a_binding_without_secret_is_handed_out_as_well():
    bare = live(INTENT.replace("writeConnectionSecretToRef", "unknown"))
    known, decision = follow(bare, BIND, given(), secret=None)
    assert annotation(known, keys.BINDING_CREATED) == "true"
    assert not [one for one in decision.steps if isinstance(one, Create)]


def test_an_asynchronous_binding_is_polled_and_read():
    known, decision = follow(live(INTENT), BIND, outcomes.Accepted(Secret("task-1")))
    assert decision.again == timedelta(seconds=10)
    poll = step(known)
    assert isinstance(poll, messages.LastOperation)
    assert (poll.binding, poll.operation) == (UID, Secret("task-1"))
    assert step(known, rest=timedelta(seconds=4)) == Decision(
        again=timedelta(seconds=4), sums_up=False
    )
    waiting, _ = follow(known, poll, outcomes.Progress("in progress"))
    assert step(waiting) == poll
    assert answered(seen(known), poll, outcomes.Progress("succeeded")) == FETCH
    bound, _ = follow(known, FETCH, given(), secret=None)
    assert annotation(bound, keys.BINDING_CREATED) == "true"
    assert not annotation(bound, keys.OSB_OPERATION)


def test_an_asynchronous_binding_that_cannot_be_read_is_asked_for_once_more():
    known, _ = follow(live(INTENT), BIND, outcomes.Accepted(None), **quiet())
    poll = step(known, **quiet())
    again = answered(seen(known, **quiet()), poll, outcomes.Progress("succeeded"))
    assert isinstance(again, messages.Bind)
    assert again.binding == FIRST


def test_a_binding_whose_credentials_cannot_be_had_is_deleted_and_not_made_again():
    known, _ = follow(live(INTENT), BIND, outcomes.Done(), **quiet(), secret=None)
    assert "NoCredentials" in message(known)
    assert step(known, **quiet()) == UNBIND
    gone, _ = follow(known, UNBIND, outcomes.Gone(), **quiet())
    assert step(gone, **quiet()) == Decision()
    gone["metadata"]["annotations"][keys.OSB_RETRY] = "please"
    assert step(gone, **quiet()).binding == SECOND


CONFLICTS = [(outcomes.Conflict("it is there"), True), (outcomes.Done(), True)]


@pytest.mark.parametrize(("outcome", "reads"), CONFLICTS)
def test_what_exists_is_read(outcome, reads):
    assert (answered(seen(live(INTENT)), BIND, outcome) == FETCH) == reads


def test_what_exists_and_cannot_be_read_makes_place_for_another():
    known, _ = follow(live(INTENT), BIND, outcomes.Conflict("it is there"), **quiet())
    assert step(known) == UNBIND
    gone, _ = follow(known, UNBIND, outcomes.Gone())
    assert step(gone).binding == SECOND


def test_what_failed_makes_place_for_another():
    known, _ = follow(live(INTENT), BIND, outcomes.Accepted(Secret("t")))
    failed, decision = follow(known, step(known), outcomes.Progress("failed", "no"))
    assert message(failed) == "no"
    assert decision.again
    assert step(failed) == UNBIND


def test_a_refusal_stands():
    known, _ = follow(live(INTENT), BIND, outcomes.Refused(400, "", "no"))
    assert conditions(known)["Ready"] == "Unavailable"
    assert step(known) == Decision()
    known["metadata"]["generation"] = 2
    assert isinstance(step(known), messages.Bind)


@pytest.mark.parametrize("outcome", [outcomes.Unknown("HTTP 500"), outcomes.Unsent("no way")])
def test_a_lost_answer_is_asked_for_again_with_the_same_id(outcome):
    call = step(live(INTENT))
    known, _ = follow(live(INTENT), call, outcome)
    assert step(known) == call


# What is bound


def test_all_is_well():
    assert step(live()) == FETCH
    known, decision = follow(live(), FETCH, given())
    assert conditions(known) == {"Ready": "Available", "Synced": "ReconcileSuccess"}
    assert not decision.steps
    assert step(known, rest=timedelta(1)) == Decision(again=timedelta(1), sums_up=False)


FETCHES = [
    ("500", outcomes.Unknown("HTTP 500", 500), None),
    ("400", outcomes.Refused(400, "", "what?"), None),
    ("404 of a gateway", outcomes.Absent(is_json=False), None),
    ("404", outcomes.Absent(is_json=True), "Missing"),
    ("410", outcomes.Gone(), "Missing"),
]


@pytest.mark.parametrize(("_", "outcome", "reason"), FETCHES, ids=[row[0] for row in FETCHES])
def test_a_fetch_that_says(_, outcome, reason):
    known, decision = follow(live(), FETCH, outcome)
    assert conditions(known).get("Ready") == reason
    assert not decision.steps


def test_a_binding_of_the_original_needs_no_call_where_it_cannot_be_read():
    known = after(live(), step(live(), **quiet()))
    assert conditions(known) == {"Ready": "Available", "Synced": "ReconcileSuccess"}


def test_what_the_original_does_not_say_comes_from_the_secret():
    bare = live(BOUND.replace(", connectionDetails: [{port: '1'}]", ""), created=True)
    texts = {"host": "db.example", "port": "5432"}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    known = after(bare, step(bare, **quiet(secret={**SECRET_OBJECT, "data": data})))
    assert at_provider(known)["connectionDetails"][0]["hostURL"] == "db.example"


def test_a_lost_secret_is_written_anew():
    assert step(live(), secret=None) == FETCH
    _, decision = follow(live(), FETCH, given(), secret=None)
    assert [type(one) for one in decision.steps] == [Create]


def test_a_lost_secret_that_cannot_be_read_is_replaced_at_once():
    known = after(live(), step(live(), **quiet(secret=None)))
    call = step(known, **quiet(secret=None))
    assert (call.binding, call.predecessor) == (SECOND, FIRST)
    bound, _ = follow(known, call, given(password="p-2"), **quiet(secret=None))
    assert step(bound) == UNBIND


# Rotation


def test_a_rotation():
    asked = live(annotations={keys.OSB_ROTATE: "1"})
    known = after(asked, step(asked))
    assert ledger(known)["coming"] == 1
    call = step(known)
    assert isinstance(call, messages.Bind)
    assert (call.binding, call.predecessor) == (SECOND, FIRST)
    bound, decision = follow(known, call, given(password="p-2"))
    write = decision.steps[0]
    assert isinstance(write, Patch)
    assert write.ref.kind == SECRET
    assert get_map(write.body, "data")["password"] == base64.b64encode(b"p-2").decode()
    assert ledger(bound)["old"] == {FIRST: objects.ago(-OVERLAP.total_seconds())}
    assert step(bound) == replace(FETCH, binding=SECOND)
    later = replace(seen(bound), now=NOW + OVERLAP)
    assert next_step(later) == UNBIND
    gone, _ = follow(bound, UNBIND, outcomes.Gone())
    assert ledger(gone)["old"] == {}
    assert step(gone) == replace(FETCH, binding=SECOND)


def test_a_crash_before_the_secret_asks_for_the_same_again():
    asked = live(annotations={keys.OSB_ROTATE: "1"})
    known = after(asked, step(asked))
    assert step(known) == step(json.loads(json.dumps(known)))


def test_each_text_rotates_once():
    marks = {keys.OSB_ROTATE: "1", keys.OSB_BINDINGS: '{"number":1,"rotate":"1"}'}
    assert step(live(annotations=marks)) == replace(FETCH, binding=SECOND)
    marks[keys.OSB_ROTATE] = "2"
    again = after(live(annotations=marks), step(live(annotations=marks)))
    assert step(again).binding == THIRD


def test_a_rotation_that_is_refused_leaves_the_old():
    asked = live(annotations={keys.OSB_ROTATE: "1"})
    known = after(asked, step(asked))
    refused, _ = follow(known, step(known), outcomes.Refused(400, "", "no"))
    assert message(refused) == "no"
    assert "Ready" not in conditions(refused)
    assert isinstance(step(refused), Decision)
    assert ledger(refused)["number"] == 0


def test_the_same_credentials_are_said_to_be():
    asked = live(annotations={keys.OSB_ROTATE: "1"})
    known = after(asked, step(asked))
    texts = connection.flattened(Secret(json.dumps(CREDENTIALS)))
    data = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    _, decision = follow(known, step(known), given(), secret={**SECRET_OBJECT, "data": data})
    assert [note.reason for note in decision.notes] == ["SameCredentials"]


# Leaving


def test_what_was_never_asked_for_is_not_deleted():
    fresh = live(SPEC, **DELETED)
    assert finalizers_of(after(fresh, step(fresh))) == []


@pytest.mark.parametrize("text", [INTENT, BOUND])
def test_what_may_be_there_is_deleted(text):
    leaving = live(text, **DELETED)
    assert step(leaving, instance=None) == UNBIND
    gone, decision = follow(leaving, UNBIND, outcomes.Gone())
    assert finalizers_of(gone) == []
    assert (text is BOUND) == any(isinstance(one, Delete) for one in decision.steps)


def test_all_bindings_are_deleted_the_one_that_counts_last():
    marks = {keys.OSB_BINDINGS: json.dumps({"number": 1, "coming": 2, "old": {FIRST: "x"}})}
    leaving = live(annotations=marks, **DELETED)
    for binding in (FIRST, THIRD, SECOND):
        assert step(leaving).binding == binding
        leaving, _ = follow(leaving, replace(UNBIND, binding=binding), outcomes.Gone())
    assert finalizers_of(leaving) == []


def test_an_asynchronous_deletion_is_waited_for():
    leaving = live(**DELETED)
    known, _ = follow(leaving, UNBIND, outcomes.Accepted(Secret("task-9")))
    poll = step(known)
    assert poll.binding == FIRST
    assert finalizers_of(follow(known, poll, outcomes.Gone())[0]) == []
    for outcome in (outcomes.Progress("failed", "no"), outcomes.Absent(is_json=True)):
        assert step(follow(known, poll, outcome)[0]) == UNBIND


def test_what_is_being_made_is_polled_to_its_end_before_it_is_deleted():
    known, _ = follow(live(INTENT), BIND, outcomes.Accepted(Secret("t")))
    known["metadata"]["deletionTimestamp"] = objects.ago(1)
    poll = step(known)
    assert isinstance(poll, messages.LastOperation)
    assert next_step(replace(seen(known), now=NOW + timedelta(minutes=10))) == UNBIND
    over, _ = follow(known, poll, outcomes.Progress("succeeded"))
    assert step(over) == UNBIND


@pytest.mark.parametrize("outcome", [outcomes.Conflict("x"), given()])
def test_what_a_lost_answer_made_is_no_whole_binding(outcome):
    known, _ = follow(live(INTENT), BIND, outcomes.Unknown("HTTP 500", 500))
    tried, _ = follow(known, BIND, outcome)
    assert step(tried) == UNBIND
    assert step(follow(tried, UNBIND, outcomes.Gone())[0]).binding == SECOND


# The Secret

FLAT = [
    ({"a": "x", "n": 5, "t": True, "z": None}, {"a": "x", "n": "5", "t": "true", "z": "<nil>"}),
    ({"a": {"b": {"c": "x"}, "d": "y"}}, {"a.b.c": "x", "a.d": "y"}),
    ({"hosts": ["a:1", "b:2"], "l": [{"k": 1}]}, {"hosts": "[a:1 b:2]", "l": "[map[k:1]]"}),
    ({"port": 6379, "valkey": {"port": 6379}}, {"valkey.port": "6379"}),
    ({"port": 1, "valkey": {"port": 6379}}, {"port": "1", "valkey.port": "6379"}),
    ({"a+b": "x", "c": {"d e": "y"}}, {"a_b": "x", "c.d_e": "y"}),
    ({}, {}),
]


@pytest.mark.parametrize(("credentials", "texts"), FLAT)
def test_credentials_as_texts(credentials, texts):
    assert connection.flattened(Secret(json.dumps(credentials))) == texts


DETAILS = [
    ("postgresql", {"host": "h", "port": "1"}, [("h", "1", "SQL")]),
    ("keyvalue", {"host": "h", "valkey.port": "2"}, [("h", "2", "KeyValue")]),
    ("mongodb", {"hosts": "[h:3 i:3]"}, [("h", "3", "MongoDB")]),
    ("search", {"host": "[https://h:4]"}, [("https://h", "4", "Search")]),
    ("logme2", {"host": "h:5"}, [("h", "5", "Logme2")]),
    (
        "prometheus",
        {"prometheus_urls": "[http://h:6/x]", "graphite_exporters": "[g]",
         "graphite_exporter_port": "7"},
        [("http://h", "6", "Prometheus"), ("g", "7", "Graphite")],
    ),
    ("else", {"host": "h", "port": "8"}, [("h", "8", None)]),
    ("else", {"uri": "postgres://u:p@h:1"}, []),
    ("search", {"host": "u:p@h:1"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "texts", "wanted"), DETAILS)
def test_where_a_service_is_reached(kind, texts, wanted):
    found: Any = connection.details(texts, kind)
    assert [(one["hostURL"], one["port"], one.get("label")) for one in found] == wanted
