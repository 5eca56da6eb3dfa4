"""T8: where a kubeconfig leads to another app cluster, nothing is written on either side."""

from typing import Any

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_NAMESPACE
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, annotations_of, finalizers_of, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from tests.support.bound_scenes import BIND, MANAGER, Scene, conditions, gone, remove, secret, until
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector import AGENT, konnector
from tests.support.konnector_claims import bound, claim, is_idle
from tests.support.losses import Many, confirm, note, reported, says

STRANGER = "00000000-0000-0000-0000-000000000000"


def mapping_ref(scene: Scene) -> Ref:
    return Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)


async def recorded(live: LiveCluster, ref: Ref, key: str) -> str | None:
    return annotations_of(await live.cluster.get(ref) or {}).get(key)


def writes(live: LiveCluster, mark: int) -> list[str]:
    """Return what konnectors wrote, but for conditions and Events."""
    asked = [
        one["objectRef"] | {"verb": one["verb"]}
        for one in live.audit.events_since(mark)
        if AGENT in one.get("userAgent", "") and one["verb"] not in ("get", "list", "watch")
    ]
    return [
        f"{one['verb']} {one['resource']} {one.get('namespace', '')}/{one.get('name', '')}"
        for one in asked
        if one["resource"] != "events" and one.get("subresource") != "status"
    ]


async def test_a_foreign_app_cluster_gets_and_gives_nothing(scene: Scene) -> None:
    many = Many(scene, 2)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, claim("secrets", "Provider"))
            await many.make("orders")
            uid = await until(
                lambda: recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID)
            )
            system = await scene.in_app(NAMESPACE, names.KUBE_SYSTEM, "")
            assert uid == uid_of(system)
        await note(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID, STRANGER)
        # Whatever a konnector could carry, up or down.
        await many.lose_instance("db00")
        await remove(scene.app, many.kind, scene.app_namespace, "db01")
        await scene.create_instance("clone", size="1Gi")
        await scene.patch_instance({"spec": {"size": "9Gi"}})
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        made = secret("creds", scene.service_namespace)
        await scene.plane.cluster.create(made, SECRET, manager="provider")
        here, there = scene.app.audit.mark(), scene.plane.audit.mark()
        async with konnector(scene.app.connection) as running:
            await until(lambda: says(scene, "DeletesAllowed", "AppClusterChanged"))
            event = await until(lambda: reported(scene, "AppClusterChanged"))
            assert f"{keys.CONFIRM_APP_CLUSTER}={uid}" in event["note"]
            await until(lambda: binding_says(scene, "Connected", "AppClusterChanged"))
            await confirm(scene, keys.CONFIRM_APP_CLUSTER, STRANGER)  # is not this one
            await eventually(lambda: is_idle(running))
            assert (writes(scene.app, here), writes(scene.plane, there)) == ([], [])
            assert await many.there() == ["db00", "db01", "orders"]

            await confirm(scene, keys.CONFIRM_APP_CLUSTER, uid)
            await until(lambda: scene.copy("clone"))
            await until(lambda: gone(scene.copy("db01")))
            await until(lambda: arrived(scene))
            await until(lambda: is_recorded(scene, uid))
            await until(lambda: says(scene, "DeletesAllowed", ""))
            assert await many.orphans() == ["db00"]


async def binding_says(scene: Scene, condition: str, reason: str) -> bool:
    said: Any = conditions(await scene.binding()).get(condition, {})
    return bool(said.get("reason") == reason)


async def arrived(scene: Scene) -> bool:
    return await scene.in_app(SECRET, "creds", scene.app_namespace) is not None


async def is_recorded(scene: Scene, uid: str) -> bool:
    return await recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID) == uid


async def test_the_record_of_the_space_counts_where_no_app_namespace_is_mapped(
    scene: Scene,
) -> None:
    async with scene.backend():
        await scene.make_space()
        space = Ref(scene.plane.name, NAMESPACE, "", scene.space)
        await note(scene.plane, space, keys.APP_CLUSTER_UID, STRANGER)
        await scene.request()
        here = scene.app.audit.mark()
        await scene.bind()
        async with konnector(scene.app.connection) as running:
            await until(lambda: says(scene, "DeletesAllowed", "AppClusterChanged"))
            await eventually(lambda: is_idle(running))
            assert writes(scene.app, here) == []


async def test_a_take_over_records_what_it_finds(scene: Scene) -> None:
    """The original records nothing; the first time nothing is held by that."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await until(lambda: scene.copy())
        await note(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID, None)
        async with konnector(scene.app.connection):
            await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
            await until(lambda: gone(scene.copy()))
            assert await until(
                lambda: recorded(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID)
            )


async def freed(scene: Scene) -> bool:
    return keys.SYNCER not in finalizers_of(await scene.instance())


async def test_what_no_binding_names_stays_held_in_a_foreign_app_cluster(scene: Scene) -> None:
    """Another binding, of the same space, knows that; the one that is gone (U3) asks nobody."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
        uid = uid_of(await scene.in_app(NAMESPACE, names.KUBE_SYSTEM, ""))
        await note(scene.plane, mapping_ref(scene), keys.APP_CLUSTER_UID, STRANGER)
        name = f"other.{scene.offer.group}"
        metadata: Manifest = {"name": name, "namespace": BIND}
        other = {**await scene.binding(), "metadata": metadata, "status": {}}
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        await scene.app.cluster.create(other, API_SERVICE_BINDING, manager=MANAGER)
        here, there = scene.app.audit.mark(), scene.plane.audit.mark()
        try:
            async with konnector(scene.app.connection) as running:
                await until(lambda: says(scene, "DeletesAllowed", "AppClusterChanged"))
                await eventually(lambda: is_idle(running))
                assert (writes(scene.app, here), writes(scene.plane, there)) == ([], [])
                assert not await freed(scene)
                await confirm(scene, keys.CONFIRM_APP_CLUSTER, uid)
                await until(lambda: freed(scene))
        finally:
            await remove(scene.app, API_SERVICE_BINDING, BIND, name)
