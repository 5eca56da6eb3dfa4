"""T3: what is only absent deletes nothing, on real API servers; a named confirmation does."""

from functools import partial

from reconciler.core import keys
from tests.support.bound_scenes import Scene, conditions, until
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, is_idle
from tests.support.losses import (
    Many,
    confirm,
    deletes_since,
    measured,
    says,
    told,
)

ORPHANED = ("InstancesInSync", "Orphaned")


async def orphaned(many: Many, *names: str) -> bool:
    return await many.orphans() == sorted(names)


async def lacks(many: Many, *names: str) -> bool:
    return not set(names) & set(await many.there())


async def test_claims_absent_after_a_restart_delete_nothing(scene: Scene) -> None:
    absent = 13
    many = Many(scene, absent)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        lost = many.names
        for name in lost:
            await many.lose_instance(name)
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: orphaned(many, *lost))
            await until(lambda: says(scene, *ORPHANED))
            assert await until(lambda: told(scene, "Orphaned"))
            said = await until(lambda: binding_says(scene, "Orphaned"))
            assert f"{absent} cop" in said["message"]
            assert f"{scene.app_namespace}/db00" in said["message"]
            assert f"{keys.CONFIRM_ORPHANS}={scene.offer.name}" in said["message"]
            metric = partial(measured, made, "klutch_orphaned_copies", resource=scene.offer.name)
            await eventually(lambda: metric() == absent)
            await eventually(lambda: is_idle(made))
            assert await many.are_there("orders")
            assert deletes_since(scene.plane, mark) == []

            # One comes back, and is an orphan no more.
            await scene.create_instance(lost[0], size="2Gi")
            await until(lambda: orphaned(many, *lost[1:]))
            assert await many.are_there("orders")
            await confirm(scene, keys.CONFIRM_ORPHANS, scene.offer.name)
            await until(lambda: lacks(many, *lost[1:]))
            await until(lambda: says(scene, "InstancesInSync", ""))
            await eventually(lambda: metric() == 0)
            assert len(deletes_since(scene.plane, mark)) == absent - 1
            assert lost[0] in await many.there()


async def binding_says(scene: Scene, reason: str):
    said = conditions(await scene.binding()).get("InstancesInSync", {})
    return said if said.get("reason") == reason else None
