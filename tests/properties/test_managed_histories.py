"""Whatever befalls a managed resource, its broker has one instance for it, or none.

As `test_osb_histories`, of the instances of existing compositions: what was begun is in their own
status and annotations, and in the memory of a process.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from bind.osb.dataservices.instances import INSTANCES, Seen
from bind.osb.dataservices.managed import READY, SERVICE_INSTANCE, SYNCED, is_paused
from bind.osb.dataservices.store import Kept, Store
from bind.osb.decisions.view import SOON
from reconciler.core import conditions, keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from tests.properties.test_osb_histories import (
    change_ways,
    come_to_rest,
    fail,
    lose,
    misbehave,
    stories,
)
from tests.support import dataservices
from tests.support.osb_turns import Turns, outcome_of


class Story(Turns):
    """A managed resource, and a process that remembers what it did about it."""

    store: ClassVar[Store[Any]] = INSTANCES
    managed: ClassVar[Kind] = SERVICE_INSTANCE
    text = "spec: {forProvider: {serviceName: database, planName: small, parameters: {a: 0}}}"
    config: Manifest | None = dataservices.CONFIG
    kept: Kept = Kept()
    answer: tuple[Any, ...] = ()

    def restart(self) -> None:
        self.kept, self.answer = Kept(), ()

    @property
    def itself(self) -> Any:
        return self.live(self.managed, "orders")

    def seen(self, made: Callable[..., Any] = Seen, **more: Any) -> Any:
        """Return the input of a decision."""
        usage = {"metadata": {"name": ""}, "providerConfigRef": {"name": "default"}}
        facts: Any = {"config": self.config, "usage": usage, "terms": ("1",), **more}
        if self.config is not None and not is_paused(self.itself):
            facts |= {"place": self.place, "catalogue": self.read_catalogue()}
            facts |= {"confirmed": self.is_fresh}
        return made("control-plane", self.managed, self.itself, self.now, **facts)

    def _turn(self) -> timedelta | None:
        if self.itself is None:
            self.kept = Kept()
            return None
        seen = self.seen()
        turn = self.store.turn(seen, self.kept)
        if self.answer and self.answer[0] == seen.uid:
            turn = self.store.answered(seen, self.kept, *self.answer[1:])
        self.kept, moved = turn.kept, dict[Ref, str]()
        for step in turn.decision.steps:
            self._write(step, moved)
            self._lived()
        self._write_status(self.at(self.managed), turn.decision)
        self.answer = ()
        if turn.ask is None:
            return turn.decision.again
        assert not is_paused(seen.live)
        url = manifest.get_text(self.config or {}, "spec", "url")
        assert seen.annotations.get(keys.OSB_ORIGIN, url) == url != "", "another broker is asked"
        outcome = outcome_of(self.broker, turn.ask.call)
        self.calls.append(turn.ask.call)
        self.steps.append(f"{type(turn.ask.call).__name__} {turn.ask.record[:4]}: {outcome}")
        self._lived()
        self.answer = seen.uid, turn.ask, outcome
        if self.meanwhile is not None:
            self.meanwhile()  # nothing is decided until the answer is
        return SOON


def make(it: Story) -> None:
    if it.itself is None:
        made = dataservices.managed(it.managed, it.text)
        for name in ("uid", "resourceVersion", "name"):
            del made["metadata"][name]
        it.objects.create(it.at(it.managed), made)


def edit(it: Story) -> None:
    if it.itself is not None:
        change = it.chance.choice([{"planName": "big"}, {"planName": "small"}, {}])
        parameters = {"parameters": {"a": it.chance.randrange(4)}}
        it.objects.patch(it.at(it.managed), {"spec": {"forProvider": {**parameters, **change}}})


def retry(it: Story) -> None:
    mark(it, keys.OSB_RETRY, str(it.chance.random()))


def mark(it: Story, key: str, text: str | None) -> None:
    if it.itself is not None:
        it.objects.patch(it.at(it.managed), {"metadata": {"annotations": {key: text}}})


def delete(it: Story) -> None:
    it.objects.delete(it.at(it.managed))


def pause(it: Story) -> None:
    mark(it, keys.PAUSED, it.chance.choice(["true", None]))


def configure(it: Story) -> None:
    elsewhere = manifest.put(dataservices.CONFIG, "https://b.example", "spec", "url")
    it.config = it.chance.choice([dataservices.CONFIG, elsewhere, None])


def be_well(it: Story) -> None:
    """Let nothing be in the way any more, until nothing follows."""
    mark(it, keys.PAUSED, None)
    at = None if it.itself is None else manifest.annotations_of(it.itself).get(keys.OSB_ORIGIN)
    it.config = manifest.put(dataservices.CONFIG, at or dataservices.URL, "spec", "url")
    come_to_rest(it)


HAPPENINGS: tuple[Callable[[Story], None], ...] = (
    make, make, edit, edit, retry, delete, pause, configure, lose, misbehave, misbehave, misbehave,
    fail, change_ways,
)  # fmt: skip


@pytest.mark.parametrize("part", range(4))
def test_the_inventory_is_what_is_stated(part: int, pytestconfig: pytest.Config) -> None:
    for it, where in stories(part, pytestconfig, Story, HAPPENINGS):
        be_well(it)
        assert faults_at_rest(it) == [], (where, it.itself)


def faults_at_rest(it: Story) -> list[str]:
    """Return what is wrong where all is well for long."""
    there, live = it.broker.inventory.instances, it.itself
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
