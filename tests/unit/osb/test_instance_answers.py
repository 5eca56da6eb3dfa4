"""A broker's answer about an instance: what follows, cell by cell of the design's table 5."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

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
    follows,
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

SECONDS, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
BIG, CHANGED = claim(plan="big"), claim(parameters={"a": 1})
TO_BIG = sent(BIG, maintenance="")

PUT = messages.Provision(UID, "service-1", "plan-s", "o", "s")
PATCH = messages.Update(UID, "service-1", "plan-b", messages.Previous("plan-s"))
DELETE = messages.Deprovision(UID, "service-1", "plan-s")
GET = messages.FetchInstance(UID, "service-1", "plan-s")
POLL = messages.LastOperation(UID, "service-1", "plan-s")

NEW = held(record.INTENDED, intent=intent())
CHANGING = held(record.PRESENT, sent=sent(), intent=intent("Update", TO_BIG))
LEAVING = held(record.LEAVING, sent=sent())
DONE, ABSENT, GONE = outcomes.Done(), outcomes.Absent(is_json=True), outcomes.Gone()
SILENCE, NO = outcomes.Unknown("silence"), outcomes.Refused("no")
OUTDATED = outcomes.Refused("2.0.1", "maintenance")
NO_JSON = outcomes.Unknown("no JSON", 202, malformed=True)
GOES_ON = outcomes.Progress("in progress", "half done")


def tried(before, tries):
    return replace(before, intent=replace(before.intent, tries=tries))


def changes(tries=0, **progress):
    """Return an update at work that has failed so often before, and how it ends."""
    target = intent("Update", TO_BIG, tries=tries)
    before = held(record.PRESENT, sent=sent(), intent=target, operation=operation())
    return view(BIG, before), POLL, outcomes.Progress("failed", "no disk", **progress)


def put(outcome, tries=0):
    return view(claim(), tried(NEW, tries)), PUT, outcome


def patch(outcome, tries=0, before=CHANGING):
    return view(BIG, tried(before, tries)), PATCH, outcome


def delete(outcome, **fields):
    return view(claim(deleting=True), LEAVING, **fields), DELETE, outcome


def failed(number):
    """Return the end of a failed try of this number."""
    leaving = held(record.LEAVING, number=number)
    return view(claim(), leaving), replace(DELETE, instance=leaving.id), GONE


def poll(outcome, **pause):
    going = replace(NEW, operation=operation())
    return view(claim(), going, pauses={UID: Pause(**pause)}), POLL, outcome


HIDDEN = claim(parameters={"password": "hidden"})
THERE = held(record.PRESENT, sent=sent(HIDDEN))
UNREAD = held(record.PRESENT, sent=sent(digest="", parameters={}))
FORMER = held(record.PRESENT, uid=OTHER_UID, sent=sent(digest="", parameters={}))
AS_SENT = outcomes.Done(plan="plan-s", maintenance="2.0.0")
UNSURE = held(record.PRESENT, sent=sent(), intent=intent("Update", sent(BIG), tries=2))
DIFFERS = {
    "plan": outcomes.Done(plan="plan-b"),
    "maintenanceVersion": outcomes.Done(maintenance="3.0.0"),
    "parameters.password": outcomes.Done(parameters={"password": "s3cret"}),
}
LOST = held(record.PRESENT, sent=sent(HIDDEN), intent=intent(closed=record.MISSING))


def get(outcome, before=THERE, live=None):
    return view(live or (HIDDEN if before is THERE else claim()), before), GET, outcome


# Sentence: the instance, the call and its outcome; what follows.
ANSWERS: dict[str, tuple[Any, str]] = {
    # PUT
    "201": (
        put(outcomes.Done(created=True)), "Present; Event Provisioned; Provisioned; UpToDate; read",
    ),
    "200": (put(DONE), "Present; Event Provisioned; Provisioned; UpToDate; read"),
    "202": (
        put(outcomes.Accepted()),
        "Intended, at work, Provision; Provisioned/Provisioning; rests 10 s",
    ),
    "202, and a pause": (
        put(outcomes.Accepted(retry_after=17 * SECONDS)),
        "Intended, at work, Provision; Provisioned/Provisioning; rests 17 s",
    ),
    "a refusal": (
        put(NO), "Intended, Refused Provision after 1; Event ProvisionRefused; Provisioned/Refused",
    ),
    **{
        f"unknown after {tries}": (
            put(SILENCE, tries),
            f"Intended, Provision after {tries + 1}; Provisioned/Provisioning; rests {seconds} s",
        )
        for tries, seconds in ((0, 2), (1, 8), (2, 30))
    },
    "unknown too often": (put(SILENCE, 3), "Leaving; Event ProvisionFailed; Provisioned/Retrying"),
    # PATCH
    "an update that is done": (patch(DONE), "Present; Event Updated; Provisioned; UpToDate"),
    "an update that has begun": (
        patch(outcomes.Accepted()), "Present, at work, Update; UpToDate/Updating; rests 10 s",
    ),
    "a refused update": (
        patch(NO), "Present, Refused Update after 1; Event UpdateRefused; UpToDate/Refused",
    ),
    "an unknown update": (patch(SILENCE), "Present, Update after 1; UpToDate/Updating; rests 2 s"),
    "an unknown update, the third time": (
        patch(SILENCE, 2), "Present, Update after 3; UpToDate/Updating; rests 30 s",
    ),
    "an unknown update, the last time": (
        patch(SILENCE, 3),
        "Present, Failed Update after 4; Event UpdateFailed; UpToDate/Failed; rests 30 s",
    ),
    **{
        f"an update that fails: {more}, after {tries}": (
            changes(tries, **more),
            f"Present, {word}Update after {tries + 1}; Event UpdateFailed; UpToDate/Failed{also}; "
            f"rests {seconds} s",
        )
        for tries, more, word, also, seconds in (
            (0, {}, "", "", 2),
            (1, {"instance_usable": True, "update_repeatable": True}, "", "", 8),
            (2, {}, "Failed ", "", 30),
            (0, {"update_repeatable": False}, "Failed ", "", 2),
            (0, {"instance_usable": False}, "", "; Provisioned/NotUsable", 2),
        )
    },
    # DELETE
    **{
        f"gone, {outcome}": (delete(outcome), "delete record; patch claim; Event Deprovisioned")
        for outcome in (GONE, ABSENT)
    },
    **{
        f"not gone, {outcome}": (
            delete(outcome), "Event DeprovisionFailed; DeletesAllowed/NotDeleted; rests 2 s",
        )
        for outcome in (NO, outcomes.Refused("no", "unsupported"), SILENCE, NO_JSON)
    },
    "not deleted for long": (
        delete(NO, pauses={UID: Pause(count=20)}), "DeletesAllowed/NotDeleted; rests 600 s",
    ),
    **{
        f"try {number} is gone": (
            failed(number),
            f"create Intended {number + 1}, {waits}; delete record; Provisioned/{reason}",
        )
        for number, waits, reason in (
            (0, "Provision in 60 s", "Retrying"),
            (1, "Provision in 300 s", "Retrying"),
            (2, "Provision in 1800 s", "Retrying"),
            (3, "Failed Provision", "Failed"),
        )
    },
    "gone without its claim": ((view(None, others=(LEAVING,)), DELETE, GONE), "delete record"),
    # last_operation
    "it goes on": (poll(GOES_ON), "Provisioned/Provisioning; rests 15 s"),
    "it goes on for long": (
        poll(outcomes.Progress(""), count=12), "Provisioned/Provisioning; rests 60 s",
    ),
    "it goes on, and a pause": (
        poll(outcomes.Progress("in progress", "", 5 * MINUTE)),
        "Provisioned/Provisioning; rests 300 s",
    ),
    # GET
    "as it was sent": (
        get(outcomes.Done(plan="plan-s")), "Provisioned; UpToDate; read; again 600 s",
    ),
    **{
        f"{name} differs": (
            get(found), "Provisioned; UpToDate; InSync/Drifted; read; again 600 s",
        )
        for name, found in DIFFERS.items()
    },
    "a value left out, and one more": (
        get(outcomes.Done(parameters={"x": 1})), "Provisioned; UpToDate; read; again 600 s",
    ),
    "a 404": (
        get(ABSENT),
        "Present, Missing Provision; Event Missing; Provisioned/Missing; read; again 600 s",
    ),
    "a 410": (
        get(GONE),
        "Present, Missing Provision; Event Missing; Provisioned/Missing; read; again 600 s",
    ),
    "missing, and back": (get(DONE, LOST), "Present; read"),
    "an update that was done after all": (
        get(outcomes.Done(plan="plan-b"), UNSURE, BIG),
        "Present; Event Updated; Provisioned; UpToDate",
    ),
    "an update that was not": (
        get(outcomes.Done(plan="plan-s"), UNSURE, BIG), "read; read after 2",
    ),
    "there before its PUT": (
        get(AS_SENT, UNREAD),
        "Present; Event Updated; Provisioned; UpToDate; read",
    ),
    "there before its PUT, otherwise": (get(outcomes.Done(plan="plan-b"), UNREAD), "read"),
    "read for a claim that went": ((view(None, others=(UNREAD,)), GET, AS_SENT), ""),
    "asked for a claim that went": ((view(None, others=(NEW,)), POLL, ABSENT), ""),
    "read for a former claim": (
        (view(claim(), others=(FORMER,)), replace(GET, instance=OTHER_UID), AS_SENT), "",
    ),
}  # fmt: skip


def answered(seen, call, outcome, about=""):
    return turn.answered(seen, Ask(about or call.instance, call), outcome).next


@pytest.mark.parametrize(("given", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_what_follows(given: Any, expected):
    assert follows(given[0], answered(*given)) == expected


def test_what_is_done_is_recorded_with_what_was_sent():
    found = answered(*put(outcomes.Done(dashboard_url="https://d.example", created=True)))
    after = recorded(found, NEW)
    assert (after.sent, after.made_at) == (sent(), NOW)
    assert found.decision.fields["dashboardURL"] == "https://d.example"
    found = answered(*patch(DONE))
    after = recorded(found, CHANGING)
    assert (after.sent, after.plan) == (TO_BIG, "plan-b")
    assert found.decision.fields["plan"] == "big"


def test_what_is_accepted_is_polled_by_its_key_until_its_deadline():
    found = answered(*put(outcomes.Accepted(Secret("op-9"))))
    after = recorded(found, NEW)
    assert (after.operation.key, after.operation.plan) == (Secret("op-9"), "plan-s")
    assert after.operation.deadline == NOW + timedelta(hours=24)
    assert "op-9" not in repr(found)
    before = held(record.INTENDED, plan="plan-b", intent=intent(target=TO_BIG))
    after = recorded(answered(view(BIG, before), PUT, outcomes.Accepted()), before)
    assert after.operation.deadline == NOW + timedelta(minutes=10)  # as the plan says
    after = recorded(answered(*patch(outcomes.Accepted())), CHANGING)
    assert after.operation.plan == "plan-s"  # as before the update


def test_a_refusal_is_kept_with_the_brokers_words_and_catalogue():
    found = answered(*put(NO))
    assert recorded(found, NEW).intent.catalog == "catalogue-1"
    assert message(found, "Provisioned") == "no"
    found = answered(*put(outcomes.Refused("too new", "unsupported")))
    assert "2.17" in message(found, "Provisioned")
    assert message(answered(*delete(NO)), "DeletesAllowed") == "no"


@pytest.mark.parametrize("tries", [0, 1, 3])
@pytest.mark.parametrize("is_edited", [False, True])
def test_another_version_of_maintenance_is_read_and_tried_once_more(tries, is_edited):
    before = tried(NEW, tries)
    found = answered(view(claim(), before), PUT, OUTDATED)
    assert found.reads_catalogue
    again = recorded(found, before)
    assert again.is_open
    if is_edited:
        again = recorded(answered(view(CHANGED, again), POLL, ABSENT), again)
    found = answered(view(claim(), again), PUT, OUTDATED)
    assert said(found)["Provisioned"] == ("False", "Refused")


@pytest.mark.parametrize("tries", [0, 2])
def test_so_it_is_with_an_update_that_failed_before(tries):
    before = tried(CHANGING, tries)
    if not tries:
        before = replace(before, operation=operation())
        before = recorded(answered(view(BIG, before), POLL, outcomes.Progress("failed")), before)
    found = answered(view(BIG, before), PATCH, OUTDATED)
    assert found.reads_catalogue
    found = answered(view(BIG, recorded(found, before)), PATCH, OUTDATED)
    assert said(found) == {"UpToDate": ("False", "Refused")}


def test_and_with_the_number_after_one_that_failed():
    second = recorded(answered(*failed(0)))
    assert (second.number, second.intent and second.intent.catalog) == (1, "")


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
    found = answered(view(HIDDEN, THERE), call, outcome)
    assert written(found) == []
    assert found.decision.again == wait * SECONDS
    assert "Provisioned" not in said(found)


def test_pauses_of_calls_that_were_not_sent_grow_to_a_minute():
    seen = view(claim(), NEW, pauses={UID: Pause(count=9)})
    assert answered(seen, PUT, outcomes.Unsent("away")).decision.again == MINUTE


def test_the_broker_says_how_far_it_is():
    found = answered(*poll(GOES_ON))
    assert get_text(found.decision.fields, "operation", "description") == "half done"


@pytest.mark.parametrize(("name", "outcome"), DIFFERS.items())
def test_a_difference_is_said_by_name_and_never_by_value(name, outcome):
    found = answered(*get(outcome))
    assert name in message(found, "InSync")
    assert "s3cret" not in repr(found) + message(found, "InSync")
    assert "hidden" not in message(found, "InSync")


def test_phases():
    for given, wanted in (
        (put(DONE), "Ready"),
        (put(NO), "Failed"),
        (put(SILENCE), "Provisioning"),
        (patch(SILENCE), "Updating"),
        (patch(NO), "Ready"),
        (changes(instance_usable=False), "Failed"),
        (failed(0), "Provisioning"),
        (failed(3), "Failed"),
        (delete(NO), "Deleting"),
        (get(GONE), "Failed"),
    ):
        assert phase(answered(*given)) == wanted


def test_an_answer_about_another_record_is_of_no_claim():
    leaving = held(record.LEAVING, uid=OTHER_UID)
    found = answered(view(claim(), others=(leaving,)), DELETE, GONE, about=OTHER_UID)
    assert written(found) == [f"delete BrokerRecord {OTHER_UID}"]
    assert answered(view(claim(), NEW), PUT, DONE, about="another") == Next()
