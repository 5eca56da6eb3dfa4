"""What does not answer is told once it is late, and nothing else waits for it.

protocol-konnector.md A.7, H16, H27.
"""

import asyncio
from functools import partial
from typing import Final

from konnector.provider.provider import LATE
from tests.kit.wire import Wires
from tests.support.bound_scenes import Scene, conditions, gone, has, remove, says, shown, until
from tests.support.cues import Gate
from tests.support.faults import Faults, on
from tests.support.konnector import konnector
from tests.support.konnector_faults import mortal

OTHERS: Final = tuple(f"db{number}" for number in range(5))


async def test_a_provider_that_never_answered_is_told_once_it_is_late(
    scene: Scene, wires: Wires
) -> None:
    """H16: for the original it is synced by then."""
    server = scene.plane.connection.server
    async with scene.backend():
        await scene.make_space()
        await scene.request()
        await until(scene.export)
    plane = wires.models.pop(server)
    async with konnector(scene.app.connection):
        await scene.bind()
        await asyncio.sleep(LATE - 5)
        pending = ("False", "Info", "Pending")
        assert shown(await scene.binding()) == [
            ("Ready", *pending),
            ("Connected", *pending),
            ("SecretValid", "True"),
        ]
        await asyncio.sleep(60)
        late = ("False", "Error", "InformerSyncTimeout")
        assert shown(await scene.binding()) == [
            ("Ready", *late),
            ("Connected", "Unknown", "Unknown"),
            ("InformersSynced", *late),
            ("SecretValid", "True"),
        ]
        message = conditions(await scene.binding())["InformersSynced"]["message"]
        for kind in ("ClusterBinding", "APIServiceExport", "APIServiceNamespace"):
            assert f"list {kind} list in namespace {scene.space}: no connection" in message

        wires.models[server] = plane
        async with scene.backend():
            await until(lambda: says(scene.binding(), "InformersSynced"))
            await until(lambda: says(scene.binding(), "Ready"))


async def test_no_instance_waits_for_a_slow_one(scene: Scene) -> None:
    """H27: neither those that come, nor those that change, nor those that go."""
    faults, gate = Faults(), Gate()
    async with scene.backend(), mortal(scene.app.connection, faults):
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        faults.add(on("create", "apply", kind=scene.offer.kind, name="slow"), gate)
        await scene.create_instance("slow")
        await gate.reached.wait()
        try:
            await others_come_change_and_go(scene)
            assert await scene.copy("slow") is None
        finally:
            gate.open()
        await until(lambda: scene.copy("slow"))


async def others_come_change_and_go(scene: Scene) -> None:
    for name in OTHERS:
        await scene.create_instance(name)
    for name in OTHERS:
        await until(partial(scene.copy, name))
    await scene.patch_instance({"spec": {"size": "2Gi"}})
    await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))
    await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
    await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
    await remove(scene.app, scene.offer.kind, scene.app_namespace, OTHERS[0])
    await until(lambda: gone(scene.copy(OTHERS[0])))
    await until(lambda: gone(scene.instance(OTHERS[0])))
