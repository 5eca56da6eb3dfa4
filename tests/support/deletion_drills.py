"""An app cluster that was used, of which the AppClusterBinding is deleted."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from reconciler import api
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from tests.support import bound_scenes
from tests.support.backend import USUAL
from tests.support.backend_stories import StandingClock

DEADLINE = timedelta(minutes=5)  # while the last heartbeat still counts
STUCK = "someone.example/stuck"


@dataclass
class Drill:
    """An app cluster with an instance and its credentials, both carried by a konnector."""

    managed: bound_scenes.Managed
    clock: StandingClock

    @property
    def binding(self) -> Ref:
        managed = self.managed
        return Ref(managed.plane.name, api.API_SERVICE_BINDING, managed.space, managed.offer.name)

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
        await bound_scenes.until(lambda: bound_scenes.says(managed.export(), "Connected"))
        await bound_scenes.until(lambda: bound_scenes.served(managed.app, kind))
        made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
        await bound_scenes.new(managed.app, made, kind, manager="developer")
        await bound_scenes.until(lambda: managed.read(kind, "orders", managed.service_namespace))
        credentials = bound_scenes.secret("orders-login", managed.service_namespace)
        await managed.plane.cluster.create(credentials, SECRET, manager="provider")
        await bound_scenes.until(
            lambda: bound_scenes.read(managed.app, SECRET, managed.app_namespace, "orders-login")
        )
        await bound_scenes.until(
            lambda: bound_scenes.says(managed.read(api.CLUSTER_BINDING, "cluster"), "Healthy")
        )

    async def data(self) -> tuple[str, str]:
        """Return the uids of the instance's copy and of its credentials, "" for what is gone."""
        managed, place = self.managed, self.managed.service_namespace
        copy = await managed.read(managed.offer.kind, "orders", place)
        credentials = await managed.read(SECRET, "orders-login", place)
        return uid_of(copy or {}), uid_of(credentials or {})

    async def used(self) -> tuple[str, str]:
        """Return the uids of what the app cluster's applications run on."""
        managed, place = self.managed, self.managed.app_namespace
        instance = await bound_scenes.read(managed.app, managed.offer.kind, place, "orders")
        credentials = await bound_scenes.read(managed.app, SECRET, place, "orders-login")
        return uid_of(instance or {}), uid_of(credentials or {})

    async def stop_using(self) -> None:
        """Delete the instance, as its developer does."""
        managed = self.managed
        await bound_scenes.remove(managed.app, managed.offer.kind, managed.app_namespace, "orders")

    async def delete(self, policy: str = "") -> None:
        if policy:
            await self.annotate(keys.DELETION_POLICY, policy)
        managed = self.managed
        await bound_scenes.remove(managed.plane, api.APP_CLUSTER_BINDING, managed.namespace, "shop")

    async def annotate(self, key: str, value: str) -> None:
        ref = Ref(self.managed.plane.name, api.APP_CLUSTER_BINDING, self.managed.namespace, "shop")
        body = {"metadata": {"annotations": {key: value}}}
        await self.managed.plane.cluster.merge_patch(ref, body, manager=bound_scenes.MANAGER)

    async def hold(self, ref: Ref, *finalizers: str) -> None:
        body = {"metadata": {"finalizers": list(finalizers) or None}}
        await self.managed.plane.cluster.merge_patch(ref, body, manager=bound_scenes.MANAGER)

    async def waits_for(self, *said: str, reason: str = "Waiting") -> str:
        """Wait until the conditions tell all of this; return the message."""

        async def reported() -> str:
            held = bound_scenes.conditions(await self.managed.itself())
            for each in ("CleanedUp", "Ready"):
                said_of = held.get(each, {})
                assert (said_of.get("status"), said_of.get("reason")) == ("False", reason)
            message = held["CleanedUp"]["message"]
            missing = [one for one in said if one not in message]
            assert not missing, (missing, message)
            return str(message)

        return str(await bound_scenes.until(reported))

    async def ended(self) -> None:
        await bound_scenes.until(lambda: bound_scenes.gone(self.managed.itself()), within=180)

    async def space_is_released(self) -> bool:
        return keys.RELEASED in annotations_of(
            await self.managed.read(NAMESPACE, self.managed.space)
        )

    async def has_let_the_data_go(self) -> bool:
        return await self.data() == ("", "")


@pytest.fixture
async def drill(control_plane, app_cluster, namespace):
    async with bound_scenes.managed_scene(control_plane, app_cluster, namespace) as managed:
        yield Drill(managed, StandingClock())


@pytest.fixture
async def lived(drill):
    """An app cluster that was used, and of which nothing is heard any more; a backend is there."""
    async with drill.backend():
        async with drill.konnector():
            await drill.inhabit()
        yield drill
