"""Whatever befalls a managed resource, its broker has one instance for it, or none.

As `test_osb_histories`, of the instances of existing compositions: what was begun is in their own
status and annotations, and in the memory of a process.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices.instances import INSTANCES, Seen
from bind.osb.dataservices.managed import READY, SERVICE_INSTANCE, SYNCED
from bind.osb.dataservices.store import Kept
from bind.osb.decisions.view import SOON
from reconciler.core import conditions, keys
from reconciler.core.refs import Ref
from tests.properties.test_osb_histories import change_ways, fail, lose, misbehave, stories
from tests.support import dataservices
from tests.support.osb_turns import Turns, outcome_of


class Story(Turns):
    """A managed resource, and a process that remembers what it did about it."""

    kept: Kept = Kept()
    answer: tuple[Any, ...] = ()

    def restart(self) -> None:
        self.kept, self.answer = Kept(), ()

    @property
    def instance(self) -> Any:
        return self.live(SERVICE_INSTANCE, "orders")

    def _turn(self) -> timedelta | None:
        live = self.instance
        if live is None:
            self.kept = Kept()
            return None
        uid = live["metadata"]["uid"]
        usage = {"metadata": {"name": uid}, "providerConfigRef": {"name": "default"}}
        facts: Any = {"config": dataservices.CONFIG, "usage": usage, "place": self.place}
        facts |= {"catalogue": self.read_catalogue(), "confirmed": self.is_fresh, "terms": ("1",)}
        seen = Seen("control-plane", SERVICE_INSTANCE, live, self.now, **facts)
        turn = INSTANCES.turn(seen, self.kept)
        if self.answer and self.answer[0] == uid:
            turn = INSTANCES.answered(seen, self.kept, *self.answer[1:])
        self.kept, moved = turn.kept, dict[Ref, str]()
        for step in turn.decision.steps:
            self._write(step, moved)
            self._lived()
        self._write_status(self.at(SERVICE_INSTANCE), turn.decision)
        self.answer = ()
        if turn.ask is None:
            return turn.decision.again
        outcome = outcome_of(self.broker, turn.ask.call)
        self.calls.append(turn.ask.call)
        self.steps.append(f"{type(turn.ask.call).__name__} {turn.ask.record[:4]}: {outcome}")
        self._lived()
        if self.meanwhile is not None:
            self.meanwhile()  # nothing is decided until the answer is
        self.answer = uid, turn.ask, outcome
        return SOON


def make(it: Story) -> None:
    if it.instance is None:
        text = "spec: {forProvider: {serviceName: database, planName: small}}"
        made = dataservices.managed(SERVICE_INSTANCE, text)
        for name in ("uid", "resourceVersion", "name"):
            del made["metadata"][name]
        it.objects.create(it.at(SERVICE_INSTANCE), made)
        edit(it, planName="small")


def edit(it: Story, **change: Any) -> None:
    if it.instance is not None:
        parameters = {"parameters": {"a": it.chance.randrange(4)}}
        change = change or it.chance.choice([{"planName": "big"}, {"planName": "small"}, {}])
        it.objects.patch(
            it.at(SERVICE_INSTANCE), {"spec": {"forProvider": {**parameters, **change}}}
        )


def retry(it: Story) -> None:
    if it.instance is not None:
        note = {keys.OSB_RETRY: str(it.chance.random())}
        it.objects.patch(it.at(SERVICE_INSTANCE), {"metadata": {"annotations": note}})


def delete(it: Story) -> None:
    it.objects.delete(it.at(SERVICE_INSTANCE))


HAPPENINGS: tuple[Callable[[Story], None], ...] = (
    make, make, edit, edit, retry, delete, lose, misbehave, misbehave, misbehave, fail,
    change_ways,
)  # fmt: skip


@pytest.mark.parametrize("part", range(4))
def test_the_inventory_is_what_is_stated(part: int, pytestconfig: pytest.Config) -> None:
    for it, where in stories(part, pytestconfig, Story, HAPPENINGS):
        assert faults_at_rest(it) == [], (where, it.instance)


def faults_at_rest(it: Story) -> list[str]:
    """Return what is wrong where all is well for long."""
    there, live = it.broker.inventory.instances, it.instance
    if live is None:
        return [f"{key} is forgotten" for key in there]
    if "deletionTimestamp" in live["metadata"]:
        return ["it does not go"]
    at = live["status"].get("atProvider", {})
    found = [f"{key} is forgotten" for key in there if key != at.get("instanceId")]
    ready, synced = (conditions.get(live, one) for one in (READY, SYNCED))
    if ready is None or synced is None or "False" in (ready.status, synced.status):
        return found  # it is stated
    wanted = live["spec"]["forProvider"]
    has = there.get(at.get("instanceId"), {})
    plan = it.kind.plans[wanted["planName"]], wanted["parameters"]
    if (has.get("plan_id"), has.get("parameters")) != plan:
        found.append(f"{has} in place of {plan}")
    return found
