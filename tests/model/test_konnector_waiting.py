"""What a konnector waits for and reads anew, and when it is at rest."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.provider.provider import LATE
from reconciler.blueprints.objects import namespace
from reconciler.core import keys
from reconciler.core.manifest import Manifest
from reconciler.core.refs import LEASE, NAMESPACE
from reconciler.kube.requests import Request
from tests.kit.wire import Wires
from tests.support import losses
from tests.support.bound_scenes import Scene, conditions, gone, has, remove, says, shown, until
from tests.support.cues import BEFORE, Cue, Delay, Gate
from tests.support.faults import Events, Faults, Meanwhile, forbidden, is_write, on, throttled
from tests.support.konnector import konnector
from tests.support.konnector_faults import mortal
from tests.support.konnector_scenes import CLUSTER_WIDE, Side, equals, event, refusal, sides
from tests.support.offers import offered
from tests.support.settled import settled

OTHERS: Final = tuple(f"db{number}" for number in range(5))


async def test_a_claim_without_a_service_namespace_gets_the_reason(scene: Scene) -> None:
    taken = replace(scene, app_namespace="taken")
    await scene.app.cluster.create(namespace("taken"), NAMESPACE, manager="tests")
    await scene.plane.cluster.create(namespace(taken.service_namespace), NAMESPACE, manager="tests")
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        await taken.create_instance(size="1Gi")
        found = await until(partial(event, taken, "orders", "NotServed"))
        assert "taken" in found["note"]
        await until(partial(names, scene, "taken/orders"))
        await remove(scene.plane, NAMESPACE, "", taken.service_namespace)
        await until(taken.copy)
        await until(lambda: equals(refusal(scene), ""))


async def test_a_claim_says_why_it_waits(scene: Scene, wires: Wires) -> None:
    """First for a backend that is down, then for a control plane that does not answer."""
    fresh, server = replace(scene, app_namespace="fresh"), scene.plane.connection.server
    async with konnector(scene.app.connection):
        async with scene.backend():
            await scene.bound()
        await scene.app.cluster.create(namespace("fresh"), NAMESPACE, manager="tests")
        await fresh.create_instance(size="1Gi")
        found = await until(partial(event, fresh, "orders", "NotServed"))
        assert "klutch-bind has not answered" in found["note"]
        async with scene.backend():
            await until(fresh.copy)
            plane = wires.models.pop(server)
            await fresh.create_instance("late", size="1Gi")
            found = await until(partial(event, fresh, "late", "SyncWaiting"))
            assert "no connection" in found["note"]
            wires.models[server] = plane
            await until(partial(fresh.copy, "late"))
            typo = {"type": "Ready", "status": "False", "message": "no instance dogh"}
            await fresh.patch_copy({"status": {"conditions": [typo]}}, subresource="status")
            found = await until(partial(event, fresh, "orders", "NotReady"))
            assert "no instance dogh" in found["note"]


async def test_a_claim_learns_of_a_long_pause_when_it_begins(scene: Scene) -> None:
    faults = Faults()
    async with scene.backend(), mortal(scene.app.connection, faults):
        await scene.bound()
        faults.add(on("create", kind=scene.offer.kind), throttled(retry_after=300))
        await scene.create_instance()
        found = await until(lambda: event(scene, "orders", "SyncWaiting"), within=30)
        assert "too many requests" in found["note"]


def refused(call: Request) -> bool:
    return is_write(call) and call.ref.cluster == APP_CLUSTER and call.ref.kind != LEASE


async def test_a_binding_that_cannot_report_itself_is_reported_on_the_control_plane(
    scene: Scene,
) -> None:
    """An app cluster that takes Leases alone looks well there, and serves nobody."""
    faults, what = Faults(), ("WritesAccepted", "BindingNotWritten")
    async with scene.backend(), mortal(scene.app.connection, faults):
        await scene.bound()
        faults.add(Cue(refused), forbidden())
        await scene.create_instance(size="1Gi")
        await until(lambda: losses.says(scene, *what), within=15)
        faults.clear()
        await until(lambda: equals(losses.cause(scene, what[0]), ""))


async def names(scene: Scene, claim: str) -> bool:
    return claim in await refusal(scene)


async def test_a_provider_that_never_answered_is_reported_once_it_is_late(
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
            assert f"list {kind} in namespace {scene.space}: no connection" in message

        wires.models[server] = plane
        async with scene.backend():
            await until(lambda: says(scene.binding(), "InformersSynced"))
            await until(lambda: says(scene.binding(), "Ready"))


async def test_a_binding_is_late_by_its_own_time_and_not_by_its_providers(
    scene: Scene, namespace: str
) -> None:
    faults, gate = Faults(), Gate()
    async with (
        scene.backend(),
        mortal(scene.app.connection, faults),
        offered(scene.plane.cluster, scene.app.cluster, namespace=namespace) as offer,
    ):
        await scene.bound()
        other = replace(scene, offer=offer)
        await other.request()
        await until(other.export)
        await asyncio.sleep(LATE + 50)
        faults.add(on("list", kind=offer.kind), gate)
        await other.bind()
        await gate.reached.wait()
        await asyncio.sleep(90)  # it was looked at again
        assert conditions(await other.binding())["InformersSynced"]["status"] == "True"
        gate.open()
        await until(lambda: says(other.binding(), "Ready"))


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


# What a konnector reads of a copy itself, when that is no more what its view shows


FULL: Final = {"size": "1Gi", "note": "n"}
LESS: Final[Manifest] = {"spec": {"note": None}}  # all of the copy is read to take that away


async def settle(here: Side, there: Side) -> None:
    await here.make(spec=FULL)
    await until(lambda: equals(there.spec(), FULL))


def before_the_copy_is_read(
    faults: Faults, there: Side, story: Callable[[], Awaitable[object]]
) -> None:
    ref = there.ref("orders")
    read = on("get", cluster=CONTROL_PLANE, kind=ref.kind, name=ref.name)
    faults.add(read.nth(1), Meanwhile(story), at=BEFORE)


async def test_a_copy_that_is_lost_meanwhile_is_not_made_again_past_the_guard(scene: Scene) -> None:
    faults, (here, there) = Faults(), sides(scene)
    async with scene.backend(), mortal(scene.app.connection, faults) as made:
        await scene.bound()
        await settle(here, there)
        await until(scene.is_marked)
        before_the_copy_is_read(faults, there, there.delete)
        await here.patch(LESS)
        await until(lambda: event(scene, "orders", "RecreationHeld"))
        await settled(made)
        assert await there.gone()


async def test_an_object_of_another_space_that_takes_the_name_meanwhile_stays_as_it_is(
    wide: Scene,
) -> None:
    """A cluster-scoped one, whose name may begin with the other space's, too (H3)."""
    faults, (here, there) = Faults(), sides(wide)
    theirs = {"size": "9Gi", "note": "theirs"}

    async def take() -> None:
        await there.delete()
        marks = {keys.BOUND: keys.BOUND_VALUE, keys.CLUSTER_NAMESPACE: f"{wide.space}-2"}
        await there.make(metadata={"annotations": marks}, spec=theirs)

    async with wide.backend(settings=CLUSTER_WIDE), mortal(wide.app.connection, faults) as made:
        await wide.bound()
        await settle(here, there)
        before_the_copy_is_read(faults, there, take)
        await here.patch(LESS)
        await until(lambda: event(wide, "orders", "NameTaken"))
        await settled(made)
        assert await there.spec() == theirs
        assert (await there.annotations())[keys.CLUSTER_NAMESPACE] == f"{wide.space}-2"


# A konnector is at rest only after all that was written, however late it is told of it


_LATE = 0.7  # seconds


async def test_events_on_their_way_are_waited_for(scene: Scene) -> None:
    late = Faults()
    for reported in range(40):
        late.add(on("watch", kind=scene.offer.kind), Delay(_LATE), at=Events(reported))
    async with scene.backend(), konnector(scene.app.connection, faults=late) as made:
        await scene.bound()
        await scene.create_instance("first")
        await until(lambda: scene.copy("first"))
        for number in range(4):
            name = f"claim-{number}"
            created = await scene.create_instance(name)
            await settled(made)
            assert await scene.copy(name), created
            assert await made.manager.unsettled() == ""
