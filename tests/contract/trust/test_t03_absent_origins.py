"""T3: what is only absent deletes nothing, on real API servers; a named confirmation does."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from reconciler.api.exports import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.core.times import moment
from tests.support.bound_scenes import Scene, conditions, gone, remove, until
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, claim, data, is_idle
from tests.support.losses import (
    Many,
    all_names,
    confirm,
    deletes_since,
    measured,
    says,
    told,
    withdraw,
)

ALL = 14
ORPHANED = ("InstancesInSync", "Orphaned")


async def orphaned(many: Many, *names: str) -> bool:
    return await many.orphans() == sorted(names)


async def lacks(many: Many, *names: str) -> bool:
    return not set(names) & set(await many.there())


@pytest.mark.parametrize("absent", [1, 6, 13])
async def test_claims_absent_after_a_restart_delete_nothing(scene: Scene, absent: int) -> None:
    many = Many(scene, ALL - 1)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        lost = many.names[:absent]
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


async def test_a_confirmation_means_what_was_an_orphan_when_it_came(scene: Scene) -> None:
    """Also after a restart, also in mid-watch; once given again, it means the rest, too."""
    many = Many(scene, 4)
    first, second, third, fourth = many.names
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
            await many.lose_instance(first)
            await until(lambda: orphaned(many, first))
        await confirm(scene, keys.CONFIRM_ORPHANS, f"others.example,{scene.offer.name}")
        await many.lose_instance(second)
        async with konnector(scene.app.connection):
            await until(lambda: lacks(many, first))
            await until(lambda: orphaned(many, second))
            await many.lose_instance(third)
            await until(lambda: orphaned(many, second, third))
        async with konnector(scene.app.connection) as made:
            await many.lose_instance(fourth)
            await until(lambda: orphaned(many, second, third, fourth))
            await eventually(lambda: is_idle(made))
            assert await many.there() == [second, third, fourth, "orders"]
            await until(lambda: passes_a_second(scene, many))
            await withdraw(scene, keys.CONFIRM_ORPHANS)
            await confirm(scene, keys.CONFIRM_ORPHANS, f"others.example,{scene.offer.name}")
            await until(lambda: lacks(many, second, third, fourth))


async def passes_a_second(scene: Scene, many: Many) -> bool:
    """Tell whether the last orphan was marked in an earlier second than this."""
    found = await scene.plane.cluster.list(many.kind, namespace=scene.service_namespace)
    times = [moment(annotations_of(one).get(keys.ORPHANED, "")) for one in found.items]
    last = max(time for time in times if time is not None)
    return datetime.now(UTC) - last > timedelta(seconds=2)


async def test_a_claim_that_is_deleted_takes_its_copy_along(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene)
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        await until(lambda: gone(scene.copy()))
        await until(lambda: gone(scene.instance()))


@pytest.mark.parametrize("running", [False, True])
async def test_secrets_that_the_consumer_owned_are_kept(scene: Scene, running: bool) -> None:
    wanted = [f"c{one}" for one in range(4)]
    async with scene.backend():
        async with konnector(scene.app.connection):
            there, here = await bound(scene, claim("secrets", "Consumer"))
            for name in wanted:
                await here.make(SECRET, name, **data("one"))
            await until(lambda: has_all(there, wanted))
            mark = scene.plane.audit.mark()
            if running:
                for name in wanted[:3]:
                    await here.delete(SECRET, name)
                await until(lambda: marked(there, *wanted[:3]))
        if not running:
            for name in wanted[:3]:
                await here.delete(SECRET, name)
        async with konnector(scene.app.connection) as made:
            await until(lambda: marked(there, *wanted[:3]))
            await until(lambda: says(scene, *ORPHANED))
            metric = partial(measured, made, "klutch_orphaned_copies", resource="secrets")
            await eventually(lambda: metric() == 3)
            assert await has_all(there, wanted)
            assert deletes_since(scene.plane, mark) == []
            await here.make(SECRET, "c0", **data("two"))
            await until(lambda: there.holds(SECRET, "c0", "two"))
            await until(lambda: marked(there, *wanted[1:3]))
            await confirm(scene, keys.CONFIRM_ORPHANS, "secrets")
            await until(lambda: has_all(there, ["c0", "c3"]))


async def has_all(there, wanted) -> bool:
    found = await all_names(there.live, SECRET, there.namespace)
    return bool(found == wanted)


async def marked(there, *names: str) -> bool:
    found = (await there.live.cluster.list(SECRET, namespace=there.namespace)).items
    held = [one["metadata"]["name"] for one in found if keys.ORPHANED in annotations_of(one)]
    return bool(sorted(held) == sorted(names))


async def test_an_app_namespace_that_is_absent_keeps_its_service_namespace(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
        many = Many(scene, 0)
        await many.lose_instance("orders")
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: is_gone(scene))
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: orphaned(many, "orders"))
            await until(lambda: mapping_is_marked(scene))
            await eventually(lambda: is_idle(made))
            assert deletes_since(scene.plane, mark) == []
            # The copies first: with their namespace they would go unconfirmed.
            resource = API_SERVICE_NAMESPACE.resource
            await confirm(scene, keys.CONFIRM_ORPHANS, resource)
            await eventually(lambda: is_idle(made))
            assert deletes_since(scene.plane, mark) == []
            await confirm(scene, keys.CONFIRM_ORPHANS, f"{resource},{scene.offer.name}")
            await until(lambda: lacks(many, "orders"))
            await until(lambda: unmapped(scene))


async def test_an_app_namespace_that_is_deleted_takes_its_service_namespace_along(
    scene: Scene,
) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene)
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        await until(lambda: gone(scene.instance()))
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: unmapped(scene))


async def is_gone(scene: Scene) -> bool:
    return await scene.in_app(NAMESPACE, scene.app_namespace, "") is None


async def mapping_is_marked(scene: Scene) -> bool:
    live = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
    return keys.ORPHANED in annotations_of(live or {"metadata": {}})


async def unmapped(scene: Scene) -> bool:
    return await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace) is None
