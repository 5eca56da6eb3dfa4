"""T16: a claim that was bound and lost its copy gets no new, empty service unasked."""

from functools import partial
from typing import Any

import pytest

from reconciler.api.bindings import API_SERVICE_BINDING
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from tests.support.bound_scenes import BIND, Scene, remove, secret, until
from tests.support.eventually import eventually
from tests.support.konnector import AGENT, konnector
from tests.support.konnector_claims import bound, claim, is_idle
from tests.support.losses import Many, confirm, measured, note, says, told, told_of, withdraw

HELD = ("RecreationAllowed", "RecreationHeld")


def creates(scene: Scene, mark: int) -> list[str]:
    """Return the copies that konnectors asked to be made."""
    found = scene.plane.audit.writes_since(mark, namespace=scene.service_namespace)
    return [one.name for one in found if one.verb == "create" and AGENT in one.agent]


@pytest.mark.parametrize("lost", [1, 4])
async def test_a_control_plane_restored_without_copies_gets_no_new_ones(
    scene: Scene, lost: int
) -> None:
    many = Many(scene, 7)
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


async def test_one_that_is_deleted_alone_before_our_eyes_is_made_again(scene: Scene) -> None:
    """G 44; a second one, so soon after, is part of a larger loss."""
    many = Many(scene, 3)
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene)
        await many.make("orders")
        before = uid_of(await scene.copy("db00"))
        await many.lose_copy("db00")
        await until(lambda: is_another(scene, "db00", before))
        await many.lose_copy("db01")
        await until(lambda: told_of(scene, "db01", "RecreationHeld"))
        await eventually(lambda: is_idle(made))
        assert await many.there() == ["db00", "db02", "orders"]
        await confirm(scene, keys.CONFIRM_RECREATE)  # a time, as before: all, for an hour
        await until(lambda: many.are_there("orders"))


async def test_of_many_that_are_lost_before_our_eyes_not_even_the_first_is_made_again(
    scene: Scene,
) -> None:
    many = Many(scene, 7)
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene)
        await many.make("orders")
        mark = scene.plane.audit.mark()
        for name in many.names:
            await many.lose_copy(name)
        for name in many.names:
            await until(partial(told_of, scene, name, "RecreationHeld"))
        await eventually(lambda: is_idle(made))
        assert creates(scene, mark) == []
        assert await many.there() == ["orders"]


async def is_another(scene: Scene, name: str, uid: str) -> bool:
    live = await scene.copy(name)
    return live is not None and uid_of(live) != uid


async def test_a_binding_may_ask_for_new_services_always(scene: Scene) -> None:
    many = Many(scene, 3)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for name in many.names:
            await many.lose_copy(name)
        async with konnector(scene.app.connection):
            await until(lambda: says(scene, *HELD))
            ref = Ref(scene.app.name, API_SERVICE_BINDING, BIND, scene.offer.name)
            await note(scene.app, ref, keys.RECREATE, keys.RECREATE_ALWAYS)
            await until(lambda: many.are_there("orders"))


async def test_credentials_stay_where_copies_were_lost(scene: Scene) -> None:
    """Applications run on them, and a new claim still gets its copy."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, claim("secrets", "Provider"))
            made = secret("creds", scene.service_namespace)
            await scene.plane.cluster.create(made, SECRET, manager="provider")
            await until(lambda: has_credentials(scene))
        await Many(scene, 0).lose_copy("orders")
        await remove(scene.plane, SECRET, scene.service_namespace, "creds")
        async with konnector(scene.app.connection) as running:
            await until(lambda: says(scene, *HELD))
            await scene.create_instance("new", size="1Gi")
            await until(lambda: scene.copy("new"))
            await eventually(lambda: is_idle(running))
            assert await has_credentials(scene)
            await confirm(scene, keys.CONFIRM_RECREATE, "all")
            await until(lambda: scene.copy())
            await until(lambda: has_credentials(scene, wanted=False))


async def has_credentials(scene: Scene, *, wanted: bool = True) -> bool:
    return (await scene.in_app(SECRET, "creds", scene.app_namespace) is not None) is wanted


async def test_a_space_that_was_made_anew_is_recorded_once_that_is_confirmed(scene: Scene) -> None:
    """The Secret in the app cluster remembers the space; a person's word lets it be another."""
    stranger = "00000000-0000-0000-0000-000000000000"
    ref = Ref(scene.app.name, SECRET, BIND, scene.secret)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            space = await scene.on_plane(NAMESPACE, scene.space, "")
            await until(lambda: remembers(scene, uid_of(space)))
        await note(scene.app, ref, keys.SPACE_UID, stranger)
        await Many(scene, 0).lose_copy("orders")
        async with konnector(scene.app.connection):
            await until(lambda: says(scene, "RecreationAllowed", "SpaceChanged"))
            await until(lambda: told_of(scene, "orders", "RecreationHeld"))
            assert await scene.copy() is None
            assert await remembers(scene, stranger)
            await withdraw(scene, keys.CONFIRM_RECREATE)
            await confirm(scene, keys.CONFIRM_RECREATE)
            await until(lambda: scene.copy())
            await until(lambda: remembers(scene, uid_of(space)))


async def remembers(scene: Scene, uid: str) -> bool:
    live: Any = await scene.in_app(SECRET, scene.secret)
    return annotations_of(live).get(keys.SPACE_UID) == uid
