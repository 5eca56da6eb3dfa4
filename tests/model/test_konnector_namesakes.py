"""Several bindings, Secrets or spaces for one service: none takes from another what that has.

protocol-konnector.md A.7, C.4, H15; mapping.md 9.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER
from konnector.binding import controller as binding_controller
from konnector.space.decide import PULSE
from reconciler.api import API_SERVICE_BINDING, CLUSTER_BINDING
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, manifest
from reconciler.core.manifest import get
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Ref
from tests.kit.wire import Wires
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    Managed,
    Scene,
    direct_scene,
    gone,
    has,
    managed_scene,
    new,
    read,
    remove,
    says,
    served,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.faults import Faults, on, unreachable
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import USUAL, konnector
from tests.support.konnector_faults import mortal
from tests.support.konnector_ways import Kubeconfigs, put
from tests.support.offers import offered
from tests.support.removal import remove_for_good
from tests.support.settled import settled

ANOTHER_WAY = "https://another-way.example:6443"
FOREIGN = "ForeignCustomResourceDefinition"
HEARTBEAT = ("status", "lastHeartbeatTime")


async def second_binding(scene: Scene) -> Ref:
    """Make a binding of the same name in another namespace, by the same Secret."""
    made = blueprint.service_binding(
        scene.offer.resource,
        namespace=scene.app_namespace,
        secret=(BIND, scene.secret),
        claims=[ACCEPTED],
        marks=Marks(annotations={keys.DELETION_POLICY: "Release"}),
    )
    await scene.app.cluster.create(made, API_SERVICE_BINDING, manager="somebody")
    return Ref(scene.app.name, API_SERVICE_BINDING, scene.app_namespace, scene.offer.name)


async def test_a_second_binding_of_a_name_stops_nothing_and_takes_nothing_along(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a konnector finds where it looks at a binding anyway would hide that it was stopped.
    monkeypatch.setattr(binding_controller, "_LOOK", timedelta(hours=1))
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await scene.create_instance()
        await until(scene.copy)
        other = await second_binding(scene)
        try:
            await until(lambda: says(scene.app.cluster.get(other), "Connected", "False", FOREIGN))
            await scene.create_instance("later")
            await until(lambda: scene.copy("later"))
            await until(lambda: drains(scene, other))
            await remove(scene.app, API_SERVICE_BINDING, other.namespace, other.name)
            await until(lambda: gone(scene.app.cluster.get(other)))
        finally:
            await remove_for_good(scene.app, other)
        assert keys.SYNCER in manifest.finalizers_of(await scene.instance())
        copy = manifest.annotations_of(await scene.copy())
        assert keys.BOUND in copy
        assert keys.RELEASED not in copy
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
        assert await says(scene.export(), "Connected")


async def test_what_a_tenant_binds_elsewhere_is_not_served_where_one_namespace_is(
    scene: Scene, namespace: str
) -> None:
    enclosed = replace(USUAL, binding_namespace=BIND)
    async with (
        offered(scene.plane.cluster, scene.app.cluster, namespace=namespace) as offer,
        scene.backend(),
        konnector(scene.app.connection, enclosed),
    ):
        await scene.bound(ACCEPTED)
        second = replace(scene, offer=offer)
        await second.request()
        await until(second.export)
        elsewhere = await second_binding(second)
        made = await scene.app.cluster.get(elsewhere)
        try:
            await scene.create_instance()
            await until(scene.copy)
            assert await scene.app.cluster.get(elsewhere) == made
            assert await second.in_app(CRD, offer.name, "") is None
        finally:
            await remove_for_good(scene.app, elsewhere)


async def drains(scene: Scene, ref: Ref) -> bool:
    return keys.DRAIN in manifest.finalizers_of(await scene.app.cluster.get(ref) or {})


async def test_two_secrets_of_one_space_share_a_provider(
    scene: Scene, namespace: str, wires: Wires
) -> None:
    """Two providers of one space would tell the opposite of each other for ever."""
    plane, app = scene.plane.cluster, scene.app.cluster
    wires.models[ANOTHER_WAY] = wires.models[scene.plane.connection.server]
    async with (
        offered(plane, app, namespace=namespace) as offer,
        scene.backend(),
        konnector(scene.app.connection) as made,
    ):
        await scene.bound(ACCEPTED)
        second = replace(scene, offer=offer)
        await second.request()
        await second.bind(ACCEPTED, secret=await another_secret(scene))
        for one in (scene, second):
            await until(lambda: says(one.export(), "Ready"))  # noqa: B023
        await settled(made)
        before = [manifest.resource_version_of(await one.export()) for one in (scene, second)]
        for one, name in ((scene, "mine"), (second, "theirs"), (scene, "more")):
            await one.create_instance(name)
            await until(lambda: one.copy(name))  # noqa: B023
        assert [
            manifest.resource_version_of(await one.export()) for one in (scene, second)
        ] == before
        of_exports = f"/{scene.space}/apiserviceexports?"
        [(way, _)] = [watch for watch in wires.watches if of_exports in watch[1]]
        assert way == ANOTHER_WAY  # the one that was proved last
        await second.unbind()
        await until(lambda: gone(second.binding()))


async def test_a_secret_that_never_worked_holds_up_no_other_of_its_space(
    scene: Scene, namespace: str, wires: Wires
) -> None:
    """When it works in the end, its binding goes to the provider that is there."""
    plane, app = scene.plane.cluster, scene.app.cluster
    async with (
        offered(plane, app, namespace=namespace) as offer,
        scene.backend(),
        konnector(scene.app.connection),
    ):
        await scene.make_space()
        await scene.request()
        await scene.bind(ACCEPTED, secret=await another_secret(scene))
        await until(lambda: says(scene.binding(), "Connected", "False", "Pending"))
        second = replace(scene, offer=offer)
        await second.request()
        await second.bind(ACCEPTED)
        await until(lambda: says(second.export(), "Ready"))
        wires.models[ANOTHER_WAY] = wires.models[scene.plane.connection.server]
        await until(lambda: says(scene.export(), "Ready"))
        asked = [way for way, _ in wires.calls].count(ANOTHER_WAY)
        for one in (scene, second):
            await one.create_instance("orders")
            await until(one.copy)
        assert [way for way, _ in wires.calls].count(ANOTHER_WAY) == asked
        await second.unbind()
        await until(lambda: gone(second.binding()))


async def another_secret(scene: Scene) -> str:
    """Make a second Secret with a kubeconfig of the space, which leads another way."""
    name, way = f"{scene.secret}-own", replace(scene.plane.connection, server=ANOTHER_WAY)
    await scene.app.cluster.create(build(SECRET, name, namespace=BIND), SECRET, manager="operator")
    await put(scene.app, BIND, name, Kubeconfigs(scene).by(way, await scene.token()))
    return name


@asynccontextmanager
async def another_namespace(plane: LiveCluster, like: str) -> AsyncIterator[str]:
    name = f"{like}-2"
    await plane.cluster.create(build(NAMESPACE, name), NAMESPACE, manager="tests")
    try:
        yield name
    finally:
        await remove(plane, NAMESPACE, "", name)


async def test_a_crd_that_another_space_owns_is_left_to_it(managed: Managed) -> None:
    """No view shows whether the binding of another space lives; its mark on the CRD does."""
    async with (
        another_namespace(managed.plane, managed.namespace) as other,
        managed_scene(managed.plane, managed.app, other) as made,
    ):
        second = replace(made, offer=managed.offer)
        async with managed.backend(), managed.konnector(), second.konnector():
            await bound(managed)
            await until(lambda: says(managed.binding(), "Connected"))
            before = await crd_of(managed)
            await bound(second)
            await until(lambda: says(second.binding(), "Connected", "False", FOREIGN))
            assert await crd_of(managed) == before
            assert await says(managed.binding(), "Connected")
        await second.let_go()


async def test_credentials_of_another_space_are_left_to_it(managed: Managed) -> None:
    """No view shows whether their origin in another space lives; their mark says whose."""
    async with (
        another_namespace(managed.plane, managed.namespace) as other,
        managed_scene(managed.plane, managed.app, other) as second,
        managed.backend(),
        managed.konnector(),
    ):
        await claimed(managed, managed.app_namespace)
        first = await credentials(managed, managed, "creds")
        async with second.konnector():
            await claimed(second, managed.app_namespace)
            await credentials(second, managed, "theirs")
            await note_on_copy(managed, "creds")
            await deliver(second, managed, "creds", "dHdv")
            await credentials(second, managed, "later")
            left = await read(managed.app, SECRET, managed.app_namespace, "creds")
            assert manifest.uid_of(left) == manifest.uid_of(first)
            assert get(left, "data") == get(first, "data")


async def test_credentials_stay_when_one_of_two_providers_is_let_go(
    scene: Scene, namespace: str
) -> None:
    """Mapping.md 9: applications run on them, and the other provider has no origin for them."""
    async with (
        another_namespace(scene.plane, namespace) as other,
        direct_scene(scene.plane, scene.app, other) as second,
        scene.backend(),
        konnector(scene.app.connection),
    ):
        await scene.bound(ACCEPTED)
        await mapped(scene, scene.app_namespace)
        first = await credentials(scene, scene, "creds")
        await second.bound(ACCEPTED)
        await mapped(second, scene.app_namespace)
        for name in ("theirs", "later"):
            await credentials(second, scene, name)

        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        for name in ("theirs", "later"):
            await note_on_copy(scene, "creds", name)
            await taken_back(second, scene, name)
        left = await read(scene.app, SECRET, scene.app_namespace, "creds")
        assert manifest.uid_of(left) == manifest.uid_of(first)


async def taken_back(one: Scene, to: Scene, name: str) -> None:
    """Take credentials of a space back, and wait until they are gone from the app namespace."""
    await remove(one.plane, SECRET, f"{one.space}-{to.app_namespace}", name)
    await until(lambda: gone(read(to.app, SECRET, to.app_namespace, name)))


async def claimed(one: Managed, app_namespace: str) -> None:
    """Bind a space's service with its claims, and use it in an app namespace."""
    await bound(one)
    ref = Ref(one.plane.name, API_SERVICE_BINDING, one.space, one.offer.name)
    claims: manifest.Manifest = {"spec": {"permissionClaims": [ACCEPTED]}}
    await one.plane.cluster.merge_patch(ref, claims, manager="tests")
    await mapped(one, app_namespace)


async def mapped(one: Managed | Scene, app_namespace: str) -> None:
    """Let a developer use a space's service in an app namespace."""
    await until(lambda: served(one.app, one.offer.kind))
    made = one.offer.instance("asking", namespace=app_namespace, spec={})
    await new(one.app, made, one.offer.kind, manager="developer")
    await until(lambda: read(one.plane, NAMESPACE, "", f"{one.space}-{app_namespace}"))


async def deliver(one: Managed | Scene, to: Managed | Scene, name: str, password: str) -> None:
    data = {"password": password}
    where = f"{one.space}-{to.app_namespace}"
    made = build(SECRET, name, namespace=where, type="Opaque", data=data)
    await one.plane.cluster.create(made, SECRET, manager="provider")


async def credentials(one: Managed | Scene, to: Managed | Scene, name: str) -> manifest.Manifest:
    """Have credentials of a space arrive in the app namespace of another one's scene."""
    await deliver(one, to, name, "b25l")
    found: manifest.Manifest = await until(lambda: read(to.app, SECRET, to.app_namespace, name))
    return found


async def note_on_copy(managed: Managed | Scene, name: str, note: str = "again") -> None:
    """Wake everybody who watches a copy."""
    ref = Ref(managed.app.name, SECRET, managed.app_namespace, name)
    body: manifest.Manifest = {"metadata": {"labels": {"note": note}}}
    await managed.app.cluster.merge_patch(ref, body, manager="developer")


async def bound(managed: Managed) -> None:
    await managed.make_secret()
    await managed.apply(managed.offer.resource)
    await until(managed.binding)


async def crd_of(managed: Managed) -> tuple[str, Any, str]:
    live: manifest.Manifest = await read(managed.app, CRD, "", managed.offer.name) or {}
    owners = get(live, "metadata", "ownerReferences")
    return manifest.uid_of(live), owners, manifest.annotations_of(live)[keys.SPACE_UID]


async def test_the_heart_beats_while_the_app_cluster_does_not_say_which_it_is(scene: Scene) -> None:
    """The control plane is told that the konnector lives; deletes wait for a fresh look anyway."""
    clock, faults = ForwardClock(), Faults()

    async def beat() -> str:
        return manifest.get_text(await scene.on_plane(CLUSTER_BINDING, "cluster"), *HEARTBEAT)

    async with scene.backend(clock=clock), mortal(scene.app.connection, faults, clock=clock):
        await scene.bound()
        await until(lambda: says(scene.binding(), "Heartbeating"))
        first = await beat()
        away = on("get", cluster=APP_CLUSTER, kind=NAMESPACE, name="kube-system")
        faults.add(away, unreachable())
        clock.put_forward(PULSE)

        async def has_beaten() -> bool:
            return await beat() > first

        await until(has_beaten)
        assert await says(scene.binding(), "Heartbeating")
