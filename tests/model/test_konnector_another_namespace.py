"""S27: app namespaces that are made again under the name of a former one."""

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys, names
from reconciler.core.manifest import uid_of
from reconciler.core.refs import NAMESPACE, Ref
from tests.support import losses, made_again
from tests.support.bound_scenes import Scene, remove, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound
from tests.support.konnector_scenes import sides
from tests.support.settled import settled


async def test_claims_of_another_namespace_are_held_where_an_older_konnector_ran(
    scene: Scene,
) -> None:
    """The first claim of an old name takes over nothing, until a person gives it the data."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await made_again.used(scene)
        await made_again.lose_record(scene)
        await made_again.make_again(scene)
        await made_again.use_names(scene)
        async with konnector(scene.app.connection) as running:
            await made_again.assert_nothing_passes(scene, running)
            await made_again.give(scene)
            await until(lambda: sides(scene)[1].has_spec({"size": "9Gi"}))


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
