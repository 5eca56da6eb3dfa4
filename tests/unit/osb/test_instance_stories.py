"""What instances come to, turn by turn, where a crash, a lie and an edit meet."""

import pytest

from reconciler.api.osb import BROKER_RECORD
from reconciler.core import keys
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
