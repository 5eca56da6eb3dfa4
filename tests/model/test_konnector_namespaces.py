"""App namespaces that come and go, and their counterparts on the control plane (D.1, H6)."""

import asyncio
from datetime import timedelta

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT, API_SERVICE_NAMESPACE
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import Marks
from reconciler.core import keys, manifest
from reconciler.core.refs import EVENT, NAMESPACE, SECRET, GroupResource, Ref
from reconciler.core.times import moment
from tests.support import losses, made_again
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    Managed,
    Scene,
    conditions,
    gone,
    remove,
    says,
    secret,
    until,
)
from tests.support.cues import AFTER
from tests.support.faults import Faults, Meanwhile, on, unreachable
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import in_space, konnector
from tests.support.konnector_claims import degraded
from tests.support.konnector_scenes import Side, equals, sides, story, working
from tests.support.removal import remove_for_good

HOLD = "provider.example/cleanup"


async def mapping_gone(scene: Scene) -> bool:
    return await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace) is None


async def leave(scene: Scene) -> None:
    await remove(scene.app, NAMESPACE, "", scene.app_namespace)


async def come_back(scene: Scene) -> None:
    made = spaces.namespace(scene.app_namespace)
    await scene.app.cluster.create(made, NAMESPACE, manager="tests")


async def test_a_namespace_goes_in_order_and_may_come_back(scene: Scene) -> None:
    """H6, golden 02/70: instances first, each after its copy; then the mapping; the process lives.

    The mapping tells which app cluster and which app namespace it belongs to.
    """
    async with story(scene) as account:
        await account.settle()
        await account.settle("users")
        system = await scene.in_app(NAMESPACE, "kube-system")
        mapping = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
        namespace = await scene.in_app(NAMESPACE, scene.app_namespace)
        marks = {**manifest.annotations_of(mapping)}
        assert moment(marks.pop(keys.UIDS_SINCE)) is not None
        assert marks == {
            keys.APP_CLUSTER_UID: manifest.uid_of(system),
            keys.APP_NAMESPACE_UID: manifest.uid_of(namespace),
        }

        await account.there.hold(HOLD)
        await leave(scene)
        await until(lambda: account.here.gone("users"))
        await until(account.there.goes)
        mapping = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
        assert not manifest.is_deleting(mapping)
        assert not await account.here.gone()

        await account.there.hold()
        await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace)))
        await until(lambda: mapping_gone(scene))
        await until(lambda: gone(scene.on_plane(NAMESPACE, scene.service_namespace)))

        await come_back(scene)
        await account.settle(spec={"size": "3Gi"})
        assert await account.there.spec() == {"size": "3Gi"}
        await account.here.delete()
        await until(account.here.gone)
        assert await account.there.gone()


async def test_a_namespace_that_went_while_nobody_looked(scene: Scene) -> None:
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await account.settle()
            await account.here.delete()
            await until(account.here.gone)
        await leave(scene)
        await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace)))
        assert not await mapping_gone(scene)
        async with working(scene):
            await until(lambda: losses.says(scene, "InstancesInSync", "Orphaned"))
            assert not await mapping_gone(scene)
            await losses.confirm(scene, keys.CONFIRM_ORPHANS, API_SERVICE_NAMESPACE.resource)
            await until(lambda: mapping_gone(scene))
            await until(lambda: gone(scene.on_plane(NAMESPACE, scene.service_namespace)))


async def test_a_namespace_that_is_back_during_the_last_look_is_another_one(scene: Scene) -> None:
    """S27: it has the mapping with nothing behind it only by its own uid."""
    faults = Faults()
    async with scene.backend(), konnector(scene.app.connection, faults=faults):
        await scene.bound()
        await scene.create_instance()
        await until(scene.copy)
        here, _ = sides(scene)
        await here.delete()
        await until(here.gone)
        look = on("get", kind=NAMESPACE, name=scene.app_namespace)
        faults.add(look.nth(1), Meanwhile(lambda: come_back(scene)), at=AFTER)
        before = manifest.uid_of(await scene.in_app(NAMESPACE, scene.app_namespace))
        await leave(scene)

        async def is_back() -> bool:
            found = await scene.in_app(NAMESPACE, scene.app_namespace)
            return found is not None and manifest.uid_of(found) != before

        await until(is_back)
        await scene.create_instance("later")
        await until(lambda: scene.copy("later"))
        assert await made_again.is_mapped(scene)


async def test_what_goes_with_its_namespace_is_not_brought_again(scene: Scene) -> None:
    """T4: nobody asks for credentials any more once all instances are being deleted."""
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await scene.create_instance()
        await until(scene.copy)
        made = secret("creds", scene.service_namespace)
        await scene.plane.cluster.create(made, SECRET, manager="provider")
        await until(lambda: scene.in_app(SECRET, "creds", scene.app_namespace))
        await scene.patch_copy({"metadata": {"finalizers": [HOLD]}})
        await leave(scene)
        await until(lambda: gone(scene.in_app(SECRET, "creds", scene.app_namespace)))
        await until(lambda: equals(degraded(scene), ""))
        assert await scene.on_plane(SECRET, "creds", scene.service_namespace)
        await scene.patch_copy({"metadata": {"finalizers": None}})
        await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace)))
        await until(lambda: equals(degraded(scene), ""))


async def released(scene: Scene) -> tuple[Side, Side]:
    """Let a bound instance go, as a release does, and then its app namespace."""
    async with working(scene) as account:
        await scene.bound()
        await account.settle()
    here, there = sides(scene)
    notes = {keys.BOUND: None, keys.RELEASED: "2026-06-01T12:00:00Z"}
    await there.patch({"metadata": {"annotations": notes}})
    await here.patch({"metadata": {"finalizers": None}})
    await leave(scene)
    await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace)))
    return here, there


async def test_what_was_released_outlives_its_app_namespace(scene: Scene) -> None:
    """Mapping.md 9: until nothing there carries the word any more. Nothing is tried in vain."""
    async with scene.backend():
        _, there = await released(scene)
        async with working(scene) as account:
            assert await account.writes() == []
            assert not await mapping_gone(scene)
            assert await there.spec() == {"size": "1Gi"}

            await come_back(scene)
            await remove(scene.plane, scene.offer.kind, there.namespace, "orders")
            await until(there.gone)
            await leave(scene)
            await until(lambda: mapping_gone(scene))
            await until(lambda: gone(scene.on_plane(NAMESPACE, scene.service_namespace)))


async def test_what_was_released_comes_back_with_its_app_namespace(scene: Scene) -> None:
    """S27: once a person says that this is to be its app namespace."""
    async with scene.backend():
        here, there = await released(scene)
        before = await there.read()
        await come_back(scene)
        async with working(scene):
            await until(lambda: losses.says(scene, "InstancesInSync", "AnotherNamespace"))
            assert await here.gone()
            uid = manifest.uid_of(await scene.in_app(NAMESPACE, scene.app_namespace))
            await losses.confirm(scene, keys.CONFIRM_NAMESPACES, f"{scene.app_namespace}={uid}")
            await until(lambda: equals(here.spec(), {"size": "1Gi"}))
            await until(lambda: equals(there.annotations(), {keys.BOUND: "true"}))
            assert manifest.uid_of(await there.read()) == manifest.uid_of(before)


async def test_an_instance_that_leaves_before_it_had_a_place_is_let_go(scene: Scene) -> None:
    """D.1: no APIServiceNamespace is made only to be deleted again."""
    async with scene.backend():
        async with working(scene):
            await scene.bound()
        here, _ = sides(scene)
        await here.make(metadata={"finalizers": [keys.SYNCER, "tests.example/wait"]})
        await here.delete()
        async with working(scene) as account:
            await until(lambda: let_go(here))
            assert await account.writes() == ["patch here orders"]
            assert await mapping_gone(scene)
        await here.hold()


async def let_go(side: Side) -> bool:
    return manifest.finalizers_of(await side.read()) == ["tests.example/wait"]


async def test_copies_of_an_export_that_is_withdrawn_keep_their_mapping(scene: Scene) -> None:
    """T3: without an export there is no sync, which does not mean that there are no copies."""
    clock = ForwardClock()
    async with scene.backend(), working(scene) as account:
        await scene.bound()
        await account.settle()
    await ended(scene)
    async with konnector(scene.app.connection, clock=clock):

        async def is_kept() -> bool:
            clock.put_forward(timedelta(seconds=15))
            assert not await mapping_gone(scene)
            said = conditions(await scene.binding()).get("InstancesInSync", {})
            return said.get("status") == "False" and scene.app_namespace in said["message"]

        await until(is_kept)
        await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")
        await until(lambda: goes(scene, clock))


async def goes(scene: Scene, clock: ForwardClock) -> bool:
    clock.put_forward(timedelta(seconds=15))
    return await mapping_gone(scene)


def is_kept(event: manifest.Manifest) -> bool:
    return manifest.get_text(event, "reason") == "CopiesKept"


async def ended(scene: Scene) -> None:
    """Let an app namespace be gone, and its claim by force, and then the export."""
    await losses.Many(scene, 0).lose_instance("orders")
    mapping = Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)
    await losses.note(scene.plane, mapping, keys.APP_NAMESPACE_DELETED, "2026-06-01T12:00:00Z")
    await leave(scene)
    await until(lambda: gone(scene.in_app(NAMESPACE, scene.app_namespace)))
    await remove(scene.plane, API_SERVICE_EXPORT, scene.space, scene.offer.name)


async def test_a_binding_whose_secret_is_missing_holds_the_mapping_of_its_copies(
    scene: Scene,
) -> None:
    """T3: others lead to the same space, and their provider starts without this one."""
    clock = ForwardClock()
    async with scene.backend(), working(scene) as account:
        await scene.bound()
        await account.settle()
    await ended(scene)
    await remove(scene.app, SECRET, BIND, scene.secret)
    await scene.make_secret(scene.app, BIND, "other", token=await scene.token())
    others = [
        spaces.service_binding(
            GroupResource(scene.offer.kind.group, plural),
            namespace=BIND,
            secret=(BIND, "other"),
            claims=(),
            marks=Marks(),
        )
        for plural in ("others", "thirds")
    ]
    for other in others:
        await scene.app.cluster.create(other, API_SERVICE_BINDING, manager="tests")
    async with konnector(scene.app.connection, clock=clock):
        for _ in range(20):
            clock.put_forward(timedelta(seconds=15))
            await asyncio.sleep(1)
            assert not await mapping_gone(scene)
        events = (await scene.app.cluster.list(EVENT, namespace=BIND)).items
        about = [manifest.get_text(one, "regarding", "name") for one in events if is_kept(one)]
        assert about == [manifest.name_of(others[0])]
        await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")
        await until(lambda: goes(scene, clock))
    for other in others:
        await remove_for_good(
            scene.app, manifest.ref_of(scene.app.name, API_SERVICE_BINDING, other)
        )
    await remove(scene.app, SECRET, BIND, "other")


async def test_beside_the_control_plane_bindings_that_are_not_served_yet_count(
    managed: Managed,
) -> None:
    """T3: such as one without its export, whose Secret cannot be read after a restart."""
    settings, clock, faults = in_space(managed.space, "shop-kubeconfig"), ForwardClock(), Faults()
    plane, space, service = managed.plane, managed.space, managed.service_namespace
    async with managed.backend():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: managed.read(SECRET, "shop-kubeconfig"))
        async with konnector(plane.connection, settings):
            await until(lambda: says(managed.binding(), "Ready"))
            made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
            await managed.app.cluster.create(made, managed.offer.kind, manager="tests")
            await until(lambda: managed.read(managed.offer.kind, "orders", service))
    mapping = Ref(plane.name, API_SERVICE_NAMESPACE, space, managed.app_namespace)
    await losses.note(plane, mapping, keys.APP_NAMESPACE_DELETED, "2026-06-01T12:00:00Z")
    here = Ref(managed.app.name, managed.offer.kind, managed.app_namespace, "orders")
    await losses.lose(managed.app.cluster, here)
    await remove(managed.app, NAMESPACE, "", managed.app_namespace)
    await remove(plane, API_SERVICE_EXPORT, space, managed.offer.name)
    faults.add(on("list", kind=SECRET), unreachable())
    async with konnector(plane.connection, settings, clock=clock, faults=faults):
        for _ in range(20):
            clock.put_forward(timedelta(seconds=15))
            await asyncio.sleep(1)
            live = await managed.read(API_SERVICE_NAMESPACE, managed.app_namespace)
            assert live is not None
            assert not manifest.is_deleting(live)
