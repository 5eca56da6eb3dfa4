"""What a ServiceInstance has the broker do, call by call, and what follows from each answer."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices import rules
from bind.osb.dataservices.instance import results
from bind.osb.dataservices.instance.decide import Seen, next_step
from bind.osb.decisions.record import identifier
from bind.osb.decisions.view import Place
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.catalogue import Schemas
from reconciler.core import keys
from reconciler.core.decision import Create, Decision
from reconciler.core.manifest import finalizers_of, get_text, labels_of, name_of
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
GONE = SPEC + f"status: {{atProvider: {{{THERE.replace('available', 'deleted')}}}}}"
DELETED = {"deletionTimestamp": objects.ago(5)}


def live(text=PROVISIONED, /, retry="", sent=None, **metadata):
    marks = {keys.EXTERNAL_NAME: "orders-x7k2p"}
    if retry:
        marks[keys.OSB_RETRY] = retry
    if sent is not None:
        marks[keys.OSB_SENT] = sent.text()
    return objects.managed(kinds.SERVICE_INSTANCE, text, annotations=marks, **metadata)


def seen(of, **more):
    known: dict[str, Any] = {
        "config": objects.CONFIG,
        "usage": objects.USAGE,
        "catalogue": objects.CATALOGUE,
        "place": Place("app-shop", "cluster-uid", "space-uid"),
    }
    return Seen("cp", kinds.SERVICE_INSTANCE, of, NOW, **(known | more))


def answered(of, call, outcome) -> Any:
    return results.answered(of, call, outcome)


def step(of, **more):
    return next_step(seen(of, **more))


def follow(of, call, outcome, **more):
    """Return the object after an answer, and the decision."""
    decision = answered(seen(of, **({"confirmed": True} | more)), call, outcome)
    return after(of, decision), decision


PROVISION = messages.Provision(
    UID, "service-1", "plan-small", "org", "space", parameters={"max_connections": 50}
)
POLL = messages.LastOperation(UID, "service-1", "plan-small", Secret("task-1"))
DELETE = messages.Deprovision(UID, "service-1", "plan-small")
FETCH = messages.FetchInstance(UID, "service-1", "plan-small")
UPDATE = messages.Update(
    UID, "service-1", messages.Previous("plan-small"), parameters={"max_connections": 9}
)
SENT = rules.Sent("plan-small", {"max_connections": 50})


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
    assert step(known).instance == "given-by-the-original"


def test_the_intent_follows_the_spec_until_it_was_asked_for():
    known = live(INTENT.replace("planName: small", "planName: big"))
    changed = after(known, step(known))
    assert at_provider(changed)["planId"] == "plan-big"
    assert step(changed).plan == "plan-big"


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
    assert message(lost) == "ProviderConfig default is missing"
    assert message(after(live(), step(live(), trouble="no Secret"))) == "no Secret"


def test_nothing_is_asked_while_an_answer_is_rested_on():
    rest = timedelta(seconds=9)
    for text in (INTENT, DEPLOYING, PROVISIONED):
        for read in (objects.CATALOGUE, None):
            then = step(live(text), rest=rest, catalogue=read)
            assert then == Decision(again=rest, sums_up=False)


# Provisioning


def test_done_at_once():
    known, _ = follow(live(INTENT), PROVISION, outcomes.Done(created=True))
    assert conditions(known) == {"Ready": "Available", "Synced": "ReconcileSuccess"}
    assert at_provider(known)["state"] == "provisioned"
    assert at_provider(known)["parameters"] == {"max_connections": 50}
    for time in ("createdAt", "provisionedAt", "updatedAt"):
        assert at_provider(known)[time] == objects.ago(0)


@pytest.mark.parametrize(("key", "pending"), [(Secret("task-1"), "task-1"), (None, "")])
def test_accepted_with_and_without_operation(key, pending):
    known, decision = follow(live(INTENT), PROVISION, outcomes.Accepted(key))
    assert known["status"]["pendingOperation"] == pending
    assert at_provider(known)["state"] == "deploying"
    assert conditions(known)["Ready"] == "Creating"
    assert decision.again == rules.POLL
    call = step(known)
    assert isinstance(call, messages.LastOperation)
    assert call.operation == key
    done, _ = follow(known, call, outcomes.Progress("succeeded"))
    assert conditions(done)["Ready"] == "Available"
    assert "pendingOperation" not in done["status"]


def test_a_broker_says_when_to_ask_again():
    asked = outcomes.Accepted(None, retry_after=timedelta(seconds=42))
    assert follow(live(INTENT), PROVISION, asked)[1].again == timedelta(seconds=42)
    progress = outcomes.Progress("in progress", "half", timedelta(seconds=3))
    known, decision = follow(live(DEPLOYING), POLL, progress)
    assert decision.again == timedelta(seconds=3)
    assert message(known, "Ready") == "half"


def test_a_refusal_stands_until_the_spec_or_the_annotation_changes():
    refused = outcomes.Refused(400, "", "no more room")
    known, _ = follow(live(INTENT), PROVISION, refused)
    assert message(known) == "no more room"
    assert step(known) == Decision()
    changed = json.loads(json.dumps(known).replace('"max_connections": 50', '"x": 1', 1))
    assert isinstance(step(changed), messages.Provision)
    known["metadata"]["annotations"][keys.OSB_RETRY] = "once more"
    assert isinstance(step(known), messages.Provision)


def test_what_exists_otherwise_is_asked_for_and_never_taken_for_granted():
    asked, more = seen(live(INTENT), confirmed=True), objects.CATALOGUE
    poll = answered(asked, PROVISION, outcomes.Conflict("it is there"))
    assert isinstance(poll, messages.LastOperation)
    goes_on, _ = follow(live(INTENT), poll, outcomes.Progress("in progress"))
    assert at_provider(goes_on)["state"] == "deploying"
    assert answered(asked, poll, outcomes.Absent(is_json=True)) == FETCH
    known, _ = follow(live(INTENT), FETCH, outcomes.Done())
    assert step(known).parameters == {"max_connections": 50}
    for question, catalogue in ((FETCH, more), (poll, replace(more, offerings=()))):
        absent = outcomes.Absent(is_json=True)
        stopped, _ = follow(live(INTENT), question, absent, catalogue=catalogue)
        assert step(stopped) == Decision()


@pytest.mark.parametrize(("term", "deletes"), [("t/2", True), ("t/3", True), ("t/1", False)])
def test_what_nobody_knows_is_mitigated_where_its_record_is_of_this_life(term, deletes):
    tried = live(INTENT, sent=replace(SENT, tries=1, term=term))
    poll = messages.LastOperation(UID, "service-1", "plan-small")
    known, _ = follow(tried, poll, outcomes.Absent(is_json=True), terms=("t/3", "t/2"))
    assert isinstance(step(known, terms=("t/3", "t/2")), messages.Deprovision) == deletes
    spent = live(INTENT, sent=replace(SENT, tries=3, term=term))
    known, _ = follow(spent, PROVISION, outcomes.Unknown("silence"), terms=("t/3", "t/2"))
    assert isinstance(step(known, terms=("t/3", "t/2")), messages.Deprovision) == deletes


UNUSABLE = [
    (outcomes.Unsent("no connection"), 2),
    (outcomes.Unsent("later", timedelta(seconds=77)), 77),
    (outcomes.Unknown("HTTP 500", 500), 2),
    (outcomes.Denied(401, "who?"), 300),
    (outcomes.Unsupported("2.17 is unknown"), 600),
]


@pytest.mark.parametrize(("outcome", "seconds"), UNUSABLE, ids=str)
@pytest.mark.parametrize("text", [INTENT, DEPLOYING, PROVISIONED])
def test_an_answer_that_says_nothing_changes_nothing_but_synced(outcome, seconds, text):
    call = step(live(text))
    known, decision = follow(live(text), call, outcome)
    assert conditions(known) == {"Synced": "ReconcileError"}
    assert at_provider(known) == at_provider(live(text))
    assert decision.again == timedelta(seconds=seconds)
    assert step(known) == call


def test_what_goes_on_failing_is_tried_less_and_less():
    known, _ = follow(live(INTENT), PROVISION, outcomes.Unknown("HTTP 500", 500))
    for seconds, pause in ((1, 2), (40, 40), (3600, 600)):
        later = replace(seen(known), now=NOW + timedelta(seconds=seconds))
        decision = answered(later, PROVISION, outcomes.Unknown("HTTP 502", 502))
        assert decision.again == timedelta(seconds=pause)


def test_the_time_of_a_condition_says_how_long_that_lasts():
    known, _ = follow(live(INTENT), PROVISION, outcomes.Unknown("HTTP 500", 500))
    later = replace(seen(known), now=NOW + timedelta(seconds=40))
    again = after(known, answered(later, PROVISION, outcomes.Unknown("HTTP 502", 502)))
    assert message(again) == "HTTP 502"
    since = [one["lastTransitionTime"] for one in again["status"]["conditions"]]
    assert since == [objects.ago(0)]


def test_another_operation_is_waited_for():
    known, decision = follow(live(INTENT), PROVISION, outcomes.Busy("at work"))
    assert decision.again == rules.BUSY
    assert known["status"] == live(INTENT)["status"]


# What fails


def test_what_could_not_be_made_is_deleted_and_made_anew_with_another_id_thrice():
    known = live(DEPLOYING, sent=SENT)
    for number in range(4):
        known, _ = follow(known, POLL, outcomes.Progress("failed", "no disk"))
        assert message(known, "Ready") == "no disk"
        call = step(known)
        assert call == replace(DELETE, instance=identifier(UID, number))
        known, decision = follow(known, call, outcomes.Gone())
        if number == 3:
            break
        assert decision.again == timedelta(minutes=(1, 5, 30)[number])
        call = step(known)
        assert isinstance(call, messages.Provision)
        assert call.instance == identifier(UID, number + 1)
        known, _ = follow(known, call, outcomes.Accepted(Secret("again")))
    assert step(known) == Decision()
    known["metadata"]["annotations"][keys.OSB_RETRY] = "please"
    anew = after(known, step(known))
    assert step(anew).instance == identifier(UID, 4)


def test_an_instance_that_the_original_calls_failed_is_not_deleted():
    assert conditions(after(live(FAILED), step(live(FAILED))))["Ready"] == "Unavailable"


def test_what_was_there_once_is_not_deleted():
    was = live(GONE.replace("state: deleted", "state: failed"), sent=SENT)
    assert conditions(after(was, step(was)))["Ready"] == "Unavailable"


def test_a_plan_says_how_long_its_operations_last():
    overdue = live(DEPLOYING.replace(objects.ago(30), objects.ago(90_000)))
    known, _ = follow(overdue, POLL, outcomes.Progress("in progress"))
    assert step(known) == POLL  # its record may be old, and the instance in use
    known, _ = follow(overdue, POLL, outcomes.Progress("failed", "of a later update"))
    assert step(known) == Decision()


def test_an_operation_that_the_broker_does_not_know_is_asked_for_again_after_a_minute():
    absent = outcomes.Absent(is_json=True)
    known, _ = follow(live(DEPLOYING), POLL, absent)
    assert at_provider(known)["state"] == "deploying"
    later = replace(seen(known, confirmed=True), now=NOW + timedelta(seconds=61))
    assert step(after(known, answered(later, POLL, absent))) == step(live(INTENT))
    gateway = answered(later, POLL, outcomes.Absent(is_json=False))
    assert at_provider(after(known, gateway))["state"] == "deploying"


# What is there


def test_all_is_well():
    assert step(live()) == FETCH
    found = outcomes.Done(plan="plan-small", parameters={"max_connections": 50, "more": 1})
    known, decision = follow(live(), FETCH, found)
    assert conditions(known) == {"Ready": "Available", "Synced": "ReconcileSuccess"}
    assert decision.again == rules.RESYNC
    assert not answered(seen(known), FETCH, found).fields.keys() - {"atProvider"}


def test_a_broker_that_shows_no_instances_is_not_asked():
    offering = replace(objects.CATALOGUE.offerings[0], instances_retrievable=False)
    catalogue = replace(objects.CATALOGUE, offerings=(offering,))
    quiet = after(live(), step(live(), catalogue=catalogue))
    assert conditions(quiet) == {"Ready": "Available", "Synced": "ReconcileSuccess"}


LOST = [
    ("404 in JSON", outcomes.Absent(is_json=True), True, "Missing"),
    ("410", outcomes.Gone(), False, "Missing"),
    ("404 of a gateway", outcomes.Absent(is_json=False), True, None),
    ("404 while the catalogue is not read", outcomes.Absent(is_json=True), False, None),
    ("another refusal", outcomes.Refused(400, "", "what?"), True, None),
]


@pytest.mark.parametrize(("_", "outcome", "is_read", "reason"), LOST, ids=[row[0] for row in LOST])
def test_a_fetch_that_says(_, outcome, is_read, reason):
    known, _ = follow(live(), FETCH, outcome, confirmed=is_read)
    assert conditions(known).get("Ready") == reason


@pytest.mark.parametrize("of", [live(GONE), live(GONE.replace("provisionedAt", "updatedAt"))])
def test_what_is_missing_is_made_anew_only_when_a_user_says_so(of):
    assert step(of) == FETCH
    back, _ = follow(of, FETCH, outcomes.Done())
    assert at_provider(back)["state"] == "provisioned"
    of["metadata"]["annotations"][keys.OSB_RETRY] = "make it anew"
    call = step(of)
    assert isinstance(call, messages.Provision)
    assert call.instance == UID
    made, _ = follow(of, call, outcomes.Done())
    assert step(made) == FETCH


def test_what_differs_is_said_and_changed_back_only_when_a_user_says_so():
    found = outcomes.Done(plan="plan-big", parameters={"max_connections": 9})
    known, _ = follow(live(), FETCH, found)
    assert "another plan, max_connections" in message(known)
    assert step(known, rest=rules.RESYNC) == Decision(again=rules.RESYNC, sums_up=False)
    known["metadata"]["annotations"][keys.OSB_RETRY] = "back"
    call = step(known)
    assert isinstance(call, messages.Update)
    assert call.parameters == {"max_connections": 50}
    settled, _ = follow(known, call, outcomes.Done())
    assert step(settled) == FETCH


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
    call = step(live(PROVISIONED.replace(old, new, 1)))
    assert isinstance(call, messages.Update)
    assert (call.plan, call.parameters) == (plan, parameters)
    assert call.previous == messages.Previous("plan-small", "org", "space")


def test_the_order_of_a_list_is_no_difference():
    assert not rules.changed_parameters({"a": ["x", "y"]}, {"a": ["y", "x"]})
    assert rules.changed_parameters({"a": ["x", "y"]}, {"a": ["x"]}) == {"a": ["x"]}
    assert rules.changed_parameters({"a": 1}, {"a": True}) == {"a": True}


def refusing():
    """Return a catalogue that takes fewer connections of the small plan."""
    few = Schemas(create={"properties": {"max_connections": {"maximum": 40}}})
    offering = objects.CATALOGUE.offerings[0]
    offering = replace(offering, plans=(replace(objects.SMALL, schemas=few), objects.BIG))
    return replace(objects.CATALOGUE, offerings=(offering,))


@pytest.mark.parametrize(
    "known",
    [live(SPEC), live(PROVISIONED.replace("50}, c", "9}, c"))],
    ids=["new", "changed"],
)
def test_parameters_that_a_plan_refuses_are_never_sent(known):
    decision = next_step(seen(known, catalogue=refusing()))
    assert isinstance(decision, Decision)
    said = message(after(known, decision))
    assert "plan small refuses it: parameters.max_connections does not fit maximum: 40" in said
    assert not [step for step in decision.steps if "atProvider" in str(step)]


def test_what_may_be_there_is_asked_for_again_whatever_its_plan_says_now():
    assert isinstance(next_step(seen(live(INTENT), catalogue=refusing())), messages.Provision)


def test_another_service_is_refused():
    moved = live(PROVISIONED.replace("a9s-postgresql15", "a9s-search2"))
    assert "cannot be changed" in message(after(moved, step(moved)))


def test_an_update_is_waited_for_and_settles_what_was_sent():
    wanted = live(PROVISIONED.replace("connections: 50}\n", "connections: 9}\n", 1))
    known, _ = follow(wanted, step(wanted), outcomes.Accepted(Secret("task-2")))
    assert conditions(known)["Ready"] == "Available"
    assert at_provider(known)["parameters"] == {"max_connections": 50}
    done, _ = follow(known, step(known), outcomes.Progress("succeeded"))
    assert at_provider(done)["parameters"] == {"max_connections": 9}
    assert step(done) == FETCH


REPEATABLE = [(None, True), (True, True), (False, False)]


@pytest.mark.parametrize(("repeatable", "again"), REPEATABLE)
def test_an_update_that_failed(repeatable, again):
    wanted = live(
        UPDATING.replace("connections: 50}\n", "connections: 9}\n", 1),
        sent=rules.Sent("plan-small", {"max_connections": 9}),
    )
    failed = outcomes.Progress("failed", "no", None, False, repeatable)
    known, _ = follow(wanted, POLL, failed)
    assert conditions(known) == {"Ready": "Unavailable", "Synced": "ReconcileError"}
    assert isinstance(step(known), messages.Update) == again


def test_a_refused_update_leaves_the_instance_ready():
    wanted = live(PROVISIONED.replace("planName: small", "planName: big"))
    known, _ = follow(wanted, step(wanted), outcomes.Refused(400, "", "never"))
    assert conditions(known) == {"Ready": "Available", "Synced": "ReconcileError"}
    assert step(known) == Decision()


# Leaving


def test_what_was_never_asked_for_is_not_deleted():
    fresh = live(SPEC, **DELETED)
    assert finalizers_of(after(fresh, step(fresh))) == []


@pytest.mark.parametrize("text", [INTENT, DEPLOYING, PROVISIONED, GONE])
def test_what_may_be_there_is_deleted_with_the_ids_that_stand_there(text):
    leaving = live(text, **DELETED)
    assert step(leaving) == DELETE
    gone, _ = follow(leaving, DELETE, outcomes.Gone())
    assert finalizers_of(gone) == []


def test_an_update_is_polled_to_its_end_before_its_instance_is_deleted():
    leaving = live(UPDATING, **DELETED)
    assert isinstance(step(leaving), messages.LastOperation)
    done, _ = follow(leaving, step(leaving), outcomes.Progress("succeeded"))
    assert step(done) == DELETE
    later = replace(seen(leaving), now=NOW + timedelta(minutes=10))
    assert next_step(later) == DELETE


def test_a_deletion_is_waited_for():
    leaving = live(PROVISIONED, **DELETED)
    known, _ = follow(leaving, DELETE, outcomes.Accepted(Secret("task-3")))
    assert conditions(known)["Ready"] == "Deleting"
    call = step(known)
    assert call == replace(POLL, operation=Secret("task-3"))
    waiting, _ = follow(known, call, outcomes.Progress("in progress"))
    assert finalizers_of(waiting) == [keys.MANAGED_RESOURCE]
    assert finalizers_of(follow(known, call, outcomes.Gone())[0]) == []
    assert finalizers_of(follow(known, call, outcomes.Progress("succeeded"))[0]) == []
    for outcome in (outcomes.Progress("failed", "no"), outcomes.Absent(is_json=True)):
        failed, _ = follow(known, call, outcome)
        assert step(failed) == DELETE


def test_what_is_bound_is_not_deleted():
    leaving = live(PROVISIONED, **DELETED)
    assert message(after(leaving, step(leaving, bound=["b", "a"]))) == "It is still bound: a, b"


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


def test_nothing_is_written_where_nothing_changed():
    known, _ = follow(live(), FETCH, outcomes.Done())
    again = answered(seen(known), FETCH, outcomes.Done())
    assert get_text(after(known, again), "status", "atProvider", "state") == "provisioned"
    assert not again.fields
    assert not again.steps
