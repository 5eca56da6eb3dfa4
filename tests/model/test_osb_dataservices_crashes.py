"""Whatever ends klutch-osb between two calls or writes, each object has one thing behind it."""

import asyncio

import pytest

from bind.osb.dataservices import managed as kinds
from reconciler.core import conditions
from tests.support import osb_compositions
from tests.support.clusters import LiveCluster
from tests.support.cues import AFTER
from tests.support.faults import Crash, Faults, deeds, survives
from tests.support.osb_compositions import Compositions, Modelled
from tests.support.osb_wire import MUTATING

FOUR = (kinds.SERVICE_INSTANCE, kinds.SERVICE_BINDING, kinds.BACKUP, kinds.RESTORE)


async def dies_on_the_way(scene: Modelled, there: bool) -> int:
    """Let processes die after one to three steps each until all four are there, or are gone."""
    for deaths in range(200):
        faults = Faults()
        faults.add(deeds().nth(1 + deaths % 3), Crash(), at=AFTER)
        if await survives(lives(scene, there, faults)):
            return deaths
    raise AssertionError("it has not come to its end")


async def lives(scene: Modelled, there: bool, faults: Faults) -> None:
    scene.wires.faults = faults
    try:
        async with scene.front.program(faults=faults):
            while not await is_so(scene.front, there):
                faults.still_alive()
                await asyncio.sleep(1)
    finally:
        scene.wires.faults = Faults()


async def is_so(front: Compositions, there: bool) -> bool:
    for kind in FOUR:
        live = await front.read(kind)
        ready = conditions.get(live, "Ready")
        if (ready is not None and ready.status == "True") if there else live is None:
            continue
        return False
    return True


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_a_death_after_every_call_and_write_doubles_and_loses_nothing(
    control_plane: LiveCluster, namespace: str, asynchronous: bool
) -> None:
    async with osb_compositions.modelled(control_plane, namespace) as scene:
        await four_live_and_go(scene, asynchronous)


async def four_live_and_go(scene: Modelled, asynchronous: bool) -> None:
    front, broker, manager = scene.front, scene.broker, scene.manager
    if asynchronous:
        broker.modes.asynchronous, broker.modes.polls = MUTATING, 2
    await front.instance(parameters={"max_connections": 50})
    await front.binding()
    await front.make(kinds.BACKUP, {"instanceName": "orders"})
    await front.make(kinds.RESTORE, {"backupName": "orders"})
    assert await dies_on_the_way(scene, there=True) > 15
    assert broker.log_in(await front.credentials())
    held = broker.inventory
    assert (len(held.instances), len(held.bindings)) == (1, 1)
    assert (len(manager.backups), len(manager.restores)) == (1, 1)
    assert len(broker.provisioned()) == 1
    for kind in FOUR:
        await front.delete(kind)
    assert await dies_on_the_way(scene, there=False) > 4
    assert held.is_empty
    assert not manager.backups
