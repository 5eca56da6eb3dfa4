"""What developers learn in their app cluster once nothing is synced any more."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER
from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT
from reconciler.api.claim_status import RELEASED, WITHDRAWN, Stop
from reconciler.core import keys
from reconciler.core.manifest import Manifest, finalizers_of
from reconciler.core.refs import CRD, SECRET, Ref
from reconciler.kube.requests import Verb
from tests.support.bound_scenes import (
    ACCEPTED,
    Managed,
    Scene,
    conditions,
    gone,
    new,
    read,
    remove,
    says,
    secret,
    served,
    until,
)
from tests.support.faults import Faults, forbidden, on, unreachable
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_faults import mortal
from tests.support.konnector_scenes import Story, equals, event, sides, warns, working
from tests.support.offers import offered
from tests.support.settled import settled

_LATER = 180.0  # seconds: what failed is tried again at the next look but one
AT = "2026-06-01T12:00:00Z"
SERVED: Manifest = {
    "phase": "Ready",
    "conditions": [{"type": "Synced", "status": "True", "lastTransitionTime": AT}],
}


async def well(account: Story) -> None:
    """Make a claim, of which the provider says that it is well."""
    await account.here.make()
    await until(account.there.read)
    await account.there.patch({"status": SERVED}, subresource="status")
    await until(lambda: equals(account.here.status(), SERVED))


async def stopped(account: Story, stop: Stop = RELEASED) -> bool:
    """Return whether the claim says so; its provider's other words stay. A released one is free."""
    live = await account.here.read()
    said = conditions(live).get("Synced", {})
    held = [] if stop == RELEASED else [keys.SYNCER]
    found = (said.get("status"), said.get("reason"), finalizers_of(live), live["status"]["phase"])
    return found == ("False", stop.reason, held, "Ready")


async def has_drain(scene: Scene) -> bool:
    return keys.DRAIN in finalizers_of(await scene.binding())


async def withdraw(scene: Scene) -> None:
    await remove(scene.plane, API_SERVICE_EXPORT, scene.space, scene.offer.name)


async def bound_again(scene: Scene) -> None:
    await scene.own_crd(await scene.bind())


@pytest.mark.parametrize("policy", ["", "Release"])
async def test_a_release_is_reported_at_each_claim_until_it_is_bound_again(
    scene: Scene, policy: str
) -> None:
    async with scene.backend(), working(scene) as account:
        await scene.bound()
        await well(account)
        if policy:
            await scene.set_policy(policy)
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        await until(lambda: stopped(account))
        await until(lambda: warns(scene))
        noted = await until(lambda: event(scene, "orders", "SyncStopped"))
        assert noted["note"] == RELEASED.message
        assert await account.there.status() == SERVED

        await bound_again(scene)
        await until(lambda: equals(account.here.status(), SERVED))
        assert not await warns(scene)


async def test_what_was_released_costs_no_write_when_a_konnector_starts(scene: Scene) -> None:
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await well(account)
            await scene.unbind()
            await until(lambda: stopped(account))
            await until(lambda: warns(scene))
        faults, kind = Faults(), scene.offer.kind
        looks, writes = on("list", cluster=APP_CLUSTER, kind=kind), on("patch", kind=kind)

        async def has_looked() -> bool:
            return any(looks.matches(call) for call in faults.calls)

        async with mortal(scene.app.connection, faults):
            await until(has_looked)
        assert [call for call in faults.calls if writes.matches(call)] == []


async def test_what_was_unbound_while_no_konnector_ran_says_so_at_its_start(scene: Scene) -> None:
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await well(account)
        await scene.unbind()
        async with working(scene) as account:
            await until(lambda: stopped(account))
            await until(lambda: warns(scene))
            assert await event(scene, "orders", "SyncStopped")
            assert keys.SYNCER not in finalizers_of(await scene.instance())
            assert await scene.copy() is not None


async def test_a_status_or_a_crd_that_is_refused_holds_no_release_up(scene: Scene) -> None:
    faults = Faults()
    async with scene.backend(), mortal(scene.app.connection, faults):
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        await scene.set_policy("Release")
        await until(lambda: has_drain(scene))
        status = on("patch", cluster=APP_CLUSTER, kind=scene.offer.kind, subresource="status")
        faults.add(status, forbidden())
        faults.add(on("patch", cluster=APP_CLUSTER, kind=CRD), forbidden())
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        live: Any = await scene.instance()
        assert finalizers_of(live) == []
        assert "Synced" not in conditions(live)
        assert not await warns(scene)


async def test_a_claim_that_lost_its_copy_meanwhile_says_no_more_that_it_is_unbound(
    scene: Scene,
) -> None:
    async with scene.backend(), working(scene) as account:
        await scene.bound()
        await well(account)
        await scene.unbind()
        await until(lambda: stopped(account))
        await account.there.delete()
        await until(account.there.gone)
        await bound_again(scene)
        await until(lambda: event(scene, "orders", "RecreationHeld"))
        held = ("Synced", "False", "RecreationHeld")
        await until(lambda: says(account.here.read(), *held))


async def test_an_export_that_is_withdrawn_is_reported_until_it_is_back(scene: Scene) -> None:
    async with working(scene) as account:
        async with scene.backend():
            await scene.bound()
            await well(account)
        export = await scene.export()
        await withdraw(scene)
        await until(lambda: stopped(account, WITHDRAWN))
        await until(lambda: warns(scene))
        noted = await until(lambda: event(scene, "orders", "SyncStopped"))
        assert noted["note"] == WITHDRAWN.message
        back = {**export, "metadata": {"name": scene.offer.name, "namespace": scene.space}}
        await new(scene.plane, back, API_SERVICE_EXPORT, manager="backend")
        await until(lambda: equals(account.here.status(), SERVED))
        assert not await warns(scene)


@pytest.mark.parametrize("failing", ["list", "patch"])
async def test_what_fails_while_a_withdrawal_is_reported_is_done_later(
    scene: Scene, failing: Verb
) -> None:
    faults, kind = Faults(), scene.offer.kind
    async with mortal(scene.app.connection, faults) as made:
        account = Story(scene, made, *sides(scene), {})
        async with scene.backend():
            await scene.bound()
            await well(account)
        faults.add(on(failing, cluster=APP_CLUSTER, kind=kind).nth(1), unreachable())
        faults.add(on("patch", cluster=APP_CLUSTER, kind=CRD).nth(1), unreachable())
        await withdraw(scene)
        await until(lambda: stopped(account, WITHDRAWN), within=_LATER)
        await until(lambda: warns(scene), within=_LATER)


async def test_credentials_stay_beside_a_service_that_is_followed_no_more(
    scene: Scene, namespace: str
) -> None:
    """T16: set back to before its export, a space lacks it all, and another binding claims it."""
    clock = ForwardClock()
    offers = offered(scene.plane.cluster, scene.app.cluster, namespace=namespace)
    async with offers as offer, konnector(scene.app.connection, clock=clock) as made:
        second = replace(scene, offer=offer)
        async with scene.backend():
            await scene.bound(ACCEPTED)
            await second.request()
            await second.bind(ACCEPTED)
            await until(lambda: served(second.app, second.offer.kind))
            for one in (scene, second):
                await one.create_instance()
                await until(one.copy)
            for name in ("creds", "later"):
                credentials = secret(name, scene.service_namespace)
                await scene.plane.cluster.create(credentials, SECRET, manager="provider")
                await until(lambda: scene.in_app(SECRET, name, scene.app_namespace))  # noqa: B023
        await withdraw(second)
        await remove(second.plane, offer.kind, second.service_namespace, "orders")
        await until(
            lambda: says(second.binding(), "Connected", "False", "APIServiceExportNotFound")
        )
        await remove(scene.plane, SECRET, scene.service_namespace, "creds")
        clock.put_forward(timedelta(minutes=2))
        await settled(made)
        assert await scene.in_app(SECRET, "creds", scene.app_namespace)

        await second.unbind()
        await until(lambda: gone(second.binding()))
        clock.put_forward(timedelta(minutes=2))
        await until(lambda: gone(scene.in_app(SECRET, "creds", scene.app_namespace)))
        assert await scene.in_app(SECRET, "later", scene.app_namespace)


async def test_beside_the_control_plane_credentials_stay_also_before_all_is_followed(
    managed: Managed, namespace: str
) -> None:
    plane, app = managed.plane.cluster, managed.app.cluster
    async with offered(plane, app, namespace=namespace) as offer:
        second = replace(managed, offer=offer)
        await managed.make_secret()
        async with managed.konnector(), managed.backend():
            await managed.apply(managed.offer.resource, offer.resource)
            for one in (managed, second):
                await until(one.binding)
                ref = Ref(plane.name, API_SERVICE_BINDING, one.space, one.offer.name)
                claims: Manifest = {"spec": {"permissionClaims": [ACCEPTED]}}
                await plane.merge_patch(ref, claims, manager="tests")
                await until(lambda: served(one.app, one.offer.kind))  # noqa: B023
                instance = one.offer.instance("asking", namespace=one.app_namespace, spec={})
                await new(one.app, instance, one.offer.kind, manager="developer")
                await until(lambda: copy_of(one))  # noqa: B023
            credentials = secret("creds", managed.service_namespace)
            await plane.create(credentials, SECRET, manager="provider")
            await until(lambda: read(managed.app, SECRET, managed.app_namespace, "creds"))
        await remove(managed.plane, API_SERVICE_EXPORT, managed.space, offer.name)
        await remove(managed.plane, offer.kind, managed.service_namespace, "asking")
        await remove(managed.plane, SECRET, managed.service_namespace, "creds")
        clock = ForwardClock()
        async with managed.konnector(clock=clock) as made:
            credentials = secret("later", managed.service_namespace)
            await plane.create(credentials, SECRET, manager="provider")
            await until(lambda: read(managed.app, SECRET, managed.app_namespace, "later"))
            clock.put_forward(timedelta(minutes=2))
            await settled(*made)
            assert await read(managed.app, SECRET, managed.app_namespace, "creds")


async def copy_of(managed: Managed) -> Any:
    return await managed.read(managed.offer.kind, "asking", managed.service_namespace)
