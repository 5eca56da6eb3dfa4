"""T11: claims that are deleted with their definition, or many at once, take no copy along."""

import asyncio
from functools import partial
from typing import Any

from reconciler.core import keys
from reconciler.core.refs import CRD
from tests.support.bound_scenes import Scene, conditions, remove, until
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, is_idle
from tests.support.losses import Many, confirm, deletes_since, measured, says, told, told_of


async def test_a_definition_that_is_deleted_takes_no_copy_along(scene: Scene) -> None:
    many = Many(scene, 3)
    async with scene.backend():
        async with konnector(scene.app.connection) as made:
            await bound(scene)
            await many.make("orders")
            mark = scene.plane.audit.mark()
            await remove(scene.app, CRD, "", scene.offer.name)
            await until(lambda: says(scene, "DeletesAllowed", "MassDeletion"))
            event = await until(lambda: told(scene, "MassDeletion"))
            assert keys.CONFIRM_MASS_DELETE in event["note"]
            for name in (*many.names, "orders"):
                await until(partial(told_of, scene, name, "DeletionHeld"))
            await eventually(lambda: is_idle(made))
            assert deletes_since(scene.plane, mark) == []
            assert await many.are_there("orders")
            assert measured(made, "klutch_held_writes_total", verb="delete") >= 4
        async with konnector(scene.app.connection) as made:
            await until(lambda: says(scene, "DeletesAllowed", "MassDeletion"))
            await eventually(lambda: is_idle(made))
            assert deletes_since(scene.plane, mark) == []
            await confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: is_empty(many))
            await until(lambda: says(scene, "DeletesAllowed", ""))


async def is_empty(many: Many) -> bool:
    return await many.there() == []


async def test_many_that_are_deleted_at_once_are_held_and_nothing_else_is(scene: Scene) -> None:
    """Five are few, and go; of the rest nothing goes, also not after a restart."""
    many = Many(scene, 12)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for name in many.names:
            await remove(scene.app, many.kind, scene.app_namespace, name)
        mark = scene.plane.audit.mark()
        for _ in range(2):
            async with konnector(scene.app.connection) as made:
                await until(lambda: says(scene, "DeletesAllowed", "MassDeletion"))
                await scene.patch_instance({"spec": {"size": "3Gi"}})
                await until(lambda: has_size(scene, "3Gi"))
                await eventually(lambda: is_idle(made))
                assert deletes_since(scene.plane, mark) == []
        async with konnector(scene.app.connection):
            await scene.patch_instance({"spec": {"size": "4Gi"}})
            await until(lambda: has_size(scene, "4Gi"))
            await confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: only_orders(many))


async def has_size(scene: Scene, size: str) -> bool:
    copy: Any = await scene.copy()
    return bool(copy["spec"]["size"] == size)


async def only_orders(many: Many) -> bool:
    return await many.there() == ["orders"]


async def test_deletions_that_come_one_after_the_other_are_seen_as_one(scene: Scene) -> None:
    many = Many(scene, 8)
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene)
        await many.make("orders")
        removals = (remove(scene.app, many.kind, scene.app_namespace, one) for one in many.names)
        await asyncio.gather(*removals)
        await until(lambda: says(scene, "DeletesAllowed", "MassDeletion"))
        await eventually(lambda: is_idle(made))
        assert len(await many.there()) >= 1 + len(many.names) - 5
        assert "Ready" in conditions(await scene.binding())
