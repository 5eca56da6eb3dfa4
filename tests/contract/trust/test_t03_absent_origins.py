"""T3: what is only absent deletes nothing, on real API servers; a named confirmation does."""

from dataclasses import replace
from functools import partial

import pytest

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.errors import Expired
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import NAMESPACE, SECRET
from tests.support.bound_scenes import Scene, conditions, gone, remove, until
from tests.support.eventually import eventually
from tests.support.faults import Fail, Faults, Meanwhile, on
from tests.support.konnector import konnector
from tests.support.konnector_claims import End, bound, claim, data, is_idle
from tests.support.losses import Many, confirm, deletes_since, measured, reported, says
from tests.support.tcp_proxy import TcpProxy

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
            assert await until(lambda: reported(scene, "Orphaned"))
            metric = partial(measured, made, "klutch_orphaned_copies", resource=scene.offer.name)
            await eventually(lambda: metric() == absent)
            # They are found one after another; once it has settled, the binding counts all.
            await eventually(lambda: is_idle(made))
            said = conditions(await scene.binding())["InstancesInSync"]
            assert said["reason"] == "Orphaned"
            assert f"{absent} cop" in said["message"]
            assert f"{scene.app_namespace}/db00" in said["message"]
            assert f"{keys.CONFIRM_ORPHANS}={scene.offer.name}" in said["message"]
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


@pytest.mark.parametrize("how", ["in mid-watch", "before a new list"])
async def test_claims_that_vanish_before_a_konnector_delete_nothing(scene: Scene, how: str) -> None:
    many, faults = Many(scene, 13), Faults()

    async def vanish() -> None:
        for name in many.names:
            await many.lose_instance(name)

    async with TcpProxy(scene.app.connection.server) as line, scene.backend():
        way = replace(scene.app.connection, server=line.url)
        async with konnector(way, faults=faults) as made:
            await bound(scene)
            await many.make("orders")
            mark = scene.plane.audit.mark()
            if how == "in mid-watch":
                await vanish()
            else:
                again = on("watch", kind=many.kind).first(1)
                faults.add(again, Meanwhile(vanish))
                faults.add(again, Fail(Expired, "too old resource version", 410, "Expired"))
                line.cut()
            await until(lambda: orphaned(many, *many.names))
            await until(lambda: says(scene, *ORPHANED))
            await eventually(lambda: is_idle(made))
            assert await many.are_there("orders")
            assert deletes_since(scene.plane, mark) == []


async def test_secrets_and_app_namespaces_that_vanish_delete_nothing(scene: Scene) -> None:
    """They do while no konnector works. In mid-watch, the end of a Secret is seen: law 1."""
    first, second = "first", "second"
    async with scene.backend():
        async with konnector(scene.app.connection) as made:
            there, here = await bound(scene, claim("secrets", "Consumer"))
            for name in (first, second):
                await here.make(SECRET, name, **data("one"))
                await until(partial(there.holds, SECRET, name, "one"))
            await here.delete(SECRET, first)
            await until(lambda: there.lacks(SECRET, first))
            await eventually(lambda: is_idle(made))
            mark = scene.plane.audit.mark()
        await here.delete(SECRET, second)
        await Many(scene, 0).lose_instance("orders")
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace, "")))
        async with konnector(scene.app.connection) as made:
            await until(lambda: is_marked(there, second))
            await until(lambda: orphaned(Many(scene, 0), "orders"))
            await eventually(lambda: is_idle(made))
        assert await there.holds(SECRET, second, "one")
        assert await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace) is not None
        assert deletes_since(scene.plane, mark) == []


async def is_marked(there: End, name: str) -> bool:
    return keys.ORPHANED in annotations_of(await there.read(SECRET, name))
