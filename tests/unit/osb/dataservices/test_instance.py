"""A ServiceInstance: what it holds of its record, and what goes to the broker, call by call.

The decisions are those of claims, and proved there.
"""

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices import rules
from bind.osb.dataservices.instances import INSTANCES, Seen
from bind.osb.dataservices.store import Kept
from bind.osb.decisions.record import identifier
from bind.osb.decisions.view import Place
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core import keys
from reconciler.core.decision import Create, Decision
from reconciler.core.manifest import canonical, finalizers_of, get_text, labels_of, name_of, put
from reconciler.core.secret import Secret
from tests.support import dataservices as objects
from tests.support.dataservices import NOW, UID, after, at_provider, conditions, message

SPEC = """
spec:
  forProvider:
    acceptsIncomplete: true
    serviceName: a9s-postgresql15
    planName: small
    organizationGuid: org
    spaceGuid: space
    parameters: {max_connections: 50}
"""
IDS = f"instanceId: {UID}, serviceId: service-1, planId: plan-small"
INTENT = SPEC + f"status: {{atProvider: {{{IDS}}}}}"
DEPLOYING = SPEC + (
    f"status: {{atProvider: {{{IDS}, state: deploying, createdAt: '{objects.ago(30)}'}}"
    ", pendingOperation: task-1}"
)
THERE = (
    f"{IDS}, state: available, parameters: {{max_connections: 50}}, "
    f"createdAt: '{objects.ago(90)}', provisionedAt: '{objects.ago(60)}'"
)
PROVISIONED = SPEC + f"status: {{atProvider: {{{THERE}}}}}"
UPDATING = SPEC + (
    f"status: {{atProvider: {{{THERE}, updatedAt: '{objects.ago(9)}'}}, pendingOperation: task-2}}"
)
FAILED = SPEC + f"status: {{atProvider: {{{IDS}, state: failed}}}}"
NEXT = FAILED.replace("failed", "deleted").replace(UID, identifier(UID, 1))
GONE = SPEC + f"status: {{atProvider: {{{THERE.replace('available', 'deleted')}}}}}"
DELETED = {"deletionTimestamp": objects.ago(5)}


@dataclass
class Sent:
    """What the annotation says of what was asked for last."""

    plan: str
    parameters: dict[str, Any]
    refused: bool = False
    tries: int = 0
    term: str = ""

    def text(self) -> str:
        wire: dict[str, Any] = {"planId": self.plan, "parameters": self.parameters, "retry": ""}
        more = {"tries": self.tries, "term": self.term}
        wire |= {"refused": self.refused, **{key: one for key, one in more.items() if one}}
        return canonical(wire).decode()


def live(text=PROVISIONED, /, retry="", sent=None, **metadata):
    marks = {keys.EXTERNAL_NAME: "orders-x7k2p", keys.OSB_ORIGIN: objects.URL}
    if retry:
        marks[keys.OSB_RETRY] = retry
    if sent is not None:
        marks[keys.OSB_SENT] = sent.text()
    return objects.managed(kinds.SERVICE_INSTANCE, text, annotations=marks, **metadata)


def seen(of, now=NOW, **more):
    known: dict[str, Any] = {
        "config": objects.CONFIG,
        "usage": objects.USAGE,
        "catalogue": objects.CATALOGUE,
        "place": Place("app-shop", "cluster-uid", "space-uid"),
    }
    return Seen("cp", kinds.SERVICE_INSTANCE, of, now, **(known | more))


def process(of, **more):
    return objects.Process(INSTANCES, seen, of, **({"confirmed": True} | more))


def step(of, **more):
    """Return the call of a process that remembers nothing, or what it writes."""
    turn = INSTANCES.turn(seen(of, **more), Kept())
    return turn.decision if turn.ask is None else turn.ask.call


def follow(of, *outcomes_, **more):
    its = process(of, **more)
    for outcome in outcomes_:
        its.answer(outcome)
    return its.live


PROVISION = messages.Provision(
    UID, "service-1", "plan-small", "org", "space", parameters={"max_connections": 50}
)
POLL = messages.LastOperation(UID, "service-1", "plan-small", Secret("task-1"))
DELETE = messages.Deprovision(UID, "service-1", "plan-small")
FETCH = messages.FetchInstance(UID, "service-1", "plan-small")
SENT = Sent("plan-small", {"max_connections": 50})


# Before the first call


def test_the_config_in_use_is_named_first():
    made = step(live(SPEC), usage=None).steps[0]
    assert isinstance(made, Create)
    assert name_of(made.manifest) == UID
    assert labels_of(made.manifest) == {keys.PROVIDER_CONFIG: "default"}
    assert get_text(made.manifest, "resourceRef", "uid") == UID


def test_ids_and_finalizer_stand_there_before_the_first_call():
    fresh = live(SPEC, finalizers=[])
    decision = step(fresh)
    assert isinstance(decision, Decision)
    held = after(fresh, decision)
    assert finalizers_of(held) == [keys.MANAGED_RESOURCE]
    assert at_provider(held) == {
        "instanceId": UID, "serviceId": "service-1", "planId": "plan-small",
    }  # fmt: skip
    assert conditions(held) == {"Ready": "Creating"}
    call = step(held)
    assert isinstance(call, messages.Provision)
    assert (call.instance, call.service, call.plan) == (UID, "service-1", "plan-small")
    assert call.parameters == {"max_connections": 50}
    assert call.context == {
        "platform": "kubernetes",
        "namespace": "app-shop",
        "clusterid": "cluster-uid",
        "instance_name": "orders",
        "organization_guid": "org",
        "space_guid": "space",
    }


def test_an_id_that_stands_there_is_kept():
    known = live(INTENT.replace(UID, "given-by-the-original"))
    assert process(known).call().instance == "given-by-the-original"


def test_the_intent_follows_the_spec_until_it_was_asked_for():
    its = process(live(INTENT.replace("planName: small", "planName: big")))
    assert isinstance(its.call(), messages.LastOperation)  # it may have been asked for
    its.answer(outcomes.Absent(is_json=True))
    assert its.call().plan == "plan-big"
    assert at_provider(its.live)["planId"] == "plan-big"


NAMES = [
    ("the exact name", "a9s-search2", "small", "plan-3"),
    ("the only one that begins so", "a9s-post", "small", "plan-small"),
    ("several that begin so", "a9s-", "small", "Several services have names that begin with"),
    ("none", "b", "small", "no service b; there are: a9s-postgresql15-ms-1687, a9s-search2"),
    ("no such plan", "a9s-search2", "sma", "no plan sma; there are: small"),
]


@pytest.mark.parametrize(("_", "service", "plan", "wanted"), NAMES, ids=[n[0] for n in NAMES])
def test_names(_, service, plan, wanted):
    found = rules.resolve(objects.CATALOGUE, service, plan)
    assert wanted in found if isinstance(found, str) else found[1].id == wanted


def test_an_exact_name_outranks_those_that_begin_with_it():
    alike = replace(objects.CATALOGUE.offerings[1], id="exact", name="a9s-postgresql15")
    catalogue = replace(objects.CATALOGUE, offerings=(*objects.CATALOGUE.offerings, alike))
    found = rules.resolve(catalogue, "a9s-postgresql15", "small")
    assert not isinstance(found, str)
    assert found[0].id == "exact"


QUIET = [
    ("a pause", {"annotations": {keys.PAUSED: "true"}}, "", "ReconcilePaused"),
    ("no policies", {}, "managementPolicies: []", "ReconcilePaused"),
    ("policies without Create", {}, "managementPolicies: [Observe]", "ReconcileError"),
]


@pytest.mark.parametrize(("_", "metadata", "spec", "reason"), QUIET, ids=[q[0] for q in QUIET])
def test_nothing_is_asked_under(_, metadata, spec, reason):
    text = INTENT.replace("spec:", f"spec:\n  {spec}" if spec else "spec:", 1)
    quiet = objects.managed(kinds.SERVICE_INSTANCE, text, **metadata)
    assert conditions(after(quiet, step(quiet)))["Synced"] == reason


def test_a_missing_config_and_a_trouble_of_it_are_said():
    lost = after(live(), step(live(), config=None))
    assert message(lost) == "ProviderConfig default is missing: make it"
    left = step(live(**DELETED), config=None)
    assert "deletionPolicy: Orphan" in message(after(live(**DELETED), left))
    assert message(after(live(), step(live(), trouble="no Secret"))) == "no Secret"


# What goes on

STATES = [  # as the tree before wrote them, and the call that each of them has made
    ("ids alone", INTENT, None, PROVISION),
    ("tried", INTENT, replace(SENT, tries=1), PROVISION),
    ("refused", INTENT, replace(SENT, refused=True), None),
    ("stopped", INTENT, replace(SENT, refused=True, tries=1), None),
    ("being made", DEPLOYING, SENT, POLL),
    ("being made, by the original", DEPLOYING, None, POLL),
    ("without a key", DEPLOYING.replace("task-1", "''"), SENT, replace(POLL, operation=None)),
    ("there", PROVISIONED, SENT, FETCH),
    ("there, of the original", PROVISIONED, None, FETCH),
    ("there after tries", PROVISIONED, replace(SENT, tries=2), FETCH),
    ("being changed", UPDATING, SENT, replace(POLL, operation=Secret("task-2"))),
    ("missing", GONE, SENT, FETCH),
    ("missing, of the original", GONE.replace("provisionedAt", "updatedAt"), None, FETCH),
    ("failed, of the original", FAILED, None, None),
    ("failed, with data", GONE.replace("deleted", "failed"), SENT, None),
    ("failed in this life", FAILED, SENT, DELETE),
    ("failed in another life", FAILED, replace(SENT, term="t/0"), None),
    ("failed four times", FAILED, replace(SENT, refused=True), None),
    ("gone, before the next number", NEXT, SENT, replace(PROVISION, instance=identifier(UID, 1))),
    ("being deleted", FAILED.replace("failed", "deleting"), SENT, DELETE),
]  # fmt: skip


@pytest.mark.parametrize(("_", "text", "sent", "call"), STATES, ids=[row[0] for row in STATES])
def test_what_the_tree_before_wrote_goes_on(_, text, sent, call):
    of = live(text, sent=sent)
    known = seen(of)
    present, after = INSTANCES.present(known), INSTANCES.stated(known, INSTANCES.records(known))
    if text is INTENT and sent is None:  # the request is written down before it is made
        after = replace(after, annotations=present.annotations)
    assert after == present
    assert objects.sorts(process(of).call()) == objects.sorts(call)


@pytest.mark.parametrize(("_", "text", "sent", "call"), STATES, ids=[row[0] for row in STATES])
def test_what_may_be_there_is_deleted_with_the_ids_that_stand_there(_, text, sent, call):
    its = process(live(text, sent=sent, **DELETED))
    never = sent is not None and sent.refused and not sent.tries
    if text is UPDATING:
        its.answer(outcomes.Progress("succeeded"))
    if not never:
        its.answer(outcomes.Gone(), replace(DELETE, instance=INSTANCES.records(its.look())[0].id))
    assert its.call() is None
    assert finalizers_of(its.live) == []


@pytest.mark.parametrize(("key", "pending"), [(Secret("task-1"), "task-1"), (None, "")])
def test_accepted_with_and_without_operation(key, pending):
    its = process(live(INTENT))
    its.answer(outcomes.Accepted(key))
    assert its.live["status"]["pendingOperation"] == pending
    assert at_provider(its.live)["state"] == "deploying"
    assert conditions(its.live)["Ready"] == "Creating"
    call = step(its.live)
    assert isinstance(call, messages.LastOperation)
    assert call.operation == key
    its.waits()
    its.answer(outcomes.Progress("in progress", "half"))
    assert message(its.live, "Ready") == "half"
    its.waits()
    its.answer(outcomes.Progress("succeeded"))
    assert conditions(its.live)["Ready"] == "Available"
    assert "pendingOperation" not in its.live["status"]


def test_a_refusal_stands_until_the_spec_or_the_annotation_changes():
    known = follow(live(INTENT), outcomes.Refused("no more room"))
    assert conditions(known) == {"Ready": "Unavailable", "Synced": "ReconcileError"}
    assert message(known) == "no more room"
    assert process(known).call() is None
    changed = json.loads(json.dumps(known).replace('"max_connections": 50', '"x": 1', 1))
    assert isinstance(process(changed).call(), messages.Provision)
    known["metadata"]["annotations"][keys.OSB_RETRY] = "once more"
    assert isinstance(process(known).call(), messages.Provision)


@pytest.mark.parametrize(("term", "deletes"), [("t/2", True), ("t/3", True), ("t/1", False)])
def test_what_nobody_knows_is_mitigated_where_its_record_is_of_this_life(term, deletes):
    for tries, outcome in (
        (1, outcomes.Refused("it is there", "conflict")),
        (3, outcomes.Unknown("silence")),
    ):
        tried = live(INTENT, sent=replace(SENT, tries=tries, term=term))
        its = process(tried, terms=("t/3", "t/2"))
        if its.answer(outcome) is not None:
            its.answer(outcomes.Absent(is_json=True))
        assert isinstance(step(its.live, terms=("t/3", "t/2")), messages.Deprovision) == deletes


def test_what_could_not_be_made_is_deleted_and_made_anew_with_another_id_thrice():
    its = process(live(DEPLOYING, sent=SENT))
    for number in range(4):
        its.answer(outcomes.Progress("failed", "no disk"))
        assert "no disk" in message(its.live, "Ready")
        assert step(its.live) == replace(DELETE, instance=identifier(UID, number))
        its.answer(outcomes.Gone())
        if number == 3:
            break
        assert its.call() is None
        assert step(its.live).instance == identifier(UID, number + 1)  # after a restart
        its.now += timedelta(minutes=(1, 5, 30)[number])
        its.answer(outcomes.Accepted(Secret("again")))
        its.waits()
    assert its.call() is None
    its.live["metadata"]["annotations"][keys.OSB_RETRY] = "please"
    assert its.call().instance == identifier(UID, 4)


def test_what_differs_is_said_and_changed_back_only_when_a_user_says_so():
    its = process(live())
    its.answer(outcomes.Done(plan="plan-big", parameters={"max_connections": 9}), FETCH)
    assert "other values of parameters.max_connections, plan" in message(its.live)
    assert its.call() is None
    its.live["metadata"]["annotations"][keys.OSB_RETRY] = "back"
    assert its.call().parameters == {"max_connections": 50}
    its.answer(outcomes.Done())
    assert conditions(its.live) == {"Ready": "Available", "Synced": "ReconcileSuccess"}
    assert its.call() is None


def test_what_is_missing_is_made_anew_only_when_a_user_says_so():
    its = process(live())
    its.answer(outcomes.Gone(), FETCH)
    assert conditions(its.live) == {"Ready": "Missing", "Synced": "ReconcileError"}
    assert at_provider(its.live)["state"] == "deleted"
    assert its.call() is None
    its.live["metadata"]["annotations"][keys.OSB_RETRY] = "make it anew"
    its.answer(outcomes.Done(created=True), None)
    assert at_provider(its.live)["provisionedAt"] == objects.ago(0)
    assert step(its.live) == FETCH


def test_a_broker_of_another_origin_is_asked_nothing():
    config = put(objects.CONFIG, "https://b.example", "spec", "url")
    for metadata in ({}, DELETED):
        its = process(live(**metadata), config=config)
        assert its.call() is None
        assert "annotate the ProviderConfig" in message(its.live)
    moved = put(config, {keys.OSB_MOVED: "https://b.example"}, "metadata", "annotations")
    its = process(live(**DELETED), config=moved)
    assert its.call() == DELETE


# Updates

UPDATES = [
    ("another plan", "planName: small", "planName: big", "plan-big", None),
    (
        "another value",
        "connections: 50}\n",
        "connections: 9}\n",
        "plan-small",
        {"max_connections": 9},
    ),
    ("one more", "50}\n", "50, b: 1}\n", "plan-small", {"max_connections": 50, "b": 1}),
    (
        "one less",
        "{max_connections: 50}\n",
        "{b: 1}\n",
        "plan-small",
        {"max_connections": None, "b": 1},
    ),
    (
        "none",
        "    parameters: {max_connections: 50}\n",
        "",
        "plan-small",
        {"max_connections": None},
    ),
]


@pytest.mark.parametrize(("_", "old", "new", "plan", "parameters"), UPDATES, ids=lambda u: str(u))
def test_what_differs_is_sent(_, old, new, plan, parameters):
    call = process(live(PROVISIONED.replace(old, new, 1))).call()
    assert isinstance(call, messages.Update)
    assert (call.plan, call.parameters) == (plan, parameters)
    assert call.previous == messages.Previous("plan-small", "org", "space")


def test_the_order_of_a_list_is_no_difference():
    assert not rules.changed_parameters({"a": ["x", "y"]}, {"a": ["y", "x"]})
    assert rules.changed_parameters({"a": ["x", "y"]}, {"a": ["x"]}) == {"a": ["x"]}
    assert rules.changed_parameters({"a": 1}, {"a": True}) == {"a": True}


def test_another_service_is_refused():
    moved = live(PROVISIONED.replace("a9s-postgresql15", "a9s-search2"))
    assert "cannot be changed" in message(after(moved, step(moved)))


def test_an_update_is_waited_for_and_settles_what_was_sent():
    its = process(live(PROVISIONED.replace("connections: 50}\n", "connections: 9}\n", 1)))
    its.answer(outcomes.Accepted(Secret("task-2")))
    assert at_provider(its.live)["parameters"] == {"max_connections": 50}
    assert step(its.live) == replace(POLL, operation=Secret("task-2"))
    its.waits()
    its.answer(outcomes.Progress("succeeded"))
    assert at_provider(its.live)["parameters"] == {"max_connections": 9}
    assert step(its.live) == FETCH


def test_a_refused_update_leaves_the_instance_ready():
    its = process(live(PROVISIONED.replace("planName: small", "planName: big")))
    its.answer(outcomes.Refused("never"))
    assert conditions(its.live) == {"Synced": "ReconcileError"}
    assert step(its.live) == FETCH
    its.answer(outcomes.Done(), FETCH)
    assert message(its.live) == "never"


# Leaving


def test_a_deletion_is_waited_for():
    its = process(live(PROVISIONED, **DELETED))
    its.answer(outcomes.Accepted(Secret("task-3")), DELETE)
    assert conditions(its.live)["Ready"] == "Deleting"
    assert step(its.live) == replace(POLL, operation=Secret("task-3"))
    its.waits()
    its.answer(outcomes.Progress("failed", "no"))
    assert message(its.live) == "no"
    assert step(its.live) == DELETE


POLICIES = [
    ("Delete", None, True),
    ("Orphan", None, False),
    ("Delete", "[Observe, Create]", False),
    ("Orphan", "[Observe, Delete]", True),
    ("Orphan", "['*']", False),
]


@pytest.mark.parametrize(("policy", "policies", "goes"), POLICIES)
def test_deletion_policies(policy, policies, goes):
    stated = f"spec:\n  deletionPolicy: {policy}"
    stated += f"\n  managementPolicies: {policies}" if policies else ""
    leaving = live(PROVISIONED.replace("spec:", stated, 1), **DELETED)
    then = step(leaving)
    assert (then == DELETE) == goes
    if not goes:
        assert finalizers_of(after(leaving, then)) == []


def test_no_text_shows_an_operation():
    for text in (DEPLOYING, UPDATING):
        assert "task-" not in repr(step(live(text)))
