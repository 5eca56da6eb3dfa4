"""An AppClusterBinding is deleted while something is in the way.

No data goes unless the policy says so, and its conditions tell what is waited for.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from bind.app_cluster_binding.cleanup import DRAIN_TIMEOUT
from reconciler import api
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, is_deleting, uid_of
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Ref
from tests.support.backend import USUAL
from tests.support.backend_stories import StandingClock
from tests.support.bound_scenes import (
    MANAGER,
    Managed,
    conditions,
    gone,
    managed_scene,
    new,
    read,
    remove,
    says,
    secret,
    served,
    until,
)

DEADLINE = timedelta(minutes=5)  # while the last heartbeat still counts
STUCK = "someone.example/stuck"
POLICIES = ("Release", "Delete")


@dataclass
class Drill:
    """An app cluster with an instance and its credentials, both carried by a konnector."""

    managed: Managed
    clock: StandingClock

    @property
    def binding(self) -> Ref:
        managed = self.managed
        name = managed.offer.name
        return Ref(managed.plane.name, api.API_SERVICE_BINDING, managed.space, name)

    def backend(self):
        return self.managed.backend(
            settings=replace(USUAL, drain_deadline=DEADLINE), clock=self.clock
        )

    def konnector(self):
        return self.managed.konnector(clock=self.clock)

    async def inhabit(self):
        """Bind with the claims that the template offers, and use the service. Needs both peers."""
        managed, kind = self.managed, self.managed.offer.kind
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await self.annotate(keys.ACCEPT_CLAIMS, keys.ACCEPT_CLAIMS_TEMPLATE)
        await until(lambda: says(managed.export(), "Connected"))
        await until(lambda: served(managed.app, kind))
        made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
        await new(managed.app, made, kind, manager="developer")
        await until(lambda: managed.read(kind, "orders", managed.service_namespace))
        credentials = secret("orders-login", managed.service_namespace)
        await managed.plane.cluster.create(credentials, SECRET, manager="provider")
        await until(lambda: read(managed.app, SECRET, managed.app_namespace, "orders-login"))
        await until(lambda: says(managed.read(api.CLUSTER_BINDING, "cluster"), "Healthy"))

    async def data(self) -> tuple[str, str]:
        """Return the uids of the instance's copy and of its credentials, "" for what is gone."""
        managed, place = self.managed, self.managed.service_namespace
        copy = await managed.read(managed.offer.kind, "orders", place)
        credentials = await managed.read(SECRET, "orders-login", place)
        return uid_of(copy or {}), uid_of(credentials or {})

    async def used(self) -> tuple[str, str]:
        """Return the uids of what the app cluster's applications run on."""
        managed, place = self.managed, self.managed.app_namespace
        instance = await read(managed.app, managed.offer.kind, place, "orders")
        credentials = await read(managed.app, SECRET, place, "orders-login")
        return uid_of(instance or {}), uid_of(credentials or {})

    async def stop_using(self) -> None:
        """Delete the instance, as its developer does."""
        managed = self.managed
        await remove(managed.app, managed.offer.kind, managed.app_namespace, "orders")

    async def delete(self, policy: str = "") -> None:
        if policy:
            await self.annotate(keys.DELETION_POLICY, policy)
        managed = self.managed
        await remove(managed.plane, api.APP_CLUSTER_BINDING, managed.namespace, "shop")

    async def annotate(self, key: str, value: str) -> None:
        ref = Ref(self.managed.plane.name, api.APP_CLUSTER_BINDING, self.managed.namespace, "shop")
        body = {"metadata": {"annotations": {key: value}}}
        await self.managed.plane.cluster.merge_patch(ref, body, manager=MANAGER)

    async def hold(self, ref: Ref, *finalizers: str) -> None:
        """Let exactly these finalizers be on an object."""
        body = {"metadata": {"finalizers": list(finalizers) or None}}
        await self.managed.plane.cluster.merge_patch(ref, body, manager=MANAGER)

    async def waits_for(self, *said: str, reason: str = "Waiting") -> str:
        """Wait until the conditions tell all of this; return the message."""

        async def told() -> str:
            held = conditions(await self.managed.itself())
            for each in ("CleanedUp", "Ready"):
                said_of = held.get(each, {})
                assert (said_of.get("status"), said_of.get("reason")) == ("False", reason)
            message = held["CleanedUp"]["message"]
            missing = [one for one in said if one not in message]
            assert not missing, (missing, message)
            return str(message)

        return str(await until(told))

    async def ended(self) -> None:
        await until(lambda: gone(self.managed.itself()), within=180)

    async def space_is_released(self) -> bool:
        return keys.RELEASED in annotations_of(
            await self.managed.read(NAMESPACE, self.managed.space)
        )

    async def has_let_the_data_go(self) -> bool:
        return await self.data() == ("", "")


@pytest.fixture
async def drill(control_plane, app_cluster, namespace):
    async with managed_scene(control_plane, app_cluster, namespace) as managed:
        yield Drill(managed, StandingClock())


@pytest.fixture
async def lived(drill):
    """An app cluster that was used, and of which nothing is heard any more; a backend is there."""
    async with drill.backend():
        async with drill.konnector():
            await drill.inhabit()
        yield drill


@pytest.mark.parametrize("policy", [pytest.param("", marks=pytest.mark.soak), *POLICIES])
async def test_live_claims_outlive_a_release_and_go_with_a_delete(drill, policy):
    async with drill.backend(), drill.konnector():
        await drill.inhabit()
        data, used = await drill.data(), await drill.used()
        await drill.delete(policy)
        await until(drill.managed.drains)
        assert await drill.data() == data
        drill.clock.put_forward(DRAIN_TIMEOUT)
        if policy == "Delete":
            await drill.waits_for(f"(finalizers: {keys.DRAIN})")
            assert (await drill.data(), await drill.used()) == (data, used)
            await drill.stop_using()
        await drill.ended()
        if policy == "Delete":
            await until(drill.has_let_the_data_go)
            assert await read(drill.managed.app, CRD, "", drill.managed.offer.name) is None
            login = drill.managed.app_namespace, "orders-login"
            assert await read(drill.managed.app, SECRET, *login) is None
            assert await drill.managed.read(NAMESPACE, drill.managed.space) is None
            return
    assert (await drill.data(), await drill.used()) == (data, used)
    assert await drill.space_is_released()
    home = await drill.managed.read(NAMESPACE, drill.managed.service_namespace)
    assert not is_deleting(home)


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_app_cluster_that_is_gone_for_good_is_waited_for_until_somebody_forces_it(
    lived, policy
):
    """Our konnector had begun to let go, so its finalizer is on the binding."""
    data = await lived.data()
    await lived.delete(policy)
    await until(lived.managed.drains)
    await lived.hold(lived.binding, keys.DRAIN)
    lived.clock.put_forward(DRAIN_TIMEOUT)
    what = f"APIServiceBinding {lived.managed.offer.name} still exists"
    await lived.waits_for(f"{what} (finalizers: {keys.DRAIN}).")

    lived.clock.put_forward(DEADLINE)
    late = {"reason": "DeadlineExceeded"}
    await lived.waits_for(
        what, f"annotate this AppClusterBinding with {keys.FORCE_CLEANUP}=true", **late
    )
    lived.clock.put_forward(3 * api.INTERVAL)
    await lived.waits_for(what, "The konnector's last heartbeat was at", **late)
    assert await lived.data() == data
    assert await lived.managed.export() is not None

    await lived.annotate(keys.FORCE_CLEANUP, "true")
    await lived.ended()
    if policy == "Delete":
        await until(lived.has_let_the_data_go)
        return
    assert await lived.data() == data
    assert await lived.space_is_released()


async def test_a_konnector_that_was_silent_for_long_is_not_waited_for(lived):
    data = await lived.data()
    lived.clock.put_forward(3 * api.INTERVAL)
    await lived.delete()
    await lived.ended()
    assert await lived.data() == data
    assert await lived.space_is_released()


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_finalizer_of_others_is_named_and_left_to_them(lived, policy):
    data = await lived.data()
    await lived.hold(lived.binding, STUCK)
    await lived.delete(policy)
    await until(lived.managed.drains)
    lived.clock.put_forward(DRAIN_TIMEOUT)
    await lived.waits_for(f"APIServiceBinding {lived.managed.offer.name}", STUCK)
    await lived.annotate(keys.FORCE_CLEANUP, "true")
    lived.clock.put_forward(DEADLINE)
    await lived.waits_for(STUCK, "look at what holds these objects", reason="DeadlineExceeded")
    assert await lived.data() == data

    await lived.hold(lived.binding)
    await lived.ended()
    if policy == "Delete":
        await until(lived.has_let_the_data_go)
        return
    assert await lived.data() == data


async def test_a_space_that_does_not_go_is_told_with_what_holds_it(lived):
    managed: Managed = lived.managed
    export = Ref(managed.plane.name, api.API_SERVICE_EXPORT, managed.space, managed.offer.name)
    await lived.hold(export, STUCK)
    await lived.delete("Delete")
    await until(managed.drains)
    lived.clock.put_forward(DRAIN_TIMEOUT)
    await lived.waits_for(f"Namespace {managed.space} still exists", STUCK)
    lived.clock.put_forward(DEADLINE)
    await lived.waits_for(f"Namespace {managed.space}", STUCK, reason="DeadlineExceeded")
    await lived.hold(export)
    await lived.ended()
    await until(lived.has_let_the_data_go)
