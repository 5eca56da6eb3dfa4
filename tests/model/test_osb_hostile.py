"""Brokers that hang, break, lie and forget: nothing is lost or doubled, and all converges after."""

import asyncio
import json
from typing import Any

import pytest

from reconciler.api.osb import SERVICE_BROKER
from reconciler.blueprints.objects import build
from reconciler.core import keys, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from tests.support import osb_catalogues, osb_faults
from tests.support.eventually import eventually
from tests.support.faults import Faults
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_faults import Fault
from tests.support.osb_scenes import INSTANCE, MANAGER, OsbScene, crd_of
from tests.support.osb_stories import LIFE, WAYS, comes_to
from tests.support.osb_wire import MUTATING, Verb

CALLS: tuple[Verb, ...] = (
    "provision", "update", "deprovision", "poll", "fetch", "bind", "unbind", "poll-binding",
    "fetch-binding",
)  # fmt: skip
CALM = Kind("services.calm.example", "v1", "CacheInstance", "cacheinstances")
MOST_TRIES = 4  # of instances, for one claim


async def lives(osb: OsbScene) -> None:
    """Let a claim and its binding go from their making to their end."""
    for deed, goal in LIFE:
        await deed(osb)
        await comes_to(osb, goal, Faults())


FAULTS: dict[str, Fault] = {
    "hangs, and has done it": osb_faults.hangs(processed=True),
    "hangs, and does nothing": osb_faults.hangs(),
    "cuts, and has done it": osb_faults.cuts(processed=True),
    "500, and has done it": osb_faults.says(500, processed=True),
    "500, and does nothing": osb_faults.says(500),
    "broken JSON": osb_faults.broken_json(200, processed=False),
    "broken JSON of a 202": osb_faults.broken_json(202),
    "no end": osb_faults.endless(processed=True),
    "a gateway's 404": osb_faults.gateway(404),
    "a gateway's 502": osb_faults.gateway(502),
    "another place": osb_faults.redirects("https://elsewhere.example"),
    "ConcurrencyError": osb_faults.busy(),
    "429": osb_faults.says(429, {}),
    "503 with Retry-After": osb_faults.unavailable(600),
}


def cases() -> list[Any]:
    """Return each fault in both ways; what was done at once, and what was not later, is soaked."""
    return [
        pytest.param(fault, way, marks=() if is_usual else pytest.mark.soak)
        for fault, one in FAULTS.items()
        for way, is_usual in (("at once", not one.processed), ("later", one.processed))
    ]


@pytest.mark.parametrize(("fault", "way"), cases())
async def test_the_first_answers_to_each_call_are_worthless(
    osb: OsbScene, fault: str, way: str
) -> None:
    osb.broker.modes = WAYS[way]()
    refused = {"a gateway's 404": ("deprovision", "unbind", "poll", "poll-binding", "fetch")}
    for verb in refused.get(fault, CALLS):
        osb.broker.faults.add(verb, FAULTS[fault], times=2)
    await lives(osb)
    assert osb.broker.violations == []
    assert len(osb.broker.provisioned()) <= MOST_TRIES


@pytest.mark.parametrize(("way", "count"), [("at once", 1), ("later", 3)])
async def test_what_fails_is_deleted_before_it_is_made_again(
    osb: OsbScene, way: str, count: int
) -> None:
    osb.broker.modes = WAYS[way]()
    for verb in MUTATING:
        osb.broker.modes.failing[verb] = count if verb in ("provision", "bind") else 1
    await lives(osb)
    assert osb.broker.violations == []
    assert len(osb.broker.provisioned()) == 1 + count


async def test_an_instance_that_fails_always_is_tried_so_often_and_leaves_nothing(
    osb: OsbScene,
) -> None:
    osb.broker.modes = WAYS["later"]()
    osb.broker.modes.failing["provision"] = 100
    async with osb.program():
        await osb.claim()
        await osb.in_phase(INSTANCE, "Failed")
        await asyncio.sleep(24 * 3600)
        assert len(osb.broker.provisioned()) == MOST_TRIES
        assert osb.broker.inventory.is_empty
        await osb.delete(INSTANCE)
        await osb.gone(INSTANCE)
    assert await osb.records() == []


async def test_new_ids_at_each_start_lose_nothing(osb: OsbScene) -> None:
    """What is there goes on by the ids that are recorded; nothing new is made by old ones."""
    async with osb.program():
        for deed, goal in LIFE[:2]:
            await deed(osb)
            await eventually(lambda goal=goal: goal(osb), within=600)  # type: ignore[misc]
        osb.broker.catalogue = osb_catalogues.catalogue()
        await asyncio.sleep(900)
        await osb.claim("another")
        await asyncio.sleep(900)
        assert len(osb.broker.provisioned()) == 1
        for deed, _ in LIFE[-2:]:
            await deed(osb)
        await osb.gone(INSTANCE)
    assert osb.broker.inventory.is_empty


async def test_a_catalogue_older_than_the_kinds_is_read_at_once(osb: OsbScene) -> None:
    """`klutchctl catalog` has read it, and its files are applied: nobody waits for minutes."""
    loop = asyncio.get_running_loop()
    async with osb.program():
        await osb.claim()
        await osb.in_phase(INSTANCE, "Ready")
        osb.broker.catalogue = osb_catalogues.catalogue()
        for crd in osb.generated():
            await osb.plane.cluster.apply(crd, refs.CRD, manager=MANAGER, force=True)
        began = loop.time()
        await osb.claim("another")
        await osb.in_phase(INSTANCE, "Ready", "another")
        assert loop.time() - began < 10
        read = osb.broker.count("catalogue")
        kind = refs.Ref(osb.plane.name, refs.CRD, "", INSTANCE.resource)
        note: Manifest = {"metadata": {"annotations": {"reviewed-by": "ada"}}}
        await osb.plane.cluster.merge_patch(kind, note, manager=MANAGER)
        await asyncio.sleep(60)
        assert osb.broker.count("catalogue") == read  # it says nothing new


async def test_a_broker_that_hangs_delays_no_other(osb: OsbScene) -> None:
    """Twenty claims of one that never answers, beside those of another."""
    loop, calm = asyncio.get_running_loop(), await a_calm_broker(osb)
    osb.broker.faults.add("provision", osb_faults.hangs())
    async with osb.program():
        took = []
        for number in range(3):
            for each in range(20):
                await osb.claim(f"hanging-{number}-{each}")
            began = loop.time()
            await osb.claim_of(CALM, f"orders-{number}")
            await osb.in_phase(CALM, "Ready", f"orders-{number}")
            took.append(loop.time() - began)
            await asyncio.sleep(60)
        assert len(calm.inventory.instances) == len(took)
        assert max(took) < 1
        osb.broker.faults.clear()
        await eventually(lambda: len(osb.broker.inventory.instances) == 60, within=7200)


async def a_calm_broker(osb: OsbScene) -> ScriptedBroker:
    """Make another broker with one kind."""
    calm, plane, url = ScriptedBroker(now=osb.broker.now), osb.plane.cluster, "https://calm.example"
    offering = calm.catalogue["services"][0]
    plans = {plan["name"]: plan["id"] for plan in offering["plans"]}
    marks = {keys.OSB_OFFERING: offering["id"], keys.OSB_PLANS: json.dumps(plans)}
    await plane.create(crd_of(CALM, "calm", marks), refs.CRD, manager=MANAGER)
    data = {"username": calm.user, "password": calm.password}
    secret = build(refs.SECRET, "calm", namespace=osb.home, stringData=data)
    await plane.create(secret, refs.SECRET, manager=MANAGER)
    spec: Manifest = {"url": url, "group": CALM.group, "secretRef": {"name": "calm"}}
    made = build(SERVICE_BROKER, "calm", namespace=osb.home, spec=spec)
    await plane.create(made, SERVICE_BROKER, manager=MANAGER)
    osb.wires.brokers[url] = calm
    return calm
