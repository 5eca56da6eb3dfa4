"""The konnector's stand-in carries instances and Secrets, beside the backend.

What is expected was recorded from the original: names, labels, annotations, finalizers,
conditions with their order, reasons and severities, field managers.
"""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    finalizers_of,
    get_text,
    is_deleting,
    labels_of,
    put,
    uid_of,
)
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Ref
from tests.support.backend import USUAL
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.stand_in_offer import CREDENTIALS, offered
from tests.support.stand_in_scenes import (
    ACCEPTED,
    BIND,
    MANAGER,
    Scene,
    b64,
    gone,
    has,
    managers,
    read,
    remove,
    says,
    secret,
    served,
    shown,
    until,
)


async def test_an_instance_is_held_copied_and_reported(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance(size="1Gi")
        copy = await until(lambda: scene.copy())
        assert copy["spec"] == {"size": "1Gi"}
        assert annotations_of(copy) == {"klutch.anynines.com/bound": "true"}
        assert finalizers_of(copy) == []
        assert managers(copy) == {("konnector", "Update", "")}

        async def marked() -> Any:
            live = await scene.instance()
            return live if annotations_of(live) else None

        instance = await until(marked)
        assert annotations_of(instance) == {"klutch.anynines.com/bound": "true"}
        assert finalizers_of(instance) == ["klutch.anynines.com/syncer"]

        mapping = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
        assert mapping["status"] == {"namespace": scene.service_namespace}
        service = await scene.on_plane(NAMESPACE, scene.service_namespace)
        assert annotations_of(service) == {
            "klutch.anynines.com/api-service-namespace": f"{scene.space}/{scene.app_namespace}"
        }

        await scene.patch_instance({"spec": {"size": "2Gi"}})
        await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))
        assert ("klutch.anynines.com", "Apply", "") in managers(await scene.copy())
        await scene.patch_copy({"spec": {"size": "9Gi"}})
        await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
        await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")
        await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))


async def test_an_instance_that_is_deleted_takes_its_copy_along(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance()
        await until(lambda: scene.copy())
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        await until(lambda: gone(scene.instance()))
        await until(lambda: gone(scene.copy()))


async def test_an_app_namespace_that_goes_takes_its_counterpart_along(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance()
        await until(lambda: scene.copy())
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: gone(scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)))

        async def goes() -> bool:
            service = await scene.on_plane(NAMESPACE, scene.service_namespace)
            return service is None or is_deleting(service)

        await until(goes)


async def test_a_crd_that_a_user_deletes_comes_back_without_its_instances(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance()
        await until(lambda: scene.copy())
        before = await scene.in_app(CRD, scene.offer.name)
        await remove(scene.app, CRD, "", scene.offer.name)

        async def is_new() -> bool:
            crd = await scene.in_app(CRD, scene.offer.name)
            return crd is not None and uid_of(crd) != uid_of(before)

        await until(is_new)
        await until(lambda: gone(scene.copy()))
        await until(lambda: served(scene.app, scene.offer.kind))
        await scene.create_instance()
        await until(lambda: scene.copy())


async def test_a_binding_that_goes_stops_the_sync_and_leaves_everything(scene: Scene) -> None:
    async with scene.backend(), scene.konnector() as konnector:
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(lambda: scene.copy())
        await scene.unbind()
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        assert shown(await scene.export())[:3] == [
            ("Ready", "False", "Info", "APIServiceBindingNotFound"),
            ("Connected", "False", "Info", "APIServiceBindingNotFound"),
            ("ConsumerInSync", "False", "Info", "NA"),
        ]
        await scene.patch_instance({"spec": {"size": "2Gi"}})
        instances = konnector.mirror(konnector.app, scene.offer.kind)

        def seen() -> bool:
            live = instances.get(scene.app_namespace, "orders")
            return get_text(live, "spec", "size") == "2Gi"

        await eventually(seen)
        await konnector.looked()
        assert (await scene.copy())["spec"] == {"size": "1Gi"}
        assert await scene.in_app(CRD, scene.offer.name) is not None
        assert finalizers_of(await scene.instance()) == ["klutch.anynines.com/syncer"]


async def test_bound_again_a_new_binding_finds_the_crd_foreign_until_it_is_its_own(
    scene: Scene,
) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.unbind()
        binding = await scene.bind()
        await until(
            lambda: says(scene.binding(), "Connected", "False", "ForeignCustomResourceDefinition")
        )
        await scene.own_crd(binding)
        await until(lambda: says(scene.binding(), "Connected"))


@pytest.mark.parametrize("released", [True, False], ids=["unbound", "still bound"])
async def test_bound_again_only_copies_without_their_mark_survive_their_instance(
    scene: Scene, released: bool
) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await scene.create_instance(size="1Gi")
        before = await until(lambda: scene.copy())
        await scene.unbind()
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        if released:
            await scene.patch_copy({"metadata": {"annotations": {keys.BOUND: None}}})
        await scene.patch_instance({"metadata": {"finalizers": None}})
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        assert await scene.copy() is not None
        await scene.own_crd(await scene.bind())
        if not released:
            await until(lambda: gone(scene.copy()))
            return
        instance = await until(lambda: scene.instance())
        assert instance["spec"] == {"size": "1Gi"}
        assert annotations_of(instance) == {"klutch.anynines.com/bound": "true"}
        assert uid_of(await scene.copy()) == uid_of(before)


async def test_an_accepted_claim_brings_the_providers_secret_down(scene: Scene) -> None:
    name = "orders-creds"

    async def content() -> Any:
        live = await scene.in_app(SECRET, name, scene.app_namespace)
        return None if live is None else live["data"]["password"]

    async def is_new() -> bool:
        return bool(await content() == b64("new"))

    async with scene.backend(), scene.konnector() as konnector:
        await scene.bound({**CREDENTIALS, "state": "Rejected"})
        await scene.create_instance()
        await until(lambda: scene.copy())
        own = secret("unrelated", scene.app_namespace)
        await scene.app.cluster.create(own, SECRET, manager="developer")
        made = secret(name, scene.service_namespace, **{"made-by": "service"})
        await scene.plane.cluster.create(made, SECRET, manager="provider")
        secrets = konnector.mirror(konnector.plane, SECRET)
        await eventually(lambda: secrets.get(scene.service_namespace, name))
        await konnector.looked()
        assert await content() is None

        claims: Manifest = {"spec": {"permissionClaims": [ACCEPTED]}}
        ref = Ref("", API_SERVICE_BINDING, BIND, scene.offer.name)
        await scene.app.cluster.merge_patch(ref, claims, manager=MANAGER)
        await until(content)
        copy = await scene.in_app(SECRET, name, scene.app_namespace)
        assert annotations_of(copy) == {"klutch.anynines.com/resource-owner": "Provider"}
        assert labels_of(copy) == {"made-by": "service"}
        assert copy["type"] == "connection.example/v1"
        origin = await scene.on_plane(SECRET, name, scene.service_namespace)
        assert annotations_of(origin) == {"klutch.anynines.com/resource-owner": "Provider"}
        assert await scene.on_plane(SECRET, "unrelated", scene.service_namespace) is None

        there = Ref("", SECRET, scene.service_namespace, name)
        change: Manifest = {"data": {"password": b64("new")}}
        await scene.plane.cluster.merge_patch(there, change, manager="provider")
        await until(is_new)
        await remove(scene.app, SECRET, scene.app_namespace, name)
        await until(is_new)
        await remove(scene.plane, SECRET, scene.service_namespace, name)
        await until(lambda: gone(scene.in_app(SECRET, name, scene.app_namespace)))
        assert await scene.in_app(SECRET, "unrelated", scene.app_namespace) is not None


async def test_cluster_scoped_copies_bear_the_space(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str, scene: Scene
) -> None:
    plane, app = control_plane.cluster, app_cluster.cluster
    backend = scene.backend(settings=replace(USUAL, consumer_scope="Cluster"))
    offering = offered(plane, app, namespace=namespace, scope="Cluster")
    async with backend, scene.konnector() as konnector, offering as offer:
        regions = replace(scene, offer=offer)
        await regions.bound()
        export = await regions.export()
        assert export["spec"]["clusterScopedIsolation"] == "Prefixed"
        await app.create(offer.instance("north", spec={"a": 1}), offer.kind, manager="developer")
        name = f"{scene.space}-north"
        copy = await until(lambda: regions.on_plane(offer.kind, name))
        assert annotations_of(copy) == {
            "klutch.anynines.com/bound": "true",
            "klutch.anynines.com/cluster-namespace": scene.space,
        }
        space = await read(control_plane, NAMESPACE, "", scene.space)
        assert copy["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Namespace", "name": scene.space, "uid": uid_of(space)}
        ]
        await remove(app_cluster, offer.kind, "", "north")
        await until(lambda: gone(regions.on_plane(offer.kind, name)))

        theirs = f"{scene.space}-2-north"  # of a space whose name begins like ours
        marks = {keys.BOUND: keys.BOUND_VALUE, keys.CLUSTER_NAMESPACE: f"{scene.space}-2"}
        foreign = put(offer.instance(theirs, spec={}), marks, "metadata", "annotations")
        await plane.create(foreign, offer.kind, manager="provider")
        copies = konnector.mirror(konnector.plane, offer.kind)
        await eventually(lambda: copies.get("", theirs))
        await konnector.looked()
        assert await regions.on_plane(offer.kind, theirs) is not None
        await regions.unbind()
