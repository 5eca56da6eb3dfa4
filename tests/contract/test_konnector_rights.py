"""A konnector in an app cluster needs exactly the rights that klutchctl gives it there.

Nothing that it asks for is ever refused, on neither side, and no right is there for nothing.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from konnector.permission_claim.decide import CONFLICT
from reconciler.api import API_SERVICE_BINDING
from reconciler.blueprints import rbac
from reconciler.blueprints.rbac import Claimed
from reconciler.core import keys, names
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    finalizers_of,
    get_list,
    get_map,
    get_text,
    uid_of,
)
from reconciler.core.refs import CRD, EVENT, LEASE, SECRET, GroupResource, Ref
from tests.support.accounts import with_token
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    Scene,
    b64,
    gone,
    has,
    remove,
    says,
    secret,
    until,
)
from tests.support.deployed import Hearing, rights_of
from tests.support.fault_proxy import FaultProxy
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import USUAL, konnector
from tests.support.konnector_ways import account, fronting
from tests.support.losses import confirm


@dataclass
class Stage:
    """A scene whose konnector is led past listeners, with the rights of an installation."""

    scene: Scene
    to_app: FaultProxy
    to_plane: FaultProxy
    token: str
    rules: tuple[Manifest, ...]
    app: Hearing
    plane: Hearing

    @property
    def way(self):
        return with_token(self.to_app.connection, self.token)


@asynccontextmanager
async def staged(scene: Scene) -> AsyncIterator[Stage]:
    claims = [Claimed("", "secrets", down=True)]
    inside = rbac.minimal_inside(scene.secret)
    rules = (*rbac.minimal([GroupResource(scene.offer.group, "databases")], claims), *inside)
    async with (
        account(scene.app, rules) as token,
        fronting(scene.app) as to_app,
        fronting(scene.plane) as to_plane,
    ):
        led = replace(scene, plane=replace(scene.plane, connection=to_plane.connection))
        await led.make_space()
        yield Stage(scene, to_app, to_plane, token, rules, Hearing(to_app), Hearing(to_plane))


async def test_every_right_is_enough_and_none_is_for_nothing(scene: Scene) -> None:
    clock, settings = ForwardClock(), replace(USUAL, leader_election=True)
    await remove(scene.app, LEASE, BIND, names.KONNECTOR_LEASE)
    async with staged(scene) as stage, scene.backend():
        await the_developer_has_a_secret(scene)
        async with konnector(stage.way, settings):
            await scene.request()
            await scene.bind(ACCEPTED)
            await until(lambda: says(scene.export(), "Ready"))
            await a_claim_comes_and_goes(scene)
            await one_is_born_on_the_control_plane(scene)
            await secrets_come_and_go(scene)
            await the_schema_changes(scene)
            await remove(scene.app, SECRET, BIND, scene.secret)
            await until(lambda: scene.in_app(SECRET, scene.secret))
            await scene.create_instance()
            await until(lambda: scene.copy())
        await scene.patch_instance({"metadata": {"finalizers": None}})
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        async with konnector(stage.way, clock=clock):
            await until(lambda: is_orphaned(scene))
            await confirm(scene, keys.CONFIRM_ORPHANS, scene.offer.name)
            await until(lambda: gone(scene.copy()))
            while not await counted(scene):
                await the_crd_is_made_again(scene)
                clock.put_forward(timedelta(minutes=2))
            await the_binding_goes_with_all(scene)
        await remove(scene.app, LEASE, BIND, names.KONNECTOR_LEASE)
    assert stage.app.refused() == set()
    assert stage.plane.refused() == set()
    assert rights_of(stage.rules) - stage.app.used() == set()


async def a_claim_comes_and_goes(scene: Scene) -> None:
    await scene.create_instance(size="1Gi")
    await until(lambda: scene.copy())
    await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
    await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
    await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
    await until(lambda: gone(scene.copy()))
    await until(lambda: gone(scene.instance()))


async def is_orphaned(scene: Scene) -> bool:
    return keys.ORPHANED in annotations_of(await scene.copy() or {})


async def one_is_born_on_the_control_plane(scene: Scene) -> None:
    made = scene.offer.instance("born", namespace=scene.service_namespace, spec={})
    await scene.plane.cluster.create(made, scene.offer.kind, manager="provider")
    await until(lambda: is_stamped(scene, "born"))  # before, its deletion is no word about the copy
    await remove(scene.app, scene.offer.kind, scene.app_namespace, "born")
    await until(lambda: gone(scene.copy("born")))
    await until(lambda: gone(scene.instance("born")))


async def is_stamped(scene: Scene, name: str) -> bool:
    sides = await scene.copy(name), await scene.instance(name)
    return all(keys.CLAIM_UID in annotations_of(one or {}) for one in sides)


async def the_developer_has_a_secret(scene: Scene) -> None:
    """Before a konnector looks: one that sees the provider's first would bring that down."""
    own = {**secret("own", scene.app_namespace), "data": {"password": b64("the developer's")}}
    await scene.app.cluster.create(own, SECRET, manager="developer")


async def is_contested(scene: Scene) -> bool:
    """Return whether the developer's Secret was read, and compared with the provider's."""
    events = (await scene.app.cluster.list(EVENT, namespace=scene.app_namespace)).items
    reported = [one for one in events if get_text(one, "regarding", "name") == "own"]
    return any(get_text(one, "reason") == CONFLICT for one in reported)


async def secrets_come_and_go(scene: Scene) -> None:
    await scene.create_instance()  # they come down only where a developer has one
    await until(lambda: scene.copy())
    for name in ("own", "orders-creds"):  # one of them meets the developer's
        made = secret(name, scene.service_namespace)
        await scene.plane.cluster.create(made, SECRET, manager="provider")
    await until(lambda: scene.in_app(SECRET, "orders-creds", scene.app_namespace))
    await until(lambda: is_contested(scene))
    await remove(scene.plane, SECRET, scene.service_namespace, "orders-creds")
    await until(lambda: gone(scene.in_app(SECRET, "orders-creds", scene.app_namespace)))
    await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
    await until(lambda: gone(scene.instance()))


async def the_crd_is_made_again(scene: Scene) -> None:
    before = uid_of(await scene.in_app(CRD, scene.offer.name))
    await remove(scene.app, CRD, "", scene.offer.name)

    async def again() -> bool:
        return uid_of(await scene.in_app(CRD, scene.offer.name) or {}) not in ("", before)

    await until(again)


async def counted(scene: Scene) -> bool:
    """Return whether an Event that was told again was counted in the first one."""
    events = (await scene.app.cluster.list(EVENT, namespace=BIND)).items
    reported = [one for one in events if get_text(one, "regarding", "name") == scene.offer.name]
    return any(get_map(one, "series") for one in reported)


async def the_schema_changes(scene: Scene) -> None:
    ref = Ref("", CRD, "", scene.offer.name)
    live = await scene.plane.cluster.get(ref)
    versions = json.loads(json.dumps(get_list(live, "spec", "versions")))
    column = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}
    versions[0]["additionalPrinterColumns"] = [column]
    body: Manifest = {"spec": {"versions": versions}}
    await scene.plane.cluster.merge_patch(ref, body, manager="provider")

    async def followed() -> bool:
        crd = await scene.in_app(CRD, scene.offer.name)
        return bool(get_list(crd, "spec", "versions", 0, "additionalPrinterColumns"))

    await until(followed)


async def the_binding_goes_with_all(scene: Scene) -> None:
    ref = Ref("", API_SERVICE_BINDING, BIND, scene.offer.name)
    body: Manifest = {"metadata": {"annotations": {keys.DELETION_POLICY: "Delete"}}}
    await scene.app.cluster.merge_patch(ref, body, manager="developer")

    async def drains() -> bool:
        return keys.DRAIN in finalizers_of(await scene.binding())

    await until(drains)
    await scene.unbind()
    await until(lambda: gone(scene.binding()))
    await until(lambda: gone(scene.in_app(CRD, scene.offer.name)))
