"""What may hold data is deleted at its broker only with its claim: an old record proves nothing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.decisions import instance, record, turn
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import Ask, Next, Pause
from reconciler.api.osb import BROKER_RECORD
from reconciler.blueprints.offering import messages, outcomes
from reconciler.core import keys
from tests.support import osb_faults
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_faults import Fault
from tests.support.osb_turns import Turns
from tests.support.osb_views import (
    NOW,
    UID,
    claim,
    held,
    intent,
    operation,
    recorded,
    said,
    sent,
    view,
    written,
)

DAY = timedelta(days=1)
PUT = messages.Provision(UID, "service-1", "plan-s", "o", "s")
POLL = messages.LastOperation(UID, "service-1", "plan-s")
LATE = held(record.INTENDED, intent=intent(), operation=operation(deadline=NOW))
GOES_ON = outcomes.Progress("in progress")


def look(before: Record, **claimed: Any) -> Next:
    return instance.look(view(claim(**claimed), before))


def answered(before: Record, call: messages.Call, outcome: outcomes.Outcome, **fields: Any) -> Next:
    live = fields.pop("live", claim())
    return turn.answered(view(live, before, **fields), Ask(UID, call), outcome).next


# Past the deadline


def test_a_provisioning_past_its_deadline_is_asked_for_before_it_is_decided() -> None:
    found = look(LATE)
    assert isinstance(found.ask and found.ask.call, messages.LastOperation)
    assert written(found) == []
    paused = {UID: Pause(until=NOW + timedelta(seconds=5))}
    found = instance.look(view(claim(), LATE, pauses=paused))
    assert (found.ask, found.decision.again) == (None, timedelta(seconds=5))


def test_an_update_or_a_deletion_past_its_deadline_is_decided_without_a_call() -> None:
    late = operation(deadline=NOW)
    update = held(record.PRESENT, sent=sent(), intent=intent("Update"), operation=late)
    found = look(update)
    assert found.ask is None
    assert (recorded(found, update).state, recorded(found, update).operation) == ("Present", None)
    leaving = held(record.LEAVING, sent=sent(), operation=late)
    found = look(leaving, deleting=True)
    assert found.ask is None
    assert recorded(found, leaving).operation is None


def test_the_last_question_within_the_deadline_is_not_far_from_it() -> None:
    before = replace(LATE, operation=operation(deadline=NOW + timedelta(seconds=3)))
    assert answered(before, POLL, GOES_ON).pauses[UID].until == NOW + timedelta(seconds=3)


# What was there once


MISSING = held(
    record.PRESENT, sent=sent(), intent=intent(closed=record.MISSING), made_at=NOW - 9 * DAY
)
ANEW = held(record.INTENDED, intent=intent(), made_at=NOW - 9 * DAY)


@pytest.mark.parametrize("made_at", [NOW - 9 * DAY, None], ids=["as now", "of an earlier version"])
def test_a_retry_remembers_that_an_instance_was_there(made_at: Any) -> None:
    before = held(record.PRESENT, sent=sent(), intent=MISSING.intent, made_at=made_at)
    after = recorded(look(before, marks={keys.OSB_RETRY: "anew"}), before)
    assert (after.state, after.made_at) == (record.INTENDED, made_at or NOW)


@pytest.mark.parametrize(
    ("call", "outcome", "fields"),
    [
        (PUT, outcomes.Unknown("no JSON", 201, malformed=True), {}),
        (PUT, outcomes.Unknown("HTTP 500", 500), {"intent": intent(tries=3)}),
        (POLL, outcomes.Progress("failed", "no disk"), {"operation": operation()}),
    ],
    ids=["malformed", "unknown", "failed"],
)
def test_what_was_there_once_is_kept_where_making_it_anew_fails(
    call: messages.Call, outcome: outcomes.Outcome, fields: Any
) -> None:
    before = held(record.INTENDED, **{"intent": intent(), "made_at": NOW - 9 * DAY, **fields})
    found = answered(before, call, outcome)
    after = recorded(found, before)
    assert (after.state, after.operation, after.made_at) == ("Intended", None, NOW - 9 * DAY)
    assert after.intent.closed == record.FAILED
    assert after.intent.tries >= 1
    assert said(found)["Provisioned"] == ("False", "Failed")
    assert written(look(after)) == []
    assert look(after, marks={keys.OSB_RETRY: "2"}).begins


def test_what_was_there_once_is_asked_for_as_its_claim_says_now() -> None:
    live = claim(parameters={"a": 1})
    found = answered(ANEW, POLL, outcomes.Progress("failed", "no disk"), live=live)
    stopped = recorded(found, ANEW)
    assert stopped.state == record.INTENDED
    assert look(stopped, parameters={"a": 1}).begins


def test_what_was_there_once_is_deleted_at_the_broker_with_its_claim() -> None:
    before = answered(ANEW, PUT, outcomes.Refused("quota"))
    refused = held(record.INTENDED, intent=recorded(before, ANEW).intent, made_at=ANEW.made_at)
    assert recorded(look(refused, deleting=True), refused).state == record.LEAVING


# What may have been made


@pytest.mark.parametrize(("tries", "kept"), [(0, 0), (1, 1), (4, 1)])
def test_a_retry_remembers_that_an_earlier_put_may_have_been_processed(
    tries: int, kept: int
) -> None:
    closed = intent(closed=record.REFUSED, tries=tries, catalog="catalogue-1")
    before = held(record.INTENDED, intent=closed)
    after = recorded(look(before, marks={keys.OSB_RETRY: "1"}), before)
    assert (after.intent.closed, after.intent.tries) == ("", kept)


@pytest.mark.parametrize(
    ("outcome", "tries", "kept"),
    [
        (outcomes.Absent(is_json=True), 0, 0),
        (outcomes.Absent(is_json=True), 2, 1),
        (outcomes.Gone(), 0, 0),
        (outcomes.Refused("x"), 0, 1),
        (outcomes.Refused("x"), 2, 1),
        (outcomes.Refused("x", "unsupported"), 0, 1),
    ],
)
def test_an_edit_forgets_only_what_was_surely_not_made(
    outcome: outcomes.Outcome, tries: int, kept: int
) -> None:
    before = held(record.INTENDED, intent=intent(tries=tries))
    live = claim(parameters={"a": 1})
    after = recorded(answered(before, POLL, outcome, live=live), before)
    assert (after.state, after.intent.target) == (record.INTENDED, sent(live))
    assert (after.intent.closed, after.intent.tries) == ("", kept)


# What was left without a claim


def left(before: Record, *, retains: bool) -> Any:
    """Return a record after its claim was gone, or deleted and said Retain."""
    if retains:
        return recorded(look(before, deleting=True, deletionPolicy="Retain"), before)
    return recorded(instance.look(view(None, others=(before,))), before)


@pytest.mark.parametrize("retains", [True, False])
@pytest.mark.parametrize(
    "before",
    [
        held(record.INTENDED, intent=intent(), operation=operation()),
        held(record.INTENDED, intent=intent(tries=3)),
        held(record.INTENDED, intent=intent(tries=3, closed=record.FAILED, catalog="catalogue-1")),
    ],
    ids=["at work", "unknown", "given up"],
)
def test_what_was_begun_is_deleted_at_the_broker_with_the_claim_that_adopts_it(
    before: Record, retains: bool
) -> None:
    after = left(before, retains=retains)
    assert after.operation is None
    for _ in range(2):
        after = recorded(look(after, marks={keys.OSB_RETRY: "1"}), after)
    assert after.state == record.INTENDED
    refused = recorded(answered(after, PUT, outcomes.Refused("quota")), after)
    malformed = recorded(answered(after, PUT, outcomes.Unknown("x", malformed=True)), after)
    assert malformed.state == record.INTENDED
    assert recorded(look(refused, deleting=True), refused).state == record.LEAVING


@pytest.mark.parametrize("sent_before", [None, sent()])
def test_what_an_earlier_version_retained_at_work_goes_on(sent_before: Any) -> None:
    before = held(record.RETAINED, sent=sent_before, operation=operation())
    after = recorded(look(before), before)
    assert (after.operation, after.intent) == (None, None)
    if sent_before is None:
        after = recorded(look(after), after)
        assert (after.state, after.intent) == (record.INTENDED, intent(tries=1))


def test_a_retained_update_is_not_forgotten() -> None:
    """What the plan is, nobody knows: "it was made big, and who adopts it wants it small"."""
    going = held(record.PRESENT, sent=sent(), intent=intent("Update"), operation=operation())
    after = left(going, retains=True)
    assert (after.operation, after.intent) == (None, intent("Update"))


# Stories


@pytest.fixture
def it() -> Turns:
    made = Turns(ScriptedBroker())
    made.broker.modes.asynchronous, made.broker.modes.polls = frozenset({"provision"}), 3
    made.claim_instance()
    return made


def wish(it: Turns, text: str) -> None:
    it.objects.patch(it.at(), {"metadata": {"annotations": {keys.OSB_RETRY: text}}})


def restored(it: Turns) -> None:
    """Have a backup of the control plane restored that was made while the instance was made."""
    while not it.records() or it.records()[0].operation is None:
        it.go_on(1)
    (old,) = it.objects.all(BROKER_RECORD)
    claimed = it.instance_claim
    it.go_on(9)
    assert it.states() == [(0, "Present")]
    for kind, backup in ((BROKER_RECORD, old), (it.kind.kind, claimed)):
        body = {"spec": {**dict.fromkeys(it.objects.all(kind)[0]["spec"]), **backup["spec"]}}
        it.objects.patch(it.at(kind, backup["metadata"]["name"]), body)
    it.pauses.clear()
    assert it.states() == [(0, "Intended")]


@pytest.mark.parametrize("days", [0, 9])
@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (osb_faults.refuses(404), 99),
        (osb_faults.gateway(404), 9),
        (osb_faults.refuses(400), 99),
        (osb_faults.refuses(410), 99),
        (osb_faults.says(502), 9),
        (osb_faults.hangs(), 9),
        (osb_faults.says(200, {}), 99),
        (osb_faults.says(200, {"state": "in progress"}), 9),
        (osb_faults.unavailable(30), 9),
    ],
)
def test_an_instance_that_is_used_since_its_backup_is_there_after_it_was_restored(
    it: Turns, fault: Fault, times: int, days: int
) -> None:
    restored(it)
    it.now += days * DAY
    it.broker.faults.add("poll", fault, times=times)
    (made,) = it.broker.inventory.instances
    it.go_on(240)
    assert it.broker.count("deprovision") == 0
    assert it.states() == [(0, "Present")]
    assert list(it.broker.inventory.instances) == [made]


@pytest.mark.parametrize(
    ("poll", "put"),
    [
        (osb_faults.refuses(404), osb_faults.says(500)),
        (osb_faults.refuses(404), osb_faults.hangs()),
        (osb_faults.refuses(404), osb_faults.broken_json(201)),
        (osb_faults.says(200, {"state": "failed"}), osb_faults.broken_json(201)),
    ],
)
def test_it_is_kept_as_well_where_its_broker_answers_nonsense_for_long(
    it: Turns, poll: Fault, put: Fault
) -> None:
    restored(it)
    it.now += 9 * DAY
    it.broker.faults.add("poll", poll, times=99)
    it.broker.faults.add("provision", put, times=99)
    for text in "12":
        it.go_on(30)
        assert it.states() == [(0, "Intended")]
        wish(it, text)
    assert it.broker.count("deprovision") == 0
    it.broker.faults.clear()
    it.go_on(30)
    wish(it, "3")
    it.go_on(9)
    assert it.states() == [(0, "Present")]


def test_a_wish_to_make_anew_deletes_nothing(it: Turns) -> None:
    """The broker said for a while that it has no such instance, and then makes nothing."""
    it.go_on(9)
    it.broker.faults.add("fetch", osb_faults.refuses(410), times=1)
    while it.records()[0].intent is None:
        it.go_on(1)
    it.broker.faults.add("provision", osb_faults.says(500), times=9)
    wish(it, "1")
    it.go_on(20)
    assert it.broker.count("deprovision") == 0
    assert it.states() == [(0, "Intended")]
    it.broker.faults.clear()
    wish(it, "2")
    it.go_on(9)
    assert it.states() == [(0, "Present")]


def test_what_an_unanswered_put_made_is_deleted_with_its_claim(it: Turns) -> None:
    it.broker.modes.asynchronous = frozenset()
    it.broker.faults.add("provision", osb_faults.hangs(processed=True), times=1)
    it.broker.faults.add("provision", osb_faults.refuses(400), times=9)
    it.go_on(9)
    wish(it, "1")
    it.go_on(9)
    assert len(it.broker.inventory.instances) == 1
    it.objects.delete(it.at())
    it.go_on(9)
    assert it.broker.inventory.is_empty
    assert (it.instance_claim, it.records()) == (None, [])
