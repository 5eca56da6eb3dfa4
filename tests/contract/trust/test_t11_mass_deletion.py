"""T11: claims that are deleted with their definition, or many at once, take no copy along."""

from functools import partial

from reconciler.core import keys
from reconciler.core.refs import CRD
from tests.support.bound_scenes import Scene, remove, until
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
