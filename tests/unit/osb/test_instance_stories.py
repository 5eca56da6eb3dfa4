"""What instances come to, turn by turn, where a crash, a lie and an edit meet."""

from typing import Any

import pytest

from reconciler.api.osb import BROKER_RECORD
from reconciler.core import keys
from tests.support import osb_faults
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_turns import Turns


@pytest.fixture
def it() -> Turns:
    made = Turns(ScriptedBroker())
    make(made)
    made.go_on(8)
    assert made.broker.count("provision") == 1
    return made


def make(it: Turns) -> None:
    it.claim_instance(parameters={"a": 1})


def edit(it: Turns, **spec: object) -> None:
    it.objects.patch(it.at(), {"spec": spec})


def held(it: Turns) -> tuple[str, object]:
    (instance,) = it.broker.inventory.instances.values()
    return instance["plan_id"], instance["parameters"]


def test_an_update_is_made_again_where_reading_does_not_show_that_it_was_done(it: Turns) -> None:
    it.broker.modes.shows_parameters = False
    it.broker.faults.add("update", osb_faults.says(500), times=1)
    edit(it, parameters={"a": 2})
    it.go_on(8)
    assert held(it) == (it.kind.plans["small"], {"a": 2})


@pytest.mark.parametrize("is_sent", [True, False])
def test_an_edit_that_is_taken_back_before_its_answer_leaves_what_is_claimed(
    it: Turns, is_sent: bool
) -> None:
    edit(it, plan="big")
    it.go_on(1)  # the intent
    if is_sent:
        it.broker.faults.add("update", osb_faults.says(500, processed=True), times=1)
        it.go_on(1)
    edit(it, plan="small")
    it.go_on(8)
    assert held(it)[0] == it.kind.plans["small"]
    assert it.broker.violations == []


@pytest.mark.parametrize("again", [{"parameters": {"a": 3}}, {"plan": "small"}])
def test_an_edit_while_an_update_is_on_its_way_follows_it(it: Turns, again: dict[str, Any]) -> None:
    it.meanwhile = lambda: edit(it, **{"parameters": {"a": 2}, **again})
    edit(it, plan="big", parameters={"a": 2})
    it.go_on(12)
    spec = it.instance_claim["spec"]
    assert held(it) == (it.kind.plans[spec["plan"]], spec["parameters"])


@pytest.mark.parametrize("wish", [keys.ORPHAN_DEPROVISION, keys.ORPHAN_FORGET, keys.ORPHAN_ADOPT])
def test_a_claim_of_the_same_name_waits_for_what_becomes_of_its_predecessor(
    it: Turns, wish: str
) -> None:
    (old,) = it.broker.inventory.instances
    it.objects.patch(it.at(), {"metadata": {"finalizers": None}})
    it.objects.delete(it.at())
    make(it)
    it.go_on(8)
    assert [one.state for one in it.records()] == ["Orphaned"]
    it.objects.patch(
        it.at(BROKER_RECORD, old), {"metadata": {"annotations": {keys.OSB_ORPHAN: wish}}}
    )
    it.go_on(12)
    (one,) = it.records()
    assert one.state == "Present"
    assert one.claim.uid == it.instance_claim["metadata"]["uid"]
    left = set(it.broker.inventory.instances)
    assert left == {old, one.id} if wish == keys.ORPHAN_FORGET else {one.id}
