"""A binding is let go in order (mapping.md 9)."""

import io
from dataclasses import replace
from datetime import timedelta

import pytest

from konnector import CONTROL_PLANE, detach
from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT, API_SERVICE_NAMESPACE
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, manifest
from reconciler.core.errors import ConfigError
from reconciler.core.refs import CRD, LEASE, SECRET, Ref
from tests.support import losses
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    MANAGER,
    Scene,
    gone,
    has,
    read,
    remove,
    says,
    secret,
    served,
    until,
)
from tests.support.faults import Faults, broken, on
from tests.support.konnector import konnector
from tests.support.konnector_claims import claim
from tests.support.konnector_faults import mortal
from tests.support.settled import settled


async def is_held(scene: Scene) -> bool:
    return keys.DRAIN in manifest.finalizers_of(await scene.binding())


async def with_credentials(scene: Scene) -> None:
    """An instance on both sides, and a Secret that came down."""
    await scene.bound(ACCEPTED)
    await scene.create_instance(size="1Gi")
    await until(scene.copy)
    made = secret("orders-creds", scene.service_namespace)
    await scene.plane.cluster.create(made, SECRET, manager="provider")
    await until(lambda: scene.in_app(SECRET, "orders-creds", scene.app_namespace))


async def hold(scene: Scene, policy: str) -> None:
    """Have a konnector hold the binding with credentials, and end."""
    async with konnector(scene.app.connection):
        await with_credentials(scene)
        await scene.set_policy(policy)
        await until(lambda: is_held(scene))


async def test_a_release_keeps_both_sides_and_binding_again_joins_them(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await with_credentials(scene)
        before = [manifest.uid_of(await one()) for one in (scene.copy, scene.instance)]
        await scene.set_policy("Release")
        await until(lambda: is_held(scene))
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        copy = manifest.annotations_of(await scene.copy())
        assert keys.BOUND not in copy
        assert keys.RELEASED in copy
        assert manifest.finalizers_of(await scene.instance()) == []
        assert await scene.in_app(SECRET, "orders-creds", scene.app_namespace) is not None
        assert await scene.in_app(CRD, scene.offer.name) is not None

        await scene.own_crd(await scene.bind(ACCEPTED))

        async def joined() -> bool:
            notes = manifest.annotations_of(await scene.copy())
            held = manifest.finalizers_of(await scene.instance()) == [keys.SYNCER]
            return held and keys.BOUND in notes and keys.RELEASED not in notes

        await until(joined)
        assert [manifest.uid_of(await one()) for one in (scene.copy, scene.instance)] == before
        await scene.patch_instance({"spec": {"size": "3Gi"}})
        await until(lambda: has(scene.copy(), "3Gi", "spec", "size"))


@pytest.mark.parametrize("policy", ["", "Release"])
async def test_the_end_of_the_last_sync_is_reported(scene: Scene, policy: str) -> None:
    """It is the proof that klutchctl waits for, and nobody else would ever write it."""
    faults = Faults()
    async with scene.backend(), mortal(scene.app.connection, faults):
        await scene.bound(ACCEPTED)
        await until(lambda: says(scene.export(), "Connected"))
        if policy:
            await scene.set_policy(policy)
            await until(lambda: is_held(scene))
        reported = on("patch", cluster=CONTROL_PLANE, kind=API_SERVICE_EXPORT)
        faults.add(reported.first(4), broken())
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        if policy:  # whoever dies now has told it
            assert await says(scene.export(), "Connected", "False", "APIServiceBindingNotFound")
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        assert len([call for call in faults.calls if reported.matches(call)]) > 4


async def test_a_binding_that_is_made_again_takes_its_own_crd_over(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await with_credentials(scene)
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        made = await scene.bind(ACCEPTED)

        async def owned() -> bool:
            live = await scene.in_app(CRD, scene.offer.name)
            return [one["uid"] for one in live["metadata"]["ownerReferences"]] == [
                manifest.uid_of(made)
            ]

        await until(owned)
        await until(lambda: says(scene.binding(), "Ready"))


async def test_a_crd_that_another_binding_takes_is_left_to_it(scene: Scene) -> None:
    """Of another konnector's, which no view shows; neither takes it from the other for ever."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        await scene.bound(ACCEPTED)
        await settled(made)
        binding = await scene.binding()
        await scene.own_crd({**binding, "metadata": {"uid": "of-another-control-plane"}})
        await until(
            lambda: says(scene.binding(), "Connected", "False", "ForeignCustomResourceDefinition")
        )
        await scene.create_instance()
        await settled(made)
        (owner,) = (await scene.in_app(CRD, scene.offer.name))["metadata"]["ownerReferences"]
        assert owner["uid"] == "of-another-control-plane"
        assert await scene.copy() is None
        await scene.own_crd(binding)
        await until(lambda: says(scene.binding(), "Connected"))
        await until(scene.copy)


@pytest.mark.parametrize("released", ["", "others.example"])
async def test_delete_takes_the_crd_and_what_came_down(scene: Scene, released: str) -> None:
    """Also where a claim is of a kind that is served nowhere (H18).

    Not where another service was released, which is in use. Nor what was copied with its marks.
    """
    unserved = claim("gadgets", "Provider", group="nobody.example")
    async with scene.backend(), konnector(scene.app.connection):
        await with_credentials(scene)
        ref = Ref(scene.app.name, API_SERVICE_BINDING, BIND, scene.offer.name)
        both: manifest.Manifest = {"spec": {"permissionClaims": [ACCEPTED, unserved]}}
        await scene.app.cluster.merge_patch(ref, both, manager=MANAGER)
        own = secret("own", scene.app_namespace)
        await scene.app.cluster.create(own, SECRET, manager="developer")
        await scene.app.cluster.create(await copied(scene), SECRET, manager="developer")
        mapping = Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)
        await losses.note(scene.plane, mapping, keys.RELEASED_KINDS, released)
        await scene.set_policy("Delete")
        await until(lambda: is_held(scene))
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        await until(lambda: gone(scene.instance()))
        await until(lambda: gone(scene.copy()))
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        assert await scene.in_app(CRD, scene.offer.name) is None
        left = set(await losses.all_names(scene.app, SECRET, scene.app_namespace))
        assert left == {"own", "copied", *(["orders-creds"] if released else [])}


async def copied(scene: Scene) -> manifest.Manifest:
    came = await scene.in_app(SECRET, "orders-creds", scene.app_namespace)
    marks, made = manifest.annotations_of(came), secret("copied", scene.app_namespace)
    return manifest.put(made, marks, "metadata", "annotations")


async def served_in_another_version(scene: Scene) -> None:
    """Let the control plane have the service's kind in v2 alone."""
    ref = Ref(scene.plane.name, CRD, "", scene.offer.name)
    live = await scene.plane.cluster.get(ref)
    (first,) = manifest.get_maps(live, "spec", "versions")
    both = [{**first, "name": "v2"}, {**first, "served": False, "storage": False}]
    body: manifest.Manifest = {"spec": {"versions": both}}
    await scene.plane.cluster.merge_patch(ref, body, manager="provider")
    await until(lambda: served(scene.plane, replace(scene.offer.kind, version="v2")))
    await until(lambda: is_unserved(scene))


async def is_unserved(scene: Scene) -> bool:
    return not await served(scene.plane, scene.offer.kind)


@pytest.mark.parametrize("policy", ["Release", "Delete"])
async def test_copies_are_released_in_another_version(scene: Scene, policy: str) -> None:
    """The CRD of the app cluster is behind, as a konnector has not been there to change it.

    With Delete, too, as there is a copy.
    """
    async with scene.backend():
        await hold(scene, policy)
        await served_in_another_version(scene)
        if policy == "Delete":  # as a person does who has no konnector
            await scene.patch_instance({"metadata": {"finalizers": None}})
            await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        await scene.unbind()
        async with konnector(scene.app.connection):
            await until(lambda: gone(scene.binding()))
        newer = replace(scene.offer.kind, version="v2")
        copy = manifest.annotations_of(
            await read(scene.plane, newer, scene.service_namespace, "orders")
        )
        assert keys.RELEASED in copy
        assert keys.BOUND not in copy


async def test_deletions_that_are_waited_for_go_on_in_another_version(scene: Scene) -> None:
    """Nobody else would have the CRD of the app cluster follow its export."""
    ref = Ref(scene.app.name, API_SERVICE_BINDING, BIND, scene.offer.name)
    goes_with_space: manifest.Manifest = {"metadata": {"annotations": {keys.DRAINING: "true"}}}
    newer = replace(scene.offer.kind, version="v2")
    async with scene.backend():
        await hold(scene, "Delete")
        await scene.app.cluster.merge_patch(ref, goes_with_space, manager=MANAGER)
        await served_in_another_version(scene)
        await scene.unbind()
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        async with konnector(scene.app.connection):
            await until(lambda: gone(scene.binding()))
        assert await read(scene.plane, newer, scene.service_namespace, "orders") is None
        assert await scene.in_app(CRD, scene.offer.name) is None


async def test_a_kind_that_is_served_nowhere_has_no_copies(scene: Scene) -> None:
    """The provider took its service away, with all copies."""
    async with scene.backend():
        await hold(scene, "Release")
        await remove(scene.plane, CRD, "", scene.offer.name)
        await until(lambda: is_unserved(scene))
        await scene.unbind()
        async with konnector(scene.app.connection):
            await until(lambda: gone(scene.binding()))
        assert manifest.finalizers_of(await scene.instance()) == []


async def test_detach_frees_what_no_control_plane_will_ever_free(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await with_credentials(scene)
    way = (str(scene.app.kubeconfig), scene.app.context)
    asked = detach.Asked(*way, bindings=(scene.offer.name,))
    reported = io.StringIO()
    await detach.run(asked, {}, scene.app.kubeconfig.parent, out=reported)
    assert f"would detach: Database {scene.app_namespace}/orders" in reported.getvalue()
    assert manifest.finalizers_of(await scene.instance()) == [keys.SYNCER]
    await detach.run(replace(asked, force=True), {}, scene.app.kubeconfig.parent, out=reported)
    live = await scene.instance()
    assert manifest.finalizers_of(live) == []
    assert keys.BOUND not in manifest.annotations_of(live)
    await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
    await until(lambda: gone(scene.instance()))


async def test_detach_refuses_beside_a_konnector_that_works(scene: Scene) -> None:
    lease: manifest.Manifest = {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"name": "klutch-bind", "namespace": BIND},
        "spec": {
            "holderIdentity": "konnector-0",
            "renewTime": (SystemClock().now() - timedelta(seconds=5)).strftime(
                "%Y-%m-%dT%H:%M:%S.%fZ"
            ),
        },
    }
    await scene.app.cluster.create(lease, LEASE, manager="konnector")
    try:
        asked = detach.Asked(str(scene.app.kubeconfig), scene.app.context, force=True)
        with pytest.raises(ConfigError, match="konnector-0 still works"):
            await detach.run(asked, {}, scene.app.kubeconfig.parent)
    finally:
        await remove(scene.app, LEASE, BIND, "klutch-bind")
