"""One look at an instance: what follows, row by row of the design's table 4."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bind.osb.decisions import instance, instance_state, record
from bind.osb.decisions.view import BindingView, Next, Pause
from reconciler.blueprints.offering import messages
from reconciler.blueprints.offering.catalogue import Schemas
from reconciler.core import keys
from reconciler.core.manifest import Manifest
from reconciler.core.times import format_time
from tests.support.osb_views import (
    BROKER,
    CATALOGUE,
    KIND,
    NOW,
    OTHER_UID,
    UID,
    claim,
    held,
    intent,
    message,
    operation,
    phase,
    recorded,
    said,
    sent,
    view,
    written,
)

MINUTE = timedelta(minutes=1)
SECOND = record.identifier(UID, 1)


def look(seen, *, free=True) -> Next:
    return instance.look(replace(seen, free=free))


def call(found: Next):
    return None if found.ask is None else found.ask.call


# No record yet


def test_the_finalizer_comes_first():
    found = look(view(claim(held=False)))
    assert written(found) == ["patch DatabaseInstance orders"]
    assert found.ask is None


def test_a_record_is_there_before_the_first_call():
    found = look(view(claim(parameters={"size": 3})))
    assert written(found) == [f"create BrokerRecord {UID}"]
    assert found.begins
    assert found.ask is None
    made = recorded(found)
    assert made.state == record.INTENDED
    assert made.intent.target == sent(claim(parameters={"size": 3}))


def test_nothing_begins_beside_something_else_of_the_instance():
    found = look(view(claim()), free=False)
    assert (written(found), found.ask, found.begins) == ([], None, False)


@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        (None, "NoServiceBroker"),
        (replace(BROKER, catalogue=None), "Pending"),
        (replace(BROKER, closed="it does not answer"), "Pending"),
        (replace(BROKER, catalogue=replace(CATALOGUE, offerings=())), "NotOffered"),
    ],
)
def test_what_cannot_be_provisioned_now_writes_no_record(broker, reason):
    found = look(view(claim(), broker=broker))
    assert written(found) == []
    assert said(found)["Provisioned"] == ("False", reason)
    assert phase(found) == "Pending"


def strict(*, update=None):
    """Return a broker that has schemas for the small plan."""
    create: Manifest = {"required": ["size"], "properties": {"size": {"maximum": 5}, "zone": {}}}
    offering = CATALOGUE.offerings[0]
    small = replace(offering.plans[0], schemas=Schemas(create=create, update=update))
    offering = replace(offering, plans=(small, *offering.plans[1:]))
    return replace(BROKER, catalogue=replace(CATALOGUE, offerings=(offering,)))


REFUSED = record.Intent("Provision", NOW, sent(), closed=record.REFUSED, catalog="another")


@pytest.mark.parametrize(
    "records",
    [
        (),
        (held(record.INTENDED, intent=intent()),),
        (held(record.INTENDED, intent=REFUSED),),
        (held(record.PRESENT, sent=sent(), intent=replace(REFUSED, closed=record.MISSING)),),
    ],
    ids=["new", "not sent yet", "refused before", "made anew"],
)
def test_parameters_that_a_plan_refuses_are_never_sent(records):
    live = claim(parameters={"size": 6}, marks={keys.OSB_RETRY: "1"})
    found = look(view(live, *records, broker=strict()))
    assert (written(found), call(found)) == ([], None)
    assert said(found)["Provisioned"] == ("False", "InvalidParameters")
    wrong = "plan small refuses it: parameters.size does not fit maximum: 5"
    assert message(found, "Provisioned") == wrong


def test_what_may_have_been_sent_is_found_out_whatever_the_plan_says_now():
    live = claim(parameters={"size": 6})
    there = held(record.INTENDED, intent=intent(target=sent(live), tries=1))
    assert isinstance(call(look(view(live, there, broker=strict()))), messages.Provision)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"size": 6, "zone": "a"}, "parameters.size does not fit maximum: 5"),
        ({"size": 4, "zone": "b"}, "parameters.zone cannot be changed"),
        ({"size": 4}, "parameters.zone cannot be changed"),
    ],
)
def test_a_change_that_a_plan_refuses_is_never_sent(parameters, problem):
    broker = strict(update={"properties": {"size": {"maximum": 5}}})
    there = held(record.PRESENT, sent=sent(claim(parameters={"size": 3, "zone": "a"})))
    changed = claim(parameters=parameters)
    found = look(view(changed, there, broker=broker))
    assert (written(found), call(found)) == ([], None)
    assert said(found)["UpToDate"] == ("False", "InvalidParameters")
    assert message(found, "UpToDate") == f"plan small refuses it: {problem}"
    begun = replace(there, intent=intent("Update", sent(changed)))
    found = look(view(changed, begun, broker=broker))
    assert (written(found), call(found)) == ([], None)
    assert message(found, "UpToDate") == f"plan small refuses it: {problem}"


def test_a_change_that_a_plan_takes_begins():
    there = held(record.PRESENT, sent=sent(claim(parameters={"size": 3, "zone": "a"})))
    changed = claim(parameters={"size": 4, "zone": "a"})
    broker = strict(update={"properties": {"size": {"maximum": 5}}})
    assert look(view(changed, there, broker=broker)).begins


def test_a_plan_whose_id_is_gone_is_not_provisioned():
    gone = replace(CATALOGUE.offerings[0], plans=CATALOGUE.offerings[0].plans[1:])
    broker = replace(BROKER, catalogue=replace(CATALOGUE, offerings=(gone,)))
    found = look(view(claim(), broker=broker))
    assert written(found) == []
    assert "no plan 'small'" in message(found, "Provisioned")


def test_a_predecessor_that_is_marked_is_taken_over_with_its_id():
    left = held(record.ORPHANED, uid=OTHER_UID, mark="Adopt", sent=sent())
    found = look(view(claim(), others=(left,)))
    after = recorded(found, left)
    assert (after.id, after.claim.uid, after.state) == (OTHER_UID, UID, record.PRESENT)
    assert found.ask is None


def test_a_predecessor_is_orphaned_and_deprovisioned_beside_its_namesake_too():
    there = held(record.PRESENT, uid=OTHER_UID, sent=sent())
    found = look(view(claim(), others=(there,)))
    assert recorded(found, there).state == record.ORPHANED
    assert said(found)["Provisioned"] == ("False", "PredecessorThere")
    assert OTHER_UID in message(found, "Provisioned")
    assert written(look(view(claim(), others=(held(record.ORPHANED, uid=OTHER_UID),)))) == []
    left = held(record.ORPHANED, uid=OTHER_UID, mark="Deprovision", sent=sent())
    found = look(view(claim(), others=(left,)))
    assert recorded(found, left).state == record.LEAVING
    found = look(view(claim(), others=(held(record.LEAVING, uid=OTHER_UID),)))
    assert call(found) == messages.Deprovision(OTHER_UID, "service-1", "plan-s")
    assert "instanceID" not in found.decision.fields


# An intent


def test_an_open_intent_is_the_same_put_again():
    found = look(view(claim(), held(record.INTENDED, intent=intent())), free=False)
    assert isinstance(call(found), messages.Provision)
    assert call(found) == messages.Provision(
        instance=UID,
        service="service-1",
        plan="plan-s",
        organization="cluster-uid",
        space="space-uid",
        context={
            "platform": "kubernetes",
            "namespace": "shop",
            "clusterid": "cluster-uid",
            "instance_name": "orders",
        },
        parameters=None,
        maintenance="2.0.0",
    )


def test_where_the_claim_changed_since_the_broker_is_asked_what_became_of_it():
    changed = claim(parameters={"size": 4})
    found = look(view(changed, held(record.INTENDED, intent=intent())))
    assert call(found) == messages.LastOperation(UID, "service-1", "plan-s")


def test_what_was_never_sent_is_replaced_by_what_the_claim_says_now():
    changed = claim(parameters={"size": 4})
    later = held(record.INTENDED, intent=intent(since=NOW + MINUTE))
    found = look(view(changed, later))
    after = recorded(found, later)
    assert (after.intent.target, after.intent.since) == (sent(changed), NOW)


@pytest.mark.parametrize(
    ("fields", "again"),
    [
        ({"pauses": {UID: Pause(until=NOW + MINUTE)}}, MINUTE),
        ({"broker": replace(BROKER, closed="it does not answer")}, timedelta(seconds=30)),
    ],
)
def test_a_call_waits_for_its_pause_and_its_broker(fields, again):
    found = look(view(claim(), held(record.INTENDED, intent=intent()), **fields))
    assert found.ask is None
    assert found.decision.again == again


def test_a_further_number_waits_for_its_time():
    later = held(record.INTENDED, number=1, intent=intent(since=NOW + 5 * MINUTE))
    found = look(view(claim(), later))
    assert (found.ask, found.decision.again) == (None, 5 * MINUTE)


# What was refused, or failed too often


REFUSED = intent(closed=record.REFUSED, catalog="catalogue-1")
FAILED = intent(closed=record.FAILED, catalog="catalogue-1")


@pytest.mark.parametrize(("closed", "wish"), [(REFUSED, ""), (FAILED, ""), (REFUSED, "1")])
def test_a_closed_intent_is_left_alone_and_so_is_an_answered_wish(closed, wish):
    live = claim(marks={keys.OSB_RETRY: wish} if wish else {})
    found = look(view(live, held(record.INTENDED, intent=closed, asked=wish)))
    assert (written(found), found.ask, phase(found)) == ([], None, "Failed")


@pytest.mark.parametrize(
    "live",
    [claim(plan="big"), claim(parameters={"a": 1}), claim(marks={keys.OSB_RETRY: "1"})],
    ids=["plan", "parameters", "osb-retry"],
)
def test_a_closed_intent_opens_once_the_claim_says_something_else(live):
    before = held(record.INTENDED, intent=REFUSED)
    found = look(view(live, before))
    after = recorded(found, before)
    assert found.begins
    assert after.intent.closed == ""
    assert after.asked == instance_state.asked(view(live))


def test_what_was_refused_is_tried_under_another_catalogue_and_what_failed_is_not():
    broker = replace(BROKER, catalogue=replace(CATALOGUE, digest="catalogue-2"))
    assert look(view(claim(), held(record.INTENDED, intent=REFUSED), broker=broker)).begins
    assert not look(view(claim(), held(record.INTENDED, intent=FAILED), broker=broker)).begins


# An operation


def test_an_operation_is_asked_for_with_the_plan_before_an_update():
    going = held(record.PRESENT, sent=sent(), plan="plan-b", operation=operation())
    found = look(view(claim(), going))
    assert isinstance(call(found), messages.LastOperation)
    assert call(found).plan == "plan-s"
    assert call(found).operation.reveal() == "op-1"


# It is there


PRESENT = held(record.PRESENT, sent=sent())


def test_an_instance_that_is_as_wanted_is_read_at_each_resync():
    found = look(view(claim(), PRESENT))
    assert call(found) == messages.FetchInstance(UID, "service-1", "plan-s")
    checked = {UID: Pause(checked=NOW - 4 * MINUTE)}
    found = look(view(claim(), PRESENT, pauses=checked))
    assert (found.ask, found.decision.again) == (None, 6 * MINUTE)
    assert said(found) == {"Provisioned": ("True", ""), "UpToDate": ("True", "")}


def test_instances_that_cannot_be_retrieved_are_never_read():
    blind = replace(CATALOGUE.offerings[0], instances_retrievable=False)
    broker = replace(BROKER, catalogue=replace(CATALOGUE, offerings=(blind,)))
    found = look(view(claim(), PRESENT, broker=broker))
    assert (found.ask, found.decision.again) == (None, None)


@pytest.mark.parametrize(
    "live",
    [claim(plan="big"), claim(parameters={"a": 1}), claim(maintenanceVersion="2.0.1")],
    ids=["plan", "parameters", "maintenanceVersion"],
)
def test_what_differs_from_what_was_sent_opens_an_update(live):
    found = look(view(live, PRESENT))
    after = recorded(found, PRESENT)
    assert found.begins
    assert (after.intent.verb, after.intent.closed) == ("Update", "")


def test_an_update_sends_only_what_differs_with_the_values_before():
    live = claim(plan="big", parameters={"a": 1})
    going = held(record.PRESENT, sent=sent(), intent=intent("Update", sent(live, maintenance="")))
    asked = call(look(view(live, going)))
    assert isinstance(asked, messages.Update)
    assert (asked.plan, asked.parameters, asked.maintenance) == ("plan-b", {"a": 1}, "")
    assert asked.previous.plan == "plan-s"
    same_plan = claim(parameters={"a": 1})
    going = held(record.PRESENT, sent=sent(), intent=intent("Update", sent(same_plan)))
    asked = call(look(view(same_plan, going)))
    assert (asked.plan, asked.parameters) == ("plan-s", {"a": 1})


def test_parameters_that_are_taken_back_are_sent_as_a_whole():
    before = held(record.PRESENT, sent=sent(claim(parameters={"a": 1})))
    going = replace(before, intent=intent("Update", sent()))
    assert call(look(view(claim(), going))).parameters == {}


def test_a_new_version_of_the_catalogue_updates_nothing():
    old = held(record.PRESENT, sent=sent(maintenance="1.0.0"))
    found = look(view(claim(), old, pauses={UID: Pause(checked=NOW)}))
    assert not found.begins
    assert found.decision.fields["maintenance"] == {
        "installed": "1.0.0",
        "available": "2.0.0",
        "description": "a newer system",
    }


def test_an_update_whose_outcome_nobody_knows_is_read_before_it_is_sent_again():
    live = claim(plan="big")
    target = sent(live, maintenance="")
    going = held(record.PRESENT, sent=sent(), intent=intent("Update", target, tries=1))
    assert isinstance(call(look(view(live, going))), messages.FetchInstance)
    read = {UID: Pause(tried=1)}
    assert isinstance(call(look(view(live, going, pauses=read))), messages.Update)


def test_a_refused_update_waits_for_another_claim_and_the_instance_is_read_on():
    live = claim(plan="big")
    closed = intent("Update", sent(live, maintenance=""), closed=record.REFUSED)
    closed = replace(closed, catalog="catalogue-1")
    found = look(view(live, held(record.PRESENT, sent=sent(), intent=closed)))
    assert not found.begins
    assert isinstance(call(found), messages.FetchInstance)


def test_drift_is_undone_only_where_that_is_asked_for():
    drifted = {"InSync": ("False", "Drifted")}
    live = claim(says=drifted)
    assert not look(view(live, PRESENT)).begins
    live = claim(says=drifted, marks={keys.OSB_RETRY: "now"})
    found = look(view(live, PRESENT))
    assert found.begins
    assert recorded(found, PRESENT).asked == "now"


MISSING = held(record.PRESENT, sent=sent(), intent=intent(closed=record.MISSING))


def test_a_missing_instance_is_not_made_anew_by_itself():
    found = look(view(claim(plan="big"), MISSING))
    assert not found.begins
    assert isinstance(call(found), messages.FetchInstance)
    live = claim(marks={keys.OSB_RETRY: "anew"})
    found = look(view(live, MISSING))
    after = recorded(found, MISSING)
    assert (after.state, after.sent) == (record.INTENDED, None)
    assert after.intent.closed == ""


# It goes


def leave(*records, free=True, **fields) -> Next:
    spec = fields.pop("spec", {})
    return look(view(claim(deleting=True, **spec), *records, **fields), free=free)


def bound(*, live=True, records=()) -> BindingView:
    kind = replace(KIND, instances="databaseinstances")
    return BindingView("plane", kind, claim() if live else None, records)


def test_what_was_never_asked_for_goes_without_a_call():
    found = leave()
    assert written(found) == ["patch DatabaseInstance orders"]
    assert found.ask is None


def test_a_deleted_claim_leaves_with_the_ids_of_its_record():
    found = leave(PRESENT)
    assert recorded(found, PRESENT).state == record.LEAVING
    assert found.begins
    leaving = held(record.LEAVING, sent=sent(), service="old-service", plan="old-plan")
    assert call(leave(leaving)) == messages.Deprovision(UID, "old-service", "old-plan")


def test_an_instance_is_deleted_while_it_is_provisioned_as_well():
    going = held(record.INTENDED, intent=intent(), operation=operation())
    found = leave(going, free=False)
    after = recorded(found, going)
    assert (after.state, after.operation, after.intent) == (record.LEAVING, None, None)


@pytest.mark.parametrize("policy", ["", "WhenUnbound"])
def test_a_bound_instance_waits_for_its_bindings(policy):
    found = leave(PRESENT, bindings=(bound(),), spec={"deletionPolicy": policy})
    assert (written(found), found.ask) == ([], None)
    assert said(found)["DeletesAllowed"] == ("False", "StillBound")


def test_an_instance_that_goes_at_once_waits_for_records_of_bindings_only():
    spec = {"deletionPolicy": "Immediate"}
    assert written(leave(PRESENT, bindings=(bound(records=(PRESENT,)),), spec=spec)) == []
    found = leave(PRESENT, bindings=(bound(),), spec=spec)
    assert recorded(found, PRESENT).state == record.LEAVING


def test_a_retained_instance_is_never_called_about():
    found = leave(PRESENT, bindings=(bound(),), spec={"deletionPolicy": "Retain"})
    assert recorded(found, PRESENT).state == record.RETAINED
    assert written(found) == [f"patch BrokerRecord {UID}", "patch DatabaseInstance orders"]
    assert found.ask is None


def test_what_was_refused_at_first_is_deleted_nowhere():
    found = leave(held(record.INTENDED, intent=REFUSED))
    assert written(found) == [f"delete BrokerRecord {UID}", "patch DatabaseInstance orders"]
    unsure = held(record.INTENDED, intent=replace(REFUSED, tries=1))
    assert recorded(leave(unsure), unsure).state == record.LEAVING


def test_claims_that_go_with_their_crd_are_held_until_that_is_confirmed():
    found = leave(PRESENT, crd_is_deleting=True)
    assert written(found) == []
    assert said(found)["DeletesAllowed"] == ("False", "MassDeletion")
    for time, state in ((NOW, record.LEAVING), (NOW - timedelta(hours=1), record.PRESENT)):
        broker = replace(BROKER, mass_delete=format_time(time))
        found = leave(PRESENT, crd_is_deleting=True, broker=broker)
        assert recorded(found, PRESENT).state == state


@pytest.mark.parametrize("before", [PRESENT, held(record.LEAVING, sent=sent())])
def test_claims_are_held_while_it_cannot_be_seen_whether_their_crd_goes(before):
    found = leave(before, unsure="no answer")
    assert (written(found), found.ask) == ([], None)
    assert said(found)["DeletesAllowed"] == ("False", "CrdsNotRead")
    assert found.decision.again is not None
    broker = replace(BROKER, mass_delete=format_time(NOW))
    assert written(leave(PRESENT, unsure="no answer", broker=broker)) != []


def test_nothing_is_deleted_without_its_broker():
    found = leave(PRESENT, broker=None)
    assert (written(found), found.ask) == ([], None)
    assert said(found)["DeletesAllowed"] == ("False", "NoServiceBroker")


def test_a_failed_try_is_deleted_before_the_record_that_follows_it_goes_on():
    old = held(record.LEAVING)
    new = held(record.INTENDED, number=1, intent=intent())
    found = look(view(claim(), old, new))
    assert call(found) == messages.Deprovision(UID, "service-1", "plan-s")


# The claim is absent: law 1


def test_a_record_without_claim_is_kept_and_said():
    found = look(view(None, others=(PRESENT,)))
    assert recorded(found, PRESENT).state == record.ORPHANED
    assert [note.reason for note in found.decision.notes] == ["Orphaned"]
    assert found.ask is None


@pytest.mark.parametrize("state", [record.ORPHANED, record.RETAINED])
@pytest.mark.parametrize(
    ("mark", "follows"),
    [
        ("", []),
        ("Adopt", []),
        ("Forget", [f"delete BrokerRecord {UID}"]),
        ("Deprovision", [f"patch BrokerRecord {UID}"]),
        ("deprovision", []),
    ],
)
def test_what_is_without_claim_waits_for_a_word(state, mark, follows):
    found = look(view(None, others=(held(state, sent=sent(), mark=mark),)))
    assert written(found) == follows
    assert found.ask is None


@pytest.mark.parametrize("mark", ["Forget", "Deprovision"])
def test_an_orphan_that_is_bound_waits_for_its_bindings(mark):
    left = held(record.ORPHANED, sent=sent(), mark=mark)
    found = look(view(None, others=(left,), bindings=(bound(live=False, records=(PRESENT,)),)))
    assert written(found) == []


def test_a_deletion_that_was_begun_goes_on_without_its_claim():
    found = look(view(None, others=(held(record.LEAVING),)))
    assert isinstance(call(found), messages.Deprovision)


def test_a_claim_that_is_back_has_its_record_again():
    left = held(record.ORPHANED, sent=sent())
    assert recorded(look(view(claim(), left)), left).state == record.PRESENT
    begun = held(record.ORPHANED, intent=intent())
    assert recorded(look(view(claim(), begun)), begun).state == record.INTENDED
