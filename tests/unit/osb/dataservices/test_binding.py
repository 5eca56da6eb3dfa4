"""A ServiceBinding: what it holds of its records, and what goes to the broker, call by call.

The decisions are those of claims, and proved there.
"""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices import connection
from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices.bindings import BINDINGS, needs_secret
from bind.osb.dataservices.connection import Seen
from bind.osb.dataservices.store import Kept
from bind.osb.decisions.credentials import OVERLAP
from bind.osb.decisions.record import identifier
from bind.osb.decisions.view import Place
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core import keys
from reconciler.core.decision import Create, Delete, Patch
from reconciler.core.manifest import finalizers_of, get_map, get_text, put
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
SECRET_OBJECT: dict[str, Any] = {
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
    if text is not SPEC:
        marks[keys.OSB_ORIGIN] = objects.URL
    more = {"annotations": marks, "labels": {**objects.CLAIM, keys.INSTANCE_TYPE: "postgresql"}}
    return objects.managed(kinds.SERVICE_BINDING, text, **more, **metadata)


def seen(of, now=NOW, **more):
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
    return Seen("cp", kinds.SERVICE_BINDING, of, now, **(known | more))


def process(of, **more):
    return objects.Process(BINDINGS, seen, of, **more)


def step(of, **more) -> Any:
    """Return the call of a process that remembers nothing, or what it writes."""
    turn = BINDINGS.turn(seen(of, **more), Kept())
    return turn.decision if turn.ask is None else turn.ask.call


def quiet(**more):
    """Return a catalogue whose bindings cannot be read."""
    offering = replace(objects.CATALOGUE.offerings[0], bindings_retrievable=False)
    return {"catalogue": replace(objects.CATALOGUE, offerings=(offering,)), **more}


def given(**changed):
    return outcomes.Done(credentials=Secret(json.dumps(CREDENTIALS | changed)))


BIND = messages.Bind("i-1", FIRST, "service-1", "plan-small")
FETCH = messages.FetchBinding("i-1", FIRST, "service-1", "plan-small")
UNBIND = messages.Unbind("i-1", FIRST, "service-1", "plan-small")


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


# What goes on


def ledger_of(**more):
    empty = {"number": 0, "coming": 0, "old": {}, "rotate": "", "refused": ""}
    return {keys.OSB_BINDINGS: json.dumps(empty | more, separators=(",", ":"), sort_keys=True)}


def begun(binding, **more):
    text = json.dumps({"binding": binding, "since": objects.ago(9), **more}, sort_keys=True)
    return {keys.OSB_OPERATION: text.replace(" ", "")}


POLL = messages.LastOperation("i-1", "service-1", "plan-small", Secret("t"), binding=FIRST)
IN_AN_HOUR = objects.ago(-3600)
ROTATING = ledger_of(coming=1) | begun(SECOND, key="t")
UNBINDING = ledger_of(number=1, old={FIRST: objects.ago(1)}) | begun(FIRST, unbind=True)
STATES = [  # as the tree before wrote them, and the call that each of them has made
    ("ids alone", INTENT, {}, BIND),
    ("tried", INTENT, ledger_of(tries=1), BIND),
    ("refused", INTENT, ledger_of(refused="1  "), None),
    ("being made", INTENT, begun(FIRST, key="t"), POLL),
    ("failed once", INTENT, ledger_of(number=1, old={FIRST: objects.ago(0)}), UNBIND),
    ("bound", BOUND, {}, None),
    ("rotated", BOUND, ledger_of(number=1, rotate="1", old={FIRST: IN_AN_HOUR}), None),
    ("long since", BOUND, ledger_of(number=1, rotate="1", old={FIRST: objects.ago(1)}), UNBIND),
    ("rotating", BOUND, ledger_of(coming=1), replace(BIND, binding=SECOND)),
    ("rotation refused", BOUND, ledger_of(coming=1, refused="1  "), None),
    ("being rotated", BOUND, ROTATING, replace(POLL, binding=SECOND)),
    ("being unbound", BOUND, UNBINDING, replace(POLL, operation=None)),
]  # fmt: skip


@pytest.mark.parametrize(("_", "text", "marks", "call"), STATES, ids=[row[0] for row in STATES])
def test_what_the_tree_before_wrote_goes_on(_, text, marks, call):
    of = live(text, marks, created=text is BOUND)
    known = seen(of, has_read=False)
    assert BINDINGS.stated(known, BINDINGS.records(known)) == BINDINGS.present(known)
    assert objects.sorts(process(of).call()) == objects.sorts(call)


@pytest.mark.parametrize(("_", "text", "marks", "call"), STATES, ids=[row[0] for row in STATES])
def test_all_that_may_be_there_is_deleted(_, text, marks, call):
    its = process(live(text, marks, created=text is BOUND, **DELETED))
    gone = set()
    while finalizers_of(its.live):
        call = its.call()
        if isinstance(call, messages.Unbind):
            gone.add(call.binding)
        if call is not None:
            its.answer(outcomes.Gone())
    ledger = json.loads(marks.get(keys.OSB_BINDINGS, "{}"))
    numbers = {ledger.get("number", 0), ledger.get("coming", 0)}
    there = {*ledger.get("old", {}), *(identifier(UID, one) for one in numbers)}
    if "unbind" in marks.get(keys.OSB_OPERATION, ""):
        there -= {FIRST}  # its own operation ended
    if ledger.get("refused"):
        there -= {identifier(UID, max(numbers))}
    assert gone == there
    assert any(isinstance(one, Delete) for one in its.decision.steps) == (text is BOUND)


def test_credentials_come_into_a_secret_before_they_count_as_handed_out():
    its = process(live(INTENT))
    its.answer(given())
    made, noted = its.decision.tasks[0].steps
    assert isinstance(made, Create)
    assert isinstance(noted, Patch)
    assert made.manifest["type"] == "connection.crossplane.io/v1alpha1"
    assert get_text(made.manifest, "metadata", "annotations", keys.OSB_BINDING) == UID
    assert get_map(made.manifest, "data")["port"] == base64.b64encode(b"5432").decode()
    assert annotation(its.live, keys.BINDING_CREATED) == "true"
    assert json.loads(annotation(its.live, keys.OSB_BINDINGS))["made"] == objects.ago(0)
    assert conditions(its.live) == {"Ready": "Available", "Synced": "ReconcileSuccess"}
    assert at_provider(its.live)["connectionDetails"] == [
        {"hostURL": "db.example", "port": "5432", "label": "SQL"}
    ]
    assert "p-1" not in repr(its.decision)


def test_a_binding_without_secret_is_handed_out_as_well():
    its = process(live(INTENT.replace("writeConnectionSecretToRef", "unknown")), secret=None)
    its.answer(given())
    assert annotation(its.live, keys.BINDING_CREATED) == "true"
    assert not [one for one in its.decision.steps if isinstance(one, Create)]
    assert its.call() is None
    assert conditions(its.live)["Ready"] == "Available"


def test_a_secret_that_changed_while_no_process_was_there_gets_its_credentials_again():
    its = process(live(INTENT))
    its.answer(given())
    assert process(its.live, **with_secret(CREDENTIALS, FIRST)).call() is None
    assert process(its.live, **with_secret({"password": "x"}, FIRST)).call() == FETCH


def test_a_refusal_is_stated_though_its_process_ended_before():
    for text, number in ((INTENT, 0), (BOUND, 1)):
        its = process(live(text, ledger_of(coming=number, refused="1  ")))
        assert its.call() is None
        assert "words were lost" in message(its.live)


def test_an_asynchronous_binding_is_polled_and_read():
    its = process(live(INTENT))
    its.answer(outcomes.Accepted(Secret("task-1")))
    poll = step(its.live)
    assert (poll.binding, poll.operation) == (UID, Secret("task-1"))
    its.waits()
    assert its.answer(outcomes.Progress("succeeded"), poll) == FETCH
    assert step(its.live) == poll  # after a restart
    its.answer(given(), FETCH)
    assert annotation(its.live, keys.BINDING_CREATED) == "true"
    assert not annotation(its.live, keys.OSB_OPERATION)


def test_what_the_original_does_not_say_comes_from_the_secret():
    bare = live(BOUND.replace(", connectionDetails: [{port: '1'}]", ""), created=True)
    texts = {"host": "db.example", "port": "5432"}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    its = process(bare, **quiet(secret={**SECRET_OBJECT, "data": data}))
    assert its.call() is None
    assert at_provider(its.live)["connectionDetails"][0]["hostURL"] == "db.example"


# Rotation


def with_secret(credentials, binding):
    texts = connection.flattened(Secret(json.dumps(credentials)))
    data = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    named = put(SECRET_OBJECT, {keys.OSB_BINDING: binding}, "metadata", "annotations")
    return {"secret": put(named, data, "data")}


def test_a_rotation():
    its = process(live(annotations={keys.OSB_ROTATE: "1"}), **with_secret(CREDENTIALS, FIRST))
    call = its.call()
    assert isinstance(call, messages.Bind)
    assert (call.binding, call.predecessor) == (SECOND, FIRST)
    assert json.loads(annotation(its.live, keys.OSB_BINDINGS))["coming"] == 1
    its.answer(given(password="p-2"))
    write = its.decision.steps[0]
    assert isinstance(write, Patch)
    assert write.ref.kind == SECRET
    assert get_map(write.body, "data")["password"] == base64.b64encode(b"p-2").decode()
    held = json.loads(annotation(its.live, keys.OSB_BINDINGS))
    assert (held["number"], held["rotate"]) == (1, "1")
    assert held["old"] == {FIRST: objects.ago(-OVERLAP.total_seconds())}
    its.more |= with_secret(CREDENTIALS | {"password": "p-2"}, SECOND)
    assert its.call() is None
    its.now += OVERLAP
    its.answer(outcomes.Gone(), UNBIND)
    assert json.loads(annotation(its.live, keys.OSB_BINDINGS))["old"] == {}
    assert process(its.live, **its.more).call() is None


def test_equal_credentials_end_the_rotation_and_both_bindings_stay():
    its = process(live(annotations={keys.OSB_ROTATE: "1"}), **with_secret(CREDENTIALS, FIRST))
    its.answer(given())
    assert [note.reason for note in its.decision.notes] == ["SameCredentials"]
    assert "gives the same credentials" in message(its.live)
    its.more |= with_secret(CREDENTIALS, SECOND)
    for one in (its, process(its.live, **its.more)):
        one.now = NOW + timedelta(days=9)
        assert one.call() is None
    its.live["metadata"]["annotations"][keys.OSB_ROTATE] = "2"
    assert its.call().binding == THIRD
    its.live["metadata"] |= DELETED
    gone = set()
    while finalizers_of(its.live):
        gone.add(its.call().binding)
        its.answer(outcomes.Gone())
    assert gone == {FIRST, SECOND, THIRD}


def test_a_rotation_that_is_refused_leaves_the_old():
    its = process(live(annotations={keys.OSB_ROTATE: "1"}))
    its.answer(outcomes.Refused("no"))
    assert message(its.live) == "no"
    assert "Ready" not in conditions(its.live)
    for one in (its, process(its.live)):
        assert one.call() is None
    assert message(its.live) == "no"


def test_the_binding_of_a_lost_instance_is_not_ready_and_made_anew_with_it():
    there = {"type": "Ready", "status": "True", "reason": "Available"}
    ready = live()
    ready["status"]["conditions"] = [there | {"lastTransitionTime": objects.ago(60)}]
    at = INSTANCE["status"]["atProvider"]
    lost = {**INSTANCE, "status": {"atProvider": {**at, "state": "deleted"}}}
    its = process(ready, instance=lost)
    assert its.call() is None
    assert conditions(its.live) == {"Ready": "Missing", "Synced": "ReconcileError"}
    anew = {**at, "provisionedAt": objects.ago(5)}
    for one in (its, process(ready)):
        one.more["instance"] = {**INSTANCE, "status": {"atProvider": anew}}
        assert one.call().binding == SECOND
        one.answer(given(password="p-2"))
        one.more |= with_secret(CREDENTIALS | {"password": "p-2"}, SECOND)
        assert conditions(one.live)["Ready"] == "Available"
        assert one.call() is None
        assert process(one.live, **one.more).call() is None


# Leaving


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


def test_a_deletion_amid_a_rotation_ends_though_nobody_has_read_the_secret():
    amid, gone = connection.Ledger(coming=1).text(), []
    its = process(live(BOUND, {keys.OSB_BINDINGS: amid}, **DELETED), secret=None, has_read=False)
    while finalizers_of(its.live):
        if needs_secret(its.look(), its.kept):
            its.more |= {"has_read": True, "secret": SECRET_OBJECT}
        gone.append(its.call().binding)
        its.answer(outcomes.Gone())
        assert len(gone) < 3
    assert set(gone) == {FIRST, SECOND}
