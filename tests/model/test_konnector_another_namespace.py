"""S27: app namespaces that are made again under the name of a former one."""

from collections.abc import Awaitable, Callable

import pytest

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import namespace
from reconciler.core import keys, names
from reconciler.core.manifest import uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from tests.support import losses, made_again
from tests.support.bound_scenes import Scene, remove, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, ends
from tests.support.konnector_scenes import sides
from tests.support.settled import settled


async def leave_record(scene: Scene) -> None:
    del scene


@pytest.mark.parametrize("record", [leave_record, made_again.lose_record])
async def test_claims_of_another_namespace_are_held_after_a_restart(
    scene: Scene, record: Callable[[Scene], Awaitable[None]]
) -> None:
    """The first claim of an old name takes over nothing; also where an older konnector ran."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await made_again.used(scene)
        await record(scene)
        await made_again.make_again(scene)
        await made_again.use_names(scene)
        async with konnector(scene.app.connection) as running:
            await made_again.assert_nothing_passes(scene, running)
            await made_again.give(scene)
            await until(lambda: sides(scene)[1].has_spec({"size": "9Gi"}))


async def test_a_namespace_that_is_made_again_while_the_konnector_runs(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection) as running:
        await made_again.used(scene)
        await made_again.make_again(scene)
        await made_again.use_names(scene)
        await made_again.assert_nothing_passes(scene, running)
        await made_again.give(scene)


async def test_objects_that_return_with_another_namespace(scene: Scene) -> None:
    """A restore brings claims with their marks; whether it is a restore, only a person knows."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await made_again.used(scene)
            await until(lambda: losses.Many(scene, 0).are_marked())
        held = await scene.instance()
        await made_again.make_again(scene)
        kept = ("annotations", "finalizers", "name", "namespace")
        metadata = {key: held["metadata"][key] for key in kept}
        back = {**held, "metadata": metadata, "spec": {"size": "9Gi"}}
        await scene.app.cluster.create(back, scene.offer.kind, manager="velero")
        async with konnector(scene.app.connection) as running:
            await made_again.assert_nothing_passes(scene, running)
            await scene.create_instance("fresh", size="9Gi")
            await made_again.give(scene)


async def test_what_a_former_namespace_left_while_the_backend_was_away(scene: Scene) -> None:
    """Its mapping went, and a new one gets the same service namespace: with data, it is held."""
    async with konnector(scene.app.connection) as running:
        async with scene.backend():
            await made_again.used(scene)
        await sides(scene)[0].delete()
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: is_unmapped(scene))
        await scene.app.cluster.create(namespace(scene.app_namespace), NAMESPACE, manager="tests")
        await made_again.use_names(scene)
        async with scene.backend():
            await until(lambda: losses.says(scene, *made_again.ANOTHER))
            await settled(running)
            assert await ends(scene)[1].lacks(SECRET, "creds")
            assert await scene.copy("fresh") is None
            await made_again.give(scene)


async def is_unmapped(scene: Scene) -> bool:
    return await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace) is None


async def test_a_mapping_with_nothing_behind_it_is_given_without_a_word(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await until(lambda: made_again.is_mapped(scene))
        await made_again.make_again(scene)
        await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")
        await made_again.use_names(scene)
        async with konnector(scene.app.connection) as running:
            await until(lambda: scene.copy("fresh"))
            await settled(running)
            assert await made_again.is_mapped(scene)
            assert await losses.cause(scene, made_again.ANOTHER[0]) == ""


async def test_a_mapping_of_an_older_konnector_takes_the_uid_of_what_is_synced(
    scene: Scene,
) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await made_again.used(scene)
            await until(lambda: losses.Many(scene, 0).are_marked())
        await made_again.lose_record(scene)
        await scene.create_instance("fresh", size="1Gi")
        async with konnector(scene.app.connection):
            await until(lambda: scene.copy("fresh"))
            assert await made_again.is_mapped(scene)
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "fresh")


async def test_an_app_cluster_that_is_confirmed_brings_its_namespaces(scene: Scene) -> None:
    """Those that are there by then: a clone's, or those of a cluster that was restored."""
    other = "00000000-0000-0000-0000-000000000000"
    ref = Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await made_again.used(scene)
        for key in (keys.APP_CLUSTER_UID, keys.APP_NAMESPACE_UID):
            await losses.note(scene.plane, ref, key, other)
        async with konnector(scene.app.connection):
            await until(lambda: losses.says(scene, "DeletesAllowed", "AppClusterChanged"))
            system = uid_of(await scene.in_app(NAMESPACE, names.KUBE_SYSTEM, ""))
            await losses.confirm(scene, keys.CONFIRM_APP_CLUSTER, system)
            await until(lambda: made_again.is_mapped(scene))
