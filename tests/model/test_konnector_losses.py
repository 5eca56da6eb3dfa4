"""T3, T11, T16: origins and copies that are lost, and deletions that come many at once.

What is only absent deletes nothing, a lost copy is not made again, until a person confirms it.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from konnector import CONTROL_PLANE
from reconciler.api import API_SERVICE_EXPORT, API_SERVICE_NAMESPACE, CLUSTER_BINDING
from reconciler.blueprints.objects import namespace
from reconciler.core import keys, names
from reconciler.core.errors import Unreachable
from reconciler.core.manifest import annotations_of, controller_to, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.kube.informer import Informer
from tests.kit.clusters import model_of
from tests.kit.wire import Wires
from tests.support import losses
from tests.support.bound_scenes import BIND, Scene, conditions, gone, has, remove, secret, until
from tests.support.churn import following
from tests.support.faults import Faults, broken, on
from tests.support.forward_clock import SetClock
from tests.support.konnector import USUAL, konnector
from tests.support.konnector_claims import bound, claim, degraded
from tests.support.konnector_faults import mortal
from tests.support.konnector_scenes import CLUSTER_WIDE, event, sides, working
from tests.support.settled import settled

ORPHANED: Final = ("InstancesInSync", "Orphaned")
HELD: Final = ("RecreationAllowed", "RecreationHeld")
MASS: Final = ("DeletesAllowed", "MassDeletion")


async def orphaned(many: losses.Many, *names: str) -> bool:
    return await many.orphans() == sorted(names)


async def lacks(many: losses.Many, *names: str) -> bool:
    return not set(names) & set(await many.there())


async def test_a_confirmation_means_what_was_an_orphan_when_it_came(scene: Scene) -> None:
    """Also after a restart, also in mid-watch; once given again, it means the rest, too."""
    many = losses.Many(scene, 4)
    first, second, third, fourth = many.names
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
            await many.lose_instance(first)
            await until(lambda: orphaned(many, first))
        await losses.confirm(scene, keys.CONFIRM_ORPHANS, f"others.example,{scene.offer.name}")
        await many.lose_instance(second)
        async with konnector(scene.app.connection):
            await until(lambda: lacks(many, first))
            await until(lambda: orphaned(many, second))
            await many.lose_instance(third)
            await until(lambda: orphaned(many, second, third))
        async with konnector(scene.app.connection) as made:
            await many.lose_instance(fourth)
            await until(lambda: orphaned(many, second, third, fourth))
            await settled(made)
            assert await many.there() == [second, third, fourth, "orders"]
            await asyncio.sleep(2)  # marks tell whole seconds
            await losses.withdraw(scene, keys.CONFIRM_ORPHANS)
            await losses.confirm(scene, keys.CONFIRM_ORPHANS, f"others.example,{scene.offer.name}")
            await until(lambda: lacks(many, second, third, fourth))


async def test_no_clock_of_ours_ends_the_grace_of_an_orphan(scene: Scene) -> None:
    """A machine begins with an old time, and a time service sets it; the control plane has one."""
    many, clock = losses.Many(scene, 1), SetClock()
    settings = replace(USUAL, orphan_grace=timedelta(hours=1))
    async with scene.backend(), konnector(scene.app.connection, settings, clock=clock) as made:
        await bound(scene)
        await many.make("orders")
        clock.off = timedelta(days=-900)
        await many.lose_instance(*many.names)
        await until(lambda: orphaned(many, *many.names))
        for clock.off in (timedelta(0), timedelta(days=900)):
            await many.touch()
            await settled(made)
            assert await many.orphans() == many.names
        await asyncio.sleep(3600)
        await until(lambda: lacks(many, *many.names))


@pytest.mark.parametrize("lasts", [0, 6], ids=["a restore", "an outage"])
async def test_a_kind_that_cannot_be_read_after_an_outage_stops_no_other(
    scene: Scene, wires: Wires, lasts: float
) -> None:
    """Its converter may come up late; its claims are synced once it can be read."""
    faults, model, (mine, copy) = Faults(), model_of(scene.plane), sides(scene)
    async with scene.backend(), mortal(scene.app.connection, faults):
        there, here = await bound(scene, claim("secrets", "Provider"))
        backup = model.store.snapshot()
        await there.make(SECRET, "lost")
        await until(lambda: here.read(SECRET, "lost"))
        faults.add(on("list", cluster=CONTROL_PLANE, kind=scene.offer.kind), broken())
        with wires.away([model]):
            await asyncio.sleep(lasts)
        if not lasts:
            model.restore(backup, live=True)
        await there.make(SECRET, "creds")
        await until(lambda: here.read(SECRET, "creds"))
        await mine.make("later")
        waits = await until(lambda: event(scene, "later", "NotServed"))
        assert "HTTP 500" in waits["note"]
        faults.clear()
        await until(lambda: copy.read("later"))


async def test_no_copy_goes_for_a_deletion_that_a_restore_took_back(scene: Scene) -> None:
    """The server is another one, and the watch of the former one has not ended yet."""
    model, (mine, copy) = model_of(scene.app), sides(scene)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await mine.make("orders")
            await until(lambda: copy.read("orders"))
        backup = model.store.snapshot()
        async with konnector(scene.app.connection):  # one that is new waits before it deletes
            await mine.delete("orders")
            model.store.restore(backup, live=False)
            await asyncio.sleep(30)
            assert await copy.read("orders") is not None


async def test_no_write_is_the_first_call_after_an_outage(scene: Scene, wires: Wires) -> None:
    """It would be of a view from before the outage."""
    cluster, made = scene.plane.cluster, namespace("made")
    async with following(Informer(cluster, NAMESPACE)) as informer:
        await informer.wait_synced()
        with wires.away([model_of(scene.plane)]):
            await asyncio.sleep(6)
            with pytest.raises(Unreachable, match="no connection"):
                await cluster.create(made, NAMESPACE, manager="tests")
        with pytest.raises(Unreachable, match="read again"):
            await cluster.create(made, NAMESPACE, manager="tests")
        await cluster.connectivity.wait_viewed()
        await cluster.create(made, NAMESPACE, manager="tests")


async def test_an_app_namespace_that_is_absent_keeps_its_service_namespace(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
        many = losses.Many(scene, 0)
        await many.lose_instance("orders")
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace, "")))
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: orphaned(many, "orders"))
            await until(lambda: mapping_is_marked(scene))
            await settled(made)
            assert losses.deletes_since(scene.plane, mark) == []
            # The copies first: with their namespace they would go unconfirmed.
            resource = API_SERVICE_NAMESPACE.resource
            await losses.confirm(scene, keys.CONFIRM_ORPHANS, resource)
            await settled(made)
            assert losses.deletes_since(scene.plane, mark) == []
            await losses.confirm(scene, keys.CONFIRM_ORPHANS, f"{resource},{scene.offer.name}")
            await until(lambda: lacks(many, "orders"))
            await until(lambda: gone(scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)))


async def mapping_is_marked(scene: Scene) -> bool:
    live = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
    return keys.ORPHANED in annotations_of(live or {"metadata": {}})


async def test_credentials_stay_where_copies_were_lost(scene: Scene) -> None:
    """Applications run on them, and a new claim still gets its copy."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, claim("secrets", "Provider"))
            made = secret("creds", scene.service_namespace)
            await scene.plane.cluster.create(made, SECRET, manager="provider")
            await until(lambda: has_credentials(scene))
        await losses.Many(scene, 0).lose_copy("orders")
        await remove(scene.plane, SECRET, scene.service_namespace, "creds")
        async with konnector(scene.app.connection) as running:
            await until(lambda: losses.says(scene, *HELD))
            await scene.create_instance("new", size="1Gi")
            await until(lambda: scene.copy("new"))
            await settled(running)
            assert await has_credentials(scene)
            await losses.confirm(scene, keys.CONFIRM_RECREATE, "all")
            await until(lambda: scene.copy())
            await until(lambda: degraded(scene))
            await losses.confirm(scene, keys.CONFIRM_ORPHANS, "secrets")
            await until(lambda: has_credentials(scene, wanted=False))


async def test_a_withdrawal_offers_no_confirmation_that_has_no_effect(scene: Scene) -> None:
    """The claim and the ClusterBinding name the withdrawal; afterwards, a person decides."""
    export = Ref(scene.plane.name, API_SERVICE_EXPORT, scene.space, scene.offer.name)
    async with konnector(scene.app.connection):
        async with scene.backend():
            await bound(scene)
        await losses.note(scene.plane, export, keys.WITHDRAWN, "its CRD is being deleted")
        await losses.Many(scene, 0).lose_copy("orders")
        await losses.confirm(scene, keys.CONFIRM_RECREATE, "all")
        await until(lambda: said_of_lost(scene, "its CRD is being deleted"))
        assert "annotate" not in await said_of_lost(scene, "until the kind is there again")
        assert await scene.copy() is None
        await losses.withdraw(scene, keys.CONFIRM_RECREATE)
        await losses.note(scene.plane, export, keys.WITHDRAWN, None)
        await until(lambda: said_of_lost(scene, f"confirm-recreate={scene.offer.name}"))
        await losses.confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
        await until(lambda: scene.copy())


async def said_of_lost(scene: Scene, words: str) -> str:
    """Return what the ClusterBinding says of lost copies, if it has these words."""
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    said = str(conditions(live).get("RecreationAllowed", {}).get("message", ""))
    return said if words in said else ""


async def test_the_place_of_a_lost_copy_that_is_taken_is_reported(wide: Scene) -> None:
    """A confirmation would not free the name."""
    here, there = sides(wide)
    async with wide.backend(settings=CLUSTER_WIDE):
        async with working(wide) as account:
            await wide.bound()
            await account.settle()
        await there.delete()
        marks = {keys.BOUND: keys.BOUND_VALUE, keys.CLUSTER_NAMESPACE: f"{wide.space}-2"}
        await there.make(metadata={"annotations": marks}, spec={"size": "9Gi"})
        async with konnector(wide.app.connection) as made:
            await until(lambda: event(wide, "orders", "NameTaken"))
            await settled(made)
            assert keys.BOUND in await here.annotations()
            assert not await losses.cause(wide, "RecreationAllowed")


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
        await losses.note(scene.app, ref, keys.SPACE_UID, stranger)
        await losses.Many(scene, 0).lose_copy("orders")
        async with konnector(scene.app.connection):
            await until(lambda: losses.says(scene, "RecreationAllowed", "SpaceChanged"))
            await until(lambda: losses.reported_of(scene, "orders", "RecreationHeld"))
            assert await scene.copy() is None
            assert await remembers(scene, stranger)
            await losses.withdraw(scene, keys.CONFIRM_RECREATE)
            await losses.confirm(scene, keys.CONFIRM_RECREATE)
            await until(lambda: scene.copy())
            await until(lambda: remembers(scene, uid_of(space)))


async def remembers(scene: Scene, uid: str) -> bool:
    live: Any = await scene.in_app(SECRET, scene.secret)
    return annotations_of(live).get(keys.SPACE_UID) == uid


async def test_many_that_are_deleted_at_once_are_held_and_nothing_else_is(scene: Scene) -> None:
    """They were deleted while no konnector ran."""
    many = losses.Many(scene, 12)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for name in many.names:
            await remove(scene.app, many.kind, scene.app_namespace, name)
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: losses.says(scene, *MASS))
            await scene.patch_instance({"spec": {"size": "3Gi"}})
            await until(lambda: has(scene.copy(), "3Gi", "spec", "size"))
            await settled(made)
            assert losses.deletes_since(scene.plane, mark) == []
            await losses.confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: lacks(many, *many.names))


async def test_deletions_that_come_one_after_the_other_are_seen_as_one(scene: Scene) -> None:
    """Five go. The others stay held, though a new process knows nothing of these five."""
    many = losses.Many(scene, 8)
    async with scene.backend():
        async with konnector(scene.app.connection) as made:
            await bound(scene)
            await many.make("orders")
            for name in many.names:
                await remove(scene.app, many.kind, scene.app_namespace, name)
                await settled(made)
            assert await losses.says(scene, *MASS)
            assert await many.there() == [*many.names[5:], "orders"]
            assert "Ready" in conditions(await scene.binding())
        async with konnector(scene.app.connection) as made:
            await scene.patch_instance({"spec": {"size": "3Gi"}})
            await until(lambda: has(scene.copy(), "3Gi", "spec", "size"))
            await settled(made)
            assert await many.there() == [*many.names[5:], "orders"]
            await losses.confirm(scene, keys.CONFIRM_MASS_DELETE)
            await until(lambda: lacks(many, *many.names))


async def test_waves_with_a_restart_between_are_one(scene: Scene) -> None:
    many = losses.Many(scene, 15)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for first in (0, 5, 10):
            async with konnector(scene.app.connection):
                for name in many.names[first : first + 5]:
                    await remove(scene.app, many.kind, scene.app_namespace, name)
                await asyncio.sleep(8)
        assert await losses.says(scene, *MASS)
        assert await lacks(many, *many.names[:5])
        assert {*many.names[8:]} <= {*await many.there()}


async def test_a_deletion_waits_until_later_processes_count_it_once(scene: Scene) -> None:
    many, faults = losses.Many(scene, 4), Faults()
    async with scene.backend():
        async with mortal(scene.app.connection, faults):
            await bound(scene)
            await many.make("orders")
            faults.add(on("patch", cluster=CONTROL_PLANE, kind=CLUSTER_BINDING), broken(503))
            for name in many.names:
                await remove(scene.app, many.kind, scene.app_namespace, name)
            found = await until(lambda: event(scene, many.names[0], "SyncWaiting"), within=30)
            assert "ClusterBinding" in found["note"]
            assert "HTTP 503" in found["note"]
            assert await many.are_there("orders")
            faults.clear()
            faults.add(on("delete", cluster=CONTROL_PLANE, kind=many.kind), broken(503))
            await until(lambda: counted(scene, 4))
        async with konnector(scene.app.connection):
            await remove(scene.app, many.kind, scene.app_namespace, "orders")
            await until(lambda: lacks(many, "orders", *many.names))


async def counted(scene: Scene, number: int) -> bool:
    live = conditions(await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING))
    texts = live.get("DeletionsCounted", {"message": ""})["message"].split("; ")
    return sum(int(one.rpartition(" ")[2] or 0) for one in texts) == number


async def test_a_deletion_that_was_refused_for_long_leaves_the_wait_for_credentials(
    scene: Scene,
) -> None:
    faults, (mine, copy) = Faults(), sides(scene)
    async with scene.backend():
        async with mortal(scene.app.connection, faults):
            there, here = await bound(scene, claim("secrets", "Provider"))
            await mine.make("other")
            other = await until(lambda: copy.read("other"))
            owner = controller_to(scene.offer.kind, await copy.read())
            owner["uid"] = uid_of(other)  # so that no garbage collector takes it
            await there.make_all(SECRET, {"creds": {"metadata": {"ownerReferences": [owner]}}})
            await until(lambda: here.read(SECRET, "creds"))
            faults.add(on("delete", cluster=CONTROL_PLANE, kind=scene.offer.kind), broken(503))
            await mine.delete()
            await asyncio.sleep(90)
            await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")
            await until(copy.gone)
            await asyncio.sleep(10)
        await there.delete(SECRET, "creds")
        async with konnector(scene.app.connection) as made:
            await until(mine.gone)
            await settled(made)
            assert await here.all(SECRET) == []
