"""T16: a claim that was bound and lost its copy gets no new, empty service unasked."""

from functools import partial

from reconciler.core import keys
from tests.support.bound_scenes import Scene, until
from tests.support.eventually import eventually
from tests.support.konnector import AGENT, konnector
from tests.support.konnector_claims import bound, is_idle
from tests.support.losses import Many, confirm, measured, says, told, told_of

HELD = ("RecreationAllowed", "RecreationHeld")


def creates(scene: Scene, mark: int) -> list[str]:
    """Return the copies that konnectors asked to be made."""
    found = scene.plane.audit.writes_since(mark, namespace=scene.service_namespace)
    return [one.name for one in found if one.verb == "create" and AGENT in one.agent]


async def test_a_control_plane_restored_without_copies_gets_no_new_ones(scene: Scene) -> None:
    many, lost = Many(scene, 7), 4
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for name in many.names[:lost]:
            await many.lose_copy(name)
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: says(scene, *HELD))
            assert await until(lambda: told(scene, "RecreationHeld"))
            for name in many.names[:lost]:
                await until(partial(told_of, scene, name, "RecreationHeld"))
            await eventually(lambda: is_idle(made))
            assert creates(scene, mark) == []
            assert measured(made, "klutch_held_writes_total", verb="create") >= lost
            await confirm(scene, keys.CONFIRM_RECREATE, "others.shop.example")
            await eventually(lambda: is_idle(made))
            assert creates(scene, mark) == []
            await confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
            await until(lambda: many.are_there("orders"))
            await until(lambda: says(scene, "RecreationAllowed", ""))
