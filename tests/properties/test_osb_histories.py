"""Whatever befalls an instance claim, its broker has one instance for it, or none.

Random histories: developers edit, delete and tear off, brokers lie, lose and fail, processes die
between any two steps. Then all is well for a while, and what the broker has is what is claimed.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest

from bind.osb.decisions.record import ORPHANED
from reconciler.blueprints.offering.messages import FetchBinding, FetchInstance
from reconciler.core import conditions, keys
from tests.support import osb_catalogues
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_turns import Turns
from tests.support.osb_wire import MUTATING

HISTORIES, SOAKED, EVENTS = 60, 4000, 8
T = TypeVar("T", bound=Turns)


def make_claim(it: Turns) -> None:
    if it.instance_claim is None:
        it.claim_instance(parameters={"a": it.chance.randrange(3)})


def edit(it: Turns) -> None:
    if it.instance_claim is not None:
        change = it.chance.choice([{"plan": "big"}, {"plan": "small"}, {"parameters": {"a": 3}}])
        it.objects.patch(it.at(), {"spec": change})


def retry(it: Turns) -> None:
    if it.instance_claim is not None:
        note = {keys.OSB_RETRY: str(it.chance.random())}
        it.objects.patch(it.at(), {"metadata": {"annotations": note}})


def delete(it: Turns) -> None:
    it.objects.delete(it.at())


def tear_off(it: Turns) -> None:
    if it.instance_claim is not None:
        it.objects.patch(it.at(), {"metadata": {"finalizers": None}})
        it.objects.delete(it.at())


def decide_about_orphans(it: Turns) -> None:
    it.decides_about_orphans(it.chance.choice([keys.ORPHAN_ADOPT, keys.ORPHAN_DEPROVISION]))


def lose(it: Turns) -> None:
    for key in list(it.broker.inventory.instances):
        it.broker.inventory.lose((key, ""))


def misbehave(it: Turns) -> None:
    it.misbehaves(*sorted(MUTATING), "poll", "fetch")


def fail(it: Turns) -> None:
    it.broker.modes.failing[it.chance.choice(["provision", "update", "deprovision"])] += 1


def change_ways(it: Turns) -> None:
    ways = {"asynchronous": (frozenset(), MUTATING), "shows_parameters": (True, False)}
    it.changes_ways(polls=(0, 1, 3), **ways)


HAPPENINGS: tuple[Callable[[Turns], None], ...] = (
    make_claim, make_claim, edit, edit, retry, delete, tear_off, lose, misbehave,
    misbehave, misbehave, fail, change_ways, decide_about_orphans,
)  # fmt: skip


def come_to_rest(it: Turns) -> None:
    """Let all be well until nothing follows for hours."""
    it.mortality = 0.0
    it.broker.faults.clear()
    it.broker.modes.failing.clear()
    quiet = 0
    while quiet < 40:
        before, asked = it.objects.versions, len(it.calls)
        it.go_on(1)
        reads = all(isinstance(call, FetchInstance | FetchBinding) for call in it.calls[asked:])
        quiet = quiet + 1 if reads and it.objects.versions == before else 0
        assert len(it.steps) < 4000, it.steps


def stories(
    part: int, config: pytest.Config, made: type[T], happenings: Sequence[Callable[[T], None]]
) -> Iterator[tuple[T, Any]]:
    """Yield stories at their rest, and how to find them again."""
    soaks = config.getoption("--hypothesis-profile") == "soak"
    for number in range((SOAKED if soaks else HISTORIES) // 4):
        chance = random.Random(f"{part}/{number}")
        broker = ScriptedBroker(osb_catalogues.catalogue(osb_catalogues.offering()))
        it = made(broker, chance, mortality=chance.choice([0, 0.05, 0.2]))
        for _ in range(EVENTS):
            it.befalls(happenings)
            it.meanwhile = chance.choice([None, None, partial(it.befalls, happenings)])
            it.go_on(chance.choice([0, 1, 2, 5, 20]))
            it.meanwhile = None
            assert broker.inventory.doubles == [], it.steps
        come_to_rest(it)
        yield it, (part, number, it.steps)


@pytest.mark.parametrize("part", range(4))
def test_the_inventory_is_what_is_claimed(part: int, pytestconfig: pytest.Config) -> None:
    for it, where in stories(part, pytestconfig, Turns, HAPPENINGS):
        assert faults_at_rest(it) == [], (where, it.instance_claim, it.records())


def said(claim: Any, type_: str) -> str:
    condition = conditions.get(claim, type_)
    return "" if condition is None else f"{condition.status}/{condition.reason}"


def faults_at_rest(it: Turns) -> list[str]:
    """Return what is wrong where all is well for long."""
    held, records, claim = it.broker.inventory.instances, it.records(), it.instance_claim
    found = [*it.broker.inventory.doubles]
    found += [f"{key} is forgotten" for key in held if key not in {one.id for one in records}]
    if claim is None or keys.OSB not in claim["metadata"].get("finalizers", []):
        return found + [f"{one.id}: {one.state}" for one in records if one.state != ORPHANED]
    if "deletionTimestamp" in claim["metadata"]:
        return [*found, "the claim does not go"]
    if said(claim, "InSync") == "False/Drifted":
        return found  # what went on after it was given up, and what was lied about; it is said
    if said(claim, "Provisioned") == "True/" and said(claim, "UpToDate") == "True/":
        mine = [one for one in records if one.claim.uid == claim["metadata"]["uid"]]
        there = [held.get(one.id, {}) for one in mine]
        wanted = it.kind.plans[claim["spec"]["plan"]], claim["spec"]["parameters"]
        if [(one.get("plan_id"), one.get("parameters")) for one in there] != [wanted]:
            found.append(f"{there} in place of {wanted}")
    elif said(claim, "Provisioned") == "False/PredecessorThere":
        wishes = [one.mark.get(keys.OSB_ORPHAN, "") for one in records]
        left = [one.state for one in records if one.state != ORPHANED]
        return found + left + [f"{wish} is not done" for wish in wishes if wish]
    elif not records or not records[0].intent or not records[0].intent.closed:
        found.append("neither Ready nor refused")
    return found
