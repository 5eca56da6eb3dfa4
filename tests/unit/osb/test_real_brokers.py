"""What real brokers were seen to do, and what a claim comes to: nothing is lost, nothing hangs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.decisions import instance, record, turn, view
from bind.osb.decisions.view import Ask
from reconciler.blueprints.offering import messages, outcomes
from reconciler.blueprints.offering.catalogue import Schemas
from reconciler.core import conditions, keys
from reconciler.core.manifest import Manifest, get
from tests.support import osb_faults
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_turns import Turns
from tests.support.osb_views import (
    BROKER,
    CATALOGUE,
    NOW,
    claim,
    held,
    intent,
    message,
    operation,
    recorded,
    said,
    sent,
)
from tests.support.osb_views import view as seen_as
from tests.unit.osb.test_turns import bound, of_binding

HERE = "https://broker.example"


def made(*happens, **modes) -> Turns:
    """Return what becomes of a claim whose PUT met faults, in the order of their verbs."""
    it = Turns(ScriptedBroker())
    for verb, fault in happens:
        it.broker.faults.add(verb, fault, times=1)
    for name, value in modes.items():
        setattr(it.broker.modes, name, value)
    it.claim_instance()
    it.go_on(30)
    return it


@pytest.mark.parametrize("has_answer", [True, False], ids=["accepted", "waits for its next try"])
def test_a_deletion_waits_for_an_open_update_then_unbinds_then_deprovisions(has_answer) -> None:
    going = operation(since=NOW, deadline=NOW + timedelta(hours=1)) if has_answer else None
    target = intent("Update", tries=1, since=NOW + timedelta(seconds=8))
    there = held(record.PRESENT, sent=sent(), intent=target, operation=going)
    gone = bound(of_binding(record.PRESENT, sent=sent()), deleting=True)
    seen = seen_as(claim(deleting=True), there, bindings=(gone,))
    first, *others = turn.look(seen)
    if has_answer:
        assert isinstance(first.next.ask and first.next.ask.call, messages.LastOperation)
        assert not any(part.next.begins for part in others)
        first, *_ = turn.look(replace(seen, now=NOW + timedelta(minutes=10)))
    after = recorded(first.next, there)
    assert (after.operation, after.intent) == (None, None)
    parts = turn.look(replace(seen, records=(after,)))
    assert [part.next.begins for part in parts if part.binding is not None] == [True]
    assert said(parts[-1].next)["DeletesAllowed"] == ("False", "StillBound")


def test_a_409_after_an_unknown_answer_is_still_unknown_and_mitigated() -> None:
    it = made(("provision", osb_faults.says(500, processed=True)), repeated=409)
    assert [one.number for one in it.records()] == [1]
    assert list(it.broker.inventory.instances) == [it.records()[0].id]


def test_what_is_being_made_behind_a_409_is_polled_to_its_end() -> None:
    lost = ("provision", osb_faults.cuts(processed=True))
    it = made(lost, repeated=409, asynchronous=frozenset({"provision"}), polls=3)
    assert [(one.number, one.state) for one in it.records()] == [(0, record.PRESENT)]
    assert (it.broker.count("deprovision"), it.broker.count("update")) == (0, 0)


@pytest.mark.parametrize("polls", [True, False])
@pytest.mark.parametrize("reads", [True, False])
def test_a_409_to_the_first_put_is_a_question(polls: bool, reads: bool) -> None:
    it = Turns(ScriptedBroker())
    it.broker.modes.repeated = 409
    for verb, answers in (("poll", polls), ("fetch", reads)):
        if not answers:
            it.broker.faults.add(verb, osb_faults.refuses(404))
    it.claim_instance()
    it.go_on(2)
    it.ends_in_a_call()
    it.go_on(20)
    assert it.broker.count("deprovision") == 0
    (one,) = it.records()
    assert one.state == (record.PRESENT if polls or reads else record.INTENDED)
    if not (polls or reads):
        assert one.intent is not None
        assert one.intent.closed == record.FAILED


def test_nothing_that_another_life_may_have_used_is_deleted_unasked() -> None:
    before = held(record.INTENDED, intent=intent(), term="lease/3")
    lost = outcomes.Unknown("half an answer", 201, malformed=True)
    for term, state in (("lease/4", record.INTENDED), ("lease/3", record.LEAVING)):
        seen = seen_as(claim(), before, term=term)
        ask = Ask(before.id, messages.Provision("i", "s", "p", "o", "s"))
        found = turn.answered(seen, ask, lost).next
        assert recorded(found, before).state == state
    assert view.stamped(before, None, ("lease/4", "lease/3")).term == "lease/4"
    assert view.stamped(before, None, ("lease/4",)).term == "lease/3"


def test_a_record_names_its_broker_and_another_one_is_never_asked() -> None:
    broker = replace(BROKER, origin=HERE, spec=replace(BROKER.spec, uid="u-2"))
    old = held(record.PRESENT, sent=sent())
    stamped = view.stamped(old, broker, ("t",))
    assert (stamped.origin, stamped.broker_uid) == (HERE, "u-2")
    first = instance.look(seen_as(claim(), stamped, broker=broker))
    assert recorded(first, old).origin == HERE
    spec = get(record.created(stamped, "osb").manifest, "spec")
    there = replace(recorded(first, old), live={**(old.live or {}), "spec": spec})
    away = replace(broker, origin="https://elsewhere.example")
    for live, condition in ((claim(), "UpToDate"), (claim(deleting=True), "DeletesAllowed")):
        found = instance.look(seen_as(live, there, broker=view.asked(away, [there])))
        assert found.ask is None
        assert said(found)[condition] == ("False", "BrokerMoved")
        assert f"{keys.OSB_MOVED}: https://elsewhere.example" in message(found, condition)
    takes_over = replace(away, takes_over=True)
    assert view.stamped(there, takes_over, ("t",)).origin == away.origin


def test_a_record_is_freed_of_a_broker_that_is_gone() -> None:
    there = held(record.PRESENT, sent=sent())
    found = instance.look(seen_as(claim(deleting=True), there, broker=None))
    assert f"BrokerRecord {there.id}" in message(found, "DeletesAllowed")
    word = held(record.PRESENT, sent=sent(), mark=keys.ORPHAN_FORGET)
    found = instance.look(seen_as(claim(deleting=True), word, broker=None))
    assert len(list(found.decision.steps)) == 2


def test_an_update_sends_what_the_schema_of_the_plan_names() -> None:
    small, big = CATALOGUE.offerings[0].plans
    size: Manifest = {"properties": {"size": {"type": "integer"}}, "additionalProperties": False}
    plan = replace(small, schemas=Schemas(update=size))
    offering = replace(CATALOGUE.offerings[0], plans=(plan, big))
    broker = replace(BROKER, catalogue=replace(CATALOGUE, offerings=(offering,)))
    live = claim(parameters={"region": "eu", "size": 2})
    going = held(
        record.PRESENT,
        sent=sent(claim(parameters={"region": "eu", "size": 1})),
        intent=intent("Update", sent(live)),
    )
    ask = instance.look(seen_as(live, going, broker=broker)).ask
    assert ask is not None
    assert isinstance(ask.call, messages.Update)
    assert (ask.call.plan, ask.call.parameters) == ("plan-s", {"size": 2})


def test_a_failing_delete_says_so_until_it_is_done() -> None:
    leaving = held(record.LEAVING)
    live = claim(deleting=True, says={"DeletesAllowed": ("False", "NotDeleted")})
    found = instance.look(seen_as(live, leaving))
    assert isinstance(found.ask, Ask)
    assert "DeletesAllowed" not in said(found)


def test_the_words_of_a_broker_stay_while_the_next_try_waits() -> None:
    words = "quota of eu-1 exceeded, ask ops"
    why = {"type": "Provisioned", "status": "False", "reason": "Retrying", "message": words}
    live = {**claim(), "status": {"conditions": [why]}}
    leaving = held(record.LEAVING)
    ask = Ask(leaving.id, messages.Deprovision(leaving.id, "service-1", "plan-s"))
    found = turn.answered(seen_as(live, leaving), ask, outcomes.Gone()).next
    assert words in message(found, "Provisioned")


def of_claim(it: Turns, name: str) -> Any:
    return conditions.get(it.instance_claim, name)


def test_a_read_that_shows_nothing_is_named_and_hinders_no_update() -> None:
    it = made(("update", osb_faults.says(500)))
    it.broker.faults.add("fetch", osb_faults.gateway(404))
    it.objects.edit(it.at(), lambda live: live["spec"].update(plan="big"))
    it.go_on(30)
    assert [(one.plan, one.intent) for one in it.records()] == [(it.kind.plans["big"], None)]
    assert of_claim(it, "UpToDate").status == "True"
    assert (of_claim(it, "InSync").status, of_claim(it, "Ready").status) == ("Unknown", "True")
    reads, since = it.broker.count("fetch"), it.now
    it.go_on(30)
    assert it.broker.count("fetch") - reads <= (it.now - since) / it.spec.timing.resync


def test_a_poll_that_the_broker_does_not_answer_says_why() -> None:
    it = Turns(ScriptedBroker())
    it.broker.modes.asynchronous = frozenset({"provision"})
    it.broker.faults.add("poll", osb_faults.refuses(501, "", "no such action"))
    it.claim_instance()
    it.go_on(6)  # the last turn comes before the next poll is due
    assert "no such action" in of_claim(it, "Provisioned").message
    it.broker.faults = osb_faults.Faults()
    it.go_on(1)
    assert of_claim(it, "Provisioned").message == "at work"  # its description


def test_a_failed_try_that_is_not_deleted_says_both() -> None:
    it = Turns(ScriptedBroker())
    it.broker.faults.add("provision", osb_faults.broken_json(201))
    it.broker.faults.add("deprovision", osb_faults.refuses(400, "", "not today"))
    it.claim_instance()
    it.go_on(9)
    assert it.broker.count("deprovision") > 2
    words = of_claim(it, "Provisioned").message
    assert (words.count("not today"), words.count("before another try")) == (1, 1)
