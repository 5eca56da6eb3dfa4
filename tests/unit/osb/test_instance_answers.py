"""A broker's answer about an instance: what follows, cell by cell of the design's table 5."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bind.osb.decisions import record, turn
from bind.osb.decisions.view import Ask, Next, Pause
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core.manifest import get_text
from reconciler.core.secret import Secret
from tests.support.osb_views import (
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

SECONDS = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
BIG = claim(plan="big")
TO_BIG = sent(BIG, maintenance="")
CHANGED = claim(parameters={"a": 1})

PUT = messages.Provision(UID, "service-1", "plan-s", "o", "s")
PATCH = messages.Update(UID, "service-1", "plan-b", messages.Previous("plan-s"))
DELETE = messages.Deprovision(UID, "service-1", "plan-s")
GET = messages.FetchInstance(UID, "service-1", "plan-s")
POLL = messages.LastOperation(UID, "service-1", "plan-s")

NEW = held(record.INTENDED, intent=intent())
THERE = held(record.PRESENT, sent=sent())
CHANGING = held(record.PRESENT, sent=sent(), intent=intent("Update", TO_BIG))
LEAVING = held(record.LEAVING, sent=sent())


def answered(seen, call, outcome, *, about=UID) -> Next:
    return turn.answered(seen, Ask(about, call), outcome).next


def put(outcome, before=NEW, live=None, **fields) -> Next:
    return answered(view(live or claim(), before, **fields), PUT, outcome)


def patch(outcome, before=CHANGING, **fields) -> Next:
    return answered(view(BIG, before, **fields), PATCH, outcome)


def delete(outcome, before=LEAVING, *, live=None, **fields) -> Next:
    return answered(view(live or claim(deleting=True), before, **fields), DELETE, outcome)


def poll(outcome, before, *, live=None, **fields) -> Next:
    return answered(view(live or claim(), before, **fields), POLL, outcome)


def get(outcome, before=THERE, *, live=None, **fields) -> Next:
    return answered(view(live or claim(), before, **fields), GET, outcome)


# PUT


@pytest.mark.parametrize("created", [True, False], ids=["201", "200"])
def test_a_put_that_is_done_is_present_with_what_was_sent(created):
    found = put(outcomes.Done(dashboard_url="https://d.example", created=created))
    after = recorded(found, NEW)
    assert (after.state, after.sent, after.intent) == (record.PRESENT, sent(), None)
    assert after.made_at == NOW
    assert said(found) == {"Provisioned": ("True", ""), "UpToDate": ("True", "")}
    assert found.decision.fields["dashboardURL"] == "https://d.example"


def test_a_put_that_is_accepted_is_polled_by_its_key_until_its_deadline():
    found = put(outcomes.Accepted(Secret("op-9"), retry_after=17 * SECONDS))
    after = recorded(found, NEW)
    assert after.operation.key == Secret("op-9")
    assert after.operation.deadline == NOW + timedelta(hours=24)
    assert found.decision.again == 17 * SECONDS
    assert found.pauses[UID].until == NOW + 17 * SECONDS
    assert "op-9" not in repr(found)


def test_a_plan_says_how_long_it_may_take():
    before = held(record.INTENDED, plan="plan-b", intent=intent(target=TO_BIG))
    after = recorded(put(outcomes.Accepted(), before, BIG), before)
    assert after.operation.deadline == NOW + timedelta(minutes=10)


def test_a_refused_put_is_closed_with_the_brokers_words():
    found = put(outcomes.Refused("no such region"))
    after = recorded(found, NEW)
    assert after.state == record.INTENDED
    assert (after.intent.closed, after.intent.catalog) == (record.REFUSED, "catalogue-1")
    assert said(found)["Provisioned"] == ("False", "Refused")
    assert "no such region" in message(found, "Provisioned")
    assert phase(found) == "Failed"
    assert [note.reason for note in found.decision.notes] == ["ProvisionRefused"]


def test_a_412_names_the_version_that_is_spoken():
    assert "2.17" in message(put(outcomes.Refused("too new", "unsupported")), "Provisioned")


@pytest.mark.parametrize("tries", [0, 1, 3])
@pytest.mark.parametrize("is_edited", [False, True])
def test_another_version_of_maintenance_is_read_and_tried_once_more(tries, is_edited):
    before = held(record.INTENDED, intent=intent(tries=tries))
    found = put(outcomes.Refused("2.0.1", "maintenance"), before)
    assert found.reads_catalogue
    again = recorded(found, before)
    assert again.is_open
    if is_edited:
        again = recorded(poll(outcomes.Absent(is_json=True), again, live=CHANGED), again)
    found = put(outcomes.Refused("2.0.1", "maintenance"), again)
    assert said(found)["Provisioned"] == ("False", "Refused")


@pytest.mark.parametrize("tries", [0, 2])
def test_so_it_is_with_an_update_that_failed_before(tries):
    update = intent("Update", TO_BIG, tries=tries)
    going = None if tries else operation()
    before = held(record.PRESENT, sent=sent(), intent=update, operation=going)
    if not tries:
        before = recorded(poll(outcomes.Progress("failed"), before, live=BIG), before)
    found = patch(outcomes.Refused("2.0.1", "maintenance"), before)
    assert found.reads_catalogue
    found = patch(outcomes.Refused("2.0.1", "maintenance"), recorded(found, before))
    assert said(found) == {"UpToDate": ("False", "Refused")}


def test_and_with_the_number_after_one_that_failed():
    leaving = held(record.LEAVING)
    second = recorded(delete(outcomes.Gone(), live=claim()), leaving)
    assert (second.number, second.intent and second.intent.catalog) == (1, "")


@pytest.mark.parametrize(("tries", "wait"), [(0, 2), (1, 8), (2, 30)])
def test_an_unknown_put_is_repeated_after_ever_longer_pauses(tries, wait):
    before = held(record.INTENDED, intent=intent(tries=tries))
    found = put(outcomes.Unknown("silence"), before)
    after = recorded(found, before)
    assert (after.state, after.intent.tries) == (record.INTENDED, tries + 1)
    assert found.decision.again == wait * SECONDS
    assert found.pauses[UID].until == NOW + wait * SECONDS


@pytest.mark.parametrize("call", [PUT, PATCH, DELETE, POLL, GET])
@pytest.mark.parametrize(
    ("outcome", "wait"),
    [
        (outcomes.Unsent("refused connection"), 2),
        (outcomes.Unsent("too many", timedelta(seconds=90)), 90),
        (outcomes.Denied(401, "who are you?"), 2),
    ],
)
def test_what_was_surely_not_done_changes_no_record_and_no_ready(call, outcome, wait):
    found = answered(view(claim(), THERE), call, outcome)
    assert written(found) == []
    assert found.decision.again == wait * SECONDS
    assert "Provisioned" not in said(found)


def test_pauses_of_calls_that_were_not_sent_grow_to_a_minute():
    pauses = {UID: Pause(count=9)}
    assert put(outcomes.Unsent("away"), pauses=pauses).decision.again == MINUTE


# PATCH


def test_an_update_that_is_done_is_what_the_record_says_then():
    found = patch(outcomes.Done())
    after = recorded(found, CHANGING)
    assert (after.sent, after.plan, after.intent) == (TO_BIG, "plan-b", None)
    assert said(found)["UpToDate"] == ("True", "")
    assert found.decision.fields["plan"] == "big"


def test_an_accepted_update_is_polled_with_the_plan_before_it():
    after = recorded(patch(outcomes.Accepted()), CHANGING)
    assert after.operation.plan == "plan-s"
    assert after.sent == sent()


def test_a_refused_update_keeps_the_instance_as_it_is():
    found = patch(outcomes.Refused("not smaller"))
    after = recorded(found, CHANGING)
    assert after.state == record.PRESENT
    assert after.sent == sent()
    assert after.intent.closed == record.REFUSED
    assert said(found) == {"UpToDate": ("False", "Refused")}


@pytest.mark.parametrize(("tries", "is_closed"), [(0, False), (2, False), (3, True)])
def test_an_unknown_update_is_tried_three_times_more(tries, is_closed):
    before = replace(CHANGING, intent=intent("Update", TO_BIG, tries=tries))
    after = recorded(patch(outcomes.Unknown("silence"), before), before)
    assert bool(after.intent.closed) is is_closed
    assert after.intent.tries == tries + 1
    assert after.state == record.PRESENT


GOING = replace(CHANGING, operation=operation())


@pytest.mark.parametrize(
    ("usable", "repeatable", "tries", "is_closed"),
    [
        (None, None, 0, False),
        (True, True, 1, False),
        (None, None, 2, True),
        (None, False, 0, True),
        (False, None, 0, False),
    ],
)
def test_a_failed_update_is_repeated_as_the_broker_allows(usable, repeatable, tries, is_closed):
    before = held(
        record.PRESENT,
        sent=sent(),
        intent=intent("Update", TO_BIG, tries=tries),
        operation=operation(),
    )
    failed = outcomes.Progress(
        "failed", "no disk", instance_usable=usable, update_repeatable=repeatable
    )
    found = poll(failed, before, live=BIG)
    after = recorded(found, before)
    assert after.operation is None
    assert bool(after.intent.closed) is is_closed
    assert said(found)["UpToDate"] == ("False", "Failed")
    assert said(found).get("Provisioned") == (("False", "NotUsable") if usable is False else None)


# DELETE


@pytest.mark.parametrize("outcome", [outcomes.Gone(), outcomes.Absent(is_json=True)])
def test_a_confirmed_deletion_takes_the_record_and_then_the_finalizer(outcome):
    found = delete(outcome)
    assert written(found) == [f"delete BrokerRecord {UID}", "patch DatabaseInstance orders"]


@pytest.mark.parametrize(
    "outcome",
    [
        outcomes.Refused("still bound"),
        outcomes.Refused("still bound", "unsupported"),
        outcomes.Unknown("still bound"),
        outcomes.Unknown("still bound", 202, malformed=True),
    ],
)
def test_a_deletion_without_success_is_repeated_ever_slower_and_said(outcome):
    found = delete(outcome)
    assert written(found) == []
    assert found.decision.again == 2 * SECONDS
    assert "still bound" in message(found, "DeletesAllowed")
    pauses = {UID: Pause(count=20)}
    assert delete(outcome, pauses=pauses).decision.again == timedelta(minutes=10)


def test_a_failed_try_is_followed_by_the_next_number_before_its_record_goes():
    found = delete(outcomes.Gone(), live=claim())
    second = record.identifier(UID, 1)
    assert written(found) == [f"create BrokerRecord {second}", f"delete BrokerRecord {UID}"]


@pytest.mark.parametrize(
    ("number", "minutes", "closed"), [(0, 1, ""), (1, 5, ""), (2, 30, ""), (3, 0, "Failed")]
)
def test_tries_come_after_one_five_and_thirty_minutes_and_then_no_more(number, minutes, closed):
    leaving = held(record.LEAVING, number=number)
    found = answered(
        view(claim(), leaving),
        replace(DELETE, instance=leaving.id),
        outcomes.Gone(),
        about=leaving.id,
    )
    after = recorded(found)
    assert (after.number, after.state) == (number + 1, record.INTENDED)
    assert after.intent.closed == closed
    assert after.intent.since == NOW + timedelta(minutes=minutes)
    assert phase(found) == ("Failed" if closed else "Provisioning")


def test_what_leaves_without_its_claim_is_followed_by_nothing():
    seen = view(None, others=(LEAVING,))
    assert written(answered(seen, DELETE, outcomes.Gone())) == [f"delete BrokerRecord {UID}"]
    leaving = held(record.LEAVING, uid=OTHER_UID)
    seen = view(claim(), others=(leaving,))
    found = answered(seen, DELETE, outcomes.Gone(), about=OTHER_UID)
    assert written(found) == [f"delete BrokerRecord {OTHER_UID}"]


# last_operation


def test_an_operation_in_progress_is_asked_for_ever_slower_up_to_a_minute():
    before = replace(NEW, operation=operation())
    found = poll(outcomes.Progress("in progress", "half done"), before)
    assert written(found) == []
    assert found.decision.again == 15 * SECONDS
    assert get_text(found.decision.fields, "operation", "description") == "half done"
    pauses = {UID: Pause(count=12)}
    assert poll(outcomes.Progress(""), before, pauses=pauses).decision.again == MINUTE
    slow = outcomes.Progress("in progress", retry_after=timedelta(minutes=5))
    assert poll(slow, before).decision.again == 5 * MINUTE


# GET


def test_what_is_as_it_was_sent_writes_nothing():
    found = get(outcomes.Done(plan="plan-s"))
    assert written(found) == []
    assert found.pauses[UID].checked == NOW
    assert found.decision.again == 10 * MINUTE


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (outcomes.Done(plan="plan-b"), "plan"),
        (outcomes.Done(maintenance="3.0.0"), "maintenanceVersion"),
        (outcomes.Done(parameters={"password": "s3cret"}), "parameters.password"),
    ],
)
def test_a_difference_is_said_by_name_and_never_by_value(outcome, name):
    live = claim(parameters={"password": "hidden"})
    before = held(record.PRESENT, sent=sent(live))
    found = get(outcome, before, live=live)
    assert said(found)["InSync"] == ("False", "Drifted")
    assert name in message(found, "InSync")
    assert "s3cret" not in repr(found) + message(found, "InSync")
    assert "hidden" not in message(found, "InSync")


def test_what_the_broker_leaves_out_or_adds_is_no_difference():
    live = claim(parameters={"password": "hidden"})
    before = held(record.PRESENT, sent=sent(live))
    assert "InSync" not in said(get(outcomes.Done(parameters={"other": 1}), before, live=live))


@pytest.mark.parametrize("outcome", [outcomes.Absent(is_json=True), outcomes.Gone()])
def test_an_instance_that_the_broker_knows_no_more_is_missing(outcome):
    found = get(outcome)
    after = recorded(found, THERE)
    assert after.state == record.PRESENT
    assert after.intent.closed == record.MISSING
    assert said(found)["Provisioned"] == ("False", "Missing")


def test_a_missing_instance_that_is_back_counts_again():
    before = held(record.PRESENT, sent=sent(), intent=intent(closed=record.MISSING))
    assert recorded(get(outcomes.Done(), before), before).intent is None


def test_an_update_that_was_done_after_all_is_settled_by_reading():
    before = held(record.PRESENT, sent=sent(), intent=intent("Update", sent(BIG), tries=2))
    found = get(outcomes.Done(plan="plan-b"), before, live=BIG)
    assert recorded(found, before).sent == sent(BIG)
    found = get(outcomes.Done(plan="plan-s"), before, live=BIG)
    assert written(found) == []
    assert found.pauses[UID].tried == 2


def test_what_was_there_before_its_put_is_settled_by_reading_or_updated():
    before = held(record.PRESENT, sent=sent(digest="", parameters={}))
    done = outcomes.Done(plan="plan-s", maintenance="2.0.0")
    assert recorded(get(done, before), before).sent == sent()
    assert written(get(outcomes.Done(plan="plan-b"), before)) == []


def test_an_answer_about_what_is_gone_is_dropped():
    assert answered(view(claim(), NEW), PUT, outcomes.Done(), about="another") == Next()
