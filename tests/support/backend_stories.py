"""What befalls a tenant of the backend, act by act, and when each act has come to its end.

A tenant is a set of objects that bear a word of their own, so that a story can be told again
beside what earlier tellings left.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from bind.app_cluster_binding.cleanup import DRAIN_TIMEOUT
from reconciler.api import (
    API_SERVICE_BINDING,
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_NAMESPACE,
    APP_CLUSTER_BINDING,
    CLUSTER_BINDING,
)
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names, refs
from reconciler.core.errors import Missing
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, annotations_of, get_maps, get_text, get_texts
from reconciler.core.refs import Kind, Ref
from reconciler.core.secret import Secret
from reconciler.core.times import format_time
from tests.support import removal
from tests.support.clusters import LiveCluster
from tests.support.forward_clock import ForwardClock
from tests.support.offers import Offer

MANAGER: Final = "tests"
APP: Final = "dev"
ACB: Final = "shop"


class StandingClock(ForwardClock):
    """The time of day stands still until it is put forward; pauses pass as usual.

    So what is to happen after a while does not begin while a slow machine tells what is before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = SystemClock().now()

    def now(self) -> datetime:
        return self._now

    def put_forward(self, by: timedelta) -> None:
        self._now += by
        super().put_forward(by)


@dataclass
class Tenant:
    """A space of default mode, or an AppClusterBinding; both lie where only `word` is."""

    plane: LiveCluster
    offers: tuple[Offer, Offer]
    word: str
    clock: StandingClock = field(default_factory=StandingClock)

    @property
    def team(self) -> str:
        """The namespace of the AppClusterBinding."""
        return f"team-{self.word}"

    @property
    def own_space(self) -> str:
        return f"cluster-{self.word}"

    @property
    def space(self) -> str:
        return names.app_cluster_binding_space(self.team, ACB)

    async def at(self, kind: Kind, name: str, namespace: str = "") -> Any:
        return await self.plane.cluster.get(self._ref(kind, name, namespace))

    async def itself(self) -> Any:
        return await self.at(APP_CLUSTER_BINDING, ACB, self.team)

    async def make(self, manifest: Manifest, kind: Kind) -> None:
        await self.plane.cluster.create(manifest, kind, manager=MANAGER)

    async def patch(
        self, kind: Kind, name: str, namespace: str, body: Manifest, *, subresource: str = ""
    ) -> None:
        ref = self._ref(kind, name, namespace)
        await self.plane.cluster.merge_patch(ref, body, manager=MANAGER, subresource=subresource)

    async def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        await removal.remove(self.plane.cluster, self._ref(kind, name, namespace))

    async def exported(self, space: str, *offers: Offer) -> bool:
        """Return whether exactly these are exported in a space, follow their CRDs, and are granted.

        No request may still be undecided.
        """
        listing = await self.plane.cluster.list(API_SERVICE_EXPORT, namespace=space)
        synced = {
            get_text(one, "metadata", "name")
            for one in listing.items
            if _holds(one, "ProviderInSync")
        }
        requests = await self.plane.cluster.list(API_SERVICE_EXPORT_REQUEST, namespace=space)
        answered = all(get_text(r, "status", "phase") == "Succeeded" for r in requests.items)
        role = await self.at(refs.CLUSTER_ROLE, names.space_cluster_role(space))
        granted = {
            group for rule in get_maps(role, "rules") for group in get_texts(rule, "apiGroups")
        }
        ours = {one.group for one in self.offers}
        wanted = {one.group for one in offers}
        return answered and synced == {one.name for one in offers} and granted & ours == wanted

    async def beat(self, space: str) -> None:
        status: Manifest = {
            "lastHeartbeatTime": format_time(self.clock.now()),
            "heartbeatInterval": "5m0s",
        }
        await self.patch(
            CLUSTER_BINDING, names.CLUSTER_BINDING, space, {"status": status}, subresource="status"
        )

    async def bind(self, *offers: Offer) -> None:
        """Apply the AppClusterBinding, with a konnector that the backend deploys."""
        made = blueprint.app_cluster_binding(
            (self.team, ACB),
            secret=(self.team, "shop-kubeconfig"),
            resources=[one.resource for one in offers],
            konnector={"deploy": True},
            marks=UNMARKED,
        )
        await self.plane.cluster.apply(made, APP_CLUSTER_BINDING, manager=MANAGER, force=True)

    def _ref(self, kind: Kind, name: str, namespace: str) -> Ref:
        return Ref(self.plane.name, kind, namespace, name)


Deed: TypeAlias = Callable[[Tenant], Awaitable[None]]
Goal: TypeAlias = Callable[[Tenant], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Act:
    """What others do, and what the backend must have brought about by the end."""

    deed: Deed
    goal: Goal


async def a_space_asks(tenant: Tenant) -> None:
    space, plane = tenant.own_space, tenant.plane.cluster
    await plane.create(spaces.namespace(space), refs.NAMESPACE, manager=MANAGER)
    made = spaces.cluster_binding(
        space,
        kubeconfig_name=names.KUBECONFIG,
        spec={"providerPrettyName": "Shop Inc"},
        marks=UNMARKED,
    )
    await tenant.make(made, CLUSTER_BINDING)
    await tenant.make(build(API_SERVICE_NAMESPACE, APP, namespace=space), API_SERVICE_NAMESPACE)
    wanted: Manifest = {"resources": [one.resource.wire for one in tenant.offers]}
    kind = API_SERVICE_EXPORT_REQUEST
    await tenant.make(build(kind, "both", namespace=space, spec=wanted), kind)


async def is_served(tenant: Tenant) -> bool:
    space = tenant.own_space
    mapping = await tenant.at(API_SERVICE_NAMESPACE, APP, space)
    mapped = get_text(mapping, "status", "namespace") == names.service_namespace(space, APP)
    return mapped and await tenant.exported(space, *tenant.offers)


async def its_app_namespace_goes(tenant: Tenant) -> None:
    tenant.clock.put_forward(timedelta(hours=2))  # a backend that missed it waits an hour
    await tenant.remove(API_SERVICE_NAMESPACE, APP, tenant.own_space)


async def has_no_service_namespace(tenant: Tenant) -> bool:
    return await tenant.at(refs.NAMESPACE, names.service_namespace(tenant.own_space, APP)) is None


async def an_app_cluster_binds(tenant: Tenant) -> None:
    await tenant.make(spaces.namespace(tenant.team), refs.NAMESPACE)
    made = spaces.kubeconfig_secret(
        tenant.team,
        "shop-kubeconfig",
        content=spaces.kubeconfig(Address("https://app.example:6443", ""), Secret("a.b.c")),
        marks=UNMARKED,
    )
    await tenant.make(made, refs.SECRET)
    await tenant.bind(*tenant.offers)


async def is_bound(tenant: Tenant) -> bool:
    return await _binds(tenant, *tenant.offers)


async def one_service_leaves(tenant: Tenant) -> None:
    await tenant.bind(tenant.offers[0])


async def binds_the_other(tenant: Tenant) -> bool:
    return await _binds(tenant, tenant.offers[0])


async def it_is_deleted_with_its_data(tenant: Tenant) -> None:
    notes = {keys.DELETION_POLICY: "Delete"}
    body: Manifest = {"metadata": {"annotations": notes}}
    await tenant.patch(APP_CLUSTER_BINDING, ACB, tenant.team, body)
    await tenant.remove(APP_CLUSTER_BINDING, ACB, tenant.team)


async def nothing_is_left(tenant: Tenant) -> bool:
    role = await tenant.at(refs.CLUSTER_ROLE, names.space_cluster_role(tenant.space))
    space = await tenant.at(refs.NAMESPACE, tenant.space)
    return await tenant.itself() is None and space is None and role is None


async def its_konnector_lives(tenant: Tenant) -> None:
    made = build(API_SERVICE_NAMESPACE, APP, namespace=tenant.space)
    await tenant.make(made, API_SERVICE_NAMESPACE)
    await tenant.beat(tenant.space)


async def is_healthy(tenant: Tenant) -> bool:
    binding = await tenant.at(CLUSTER_BINDING, names.CLUSTER_BINDING, tenant.space)
    mapping = await tenant.at(API_SERVICE_NAMESPACE, APP, tenant.space)
    return _holds(binding, "Healthy") and get_text(mapping, "status", "namespace") != ""


async def it_is_deleted(tenant: Tenant) -> None:
    await tenant.remove(APP_CLUSTER_BINDING, ACB, tenant.team)


async def the_konnector_may_let_go(tenant: Tenant) -> bool:
    bindings = [await tenant.at(API_SERVICE_BINDING, o.name, tenant.space) for o in tenant.offers]
    reported = any(
        (one["type"], one.get("reason")) == ("CleanedUp", "Waiting")
        for one in get_maps(await tenant.itself(), "status", "conditions")
    )
    return reported and all(keys.DRAINING in annotations_of(one) for one in bindings)


async def the_konnector_does_not(tenant: Tenant) -> None:
    tenant.clock.put_forward(DRAIN_TIMEOUT)


async def is_released(tenant: Tenant) -> bool:
    space = await tenant.at(refs.NAMESPACE, tenant.space)
    return await tenant.itself() is None and keys.RELEASED in annotations_of(space)


STORIES: Final = {
    "a space and its app namespace": (
        Act(a_space_asks, is_served),
        Act(its_app_namespace_goes, has_no_service_namespace),
    ),
    "an app cluster, deleted with its data": (
        Act(an_app_cluster_binds, is_bound),
        Act(one_service_leaves, binds_the_other),
        Act(it_is_deleted_with_its_data, nothing_is_left),
    ),
    "an app cluster, released": (
        Act(an_app_cluster_binds, is_bound),
        Act(its_konnector_lives, is_healthy),
        Act(it_is_deleted, the_konnector_may_let_go),
        Act(the_konnector_does_not, is_released),
    ),
}


@asynccontextmanager
async def tenancy(
    plane: LiveCluster, offers: tuple[Offer, Offer], word: str
) -> AsyncIterator[Tenant]:
    """Yield a tenant of whom nothing is there yet; at the end all of it begins to go."""
    tenant = Tenant(plane, offers, word)
    try:
        yield tenant
    finally:
        with suppress(Missing):
            nothing: Manifest = {"metadata": {"finalizers": None}}
            await tenant.patch(APP_CLUSTER_BINDING, ACB, tenant.team, nothing)
        homes = [names.service_namespace(one, APP) for one in (tenant.own_space, tenant.space)]
        for name in (tenant.team, tenant.own_space, tenant.space, *homes):
            await tenant.remove(refs.NAMESPACE, name)


async def _binds(tenant: Tenant, *offers: Offer) -> bool:
    space, live = tenant.space, await tenant.itself()
    listing = await tenant.plane.cluster.list(API_SERVICE_BINDING, namespace=space)
    bound = {get_text(one, "metadata", "name") for one in listing.items}
    deployment = await tenant.at(refs.DEPLOYMENT, names.konnector_deployment(ACB), space)
    complete = deployment is not None and bound == {one.name for one in offers}
    return complete and _holds(live, "SecretValid") and await tenant.exported(space, *offers)


def _holds(live: Manifest | None, condition: str) -> bool:
    found = get_maps(live, "status", "conditions")
    return any((one.get("type"), one.get("status")) == (condition, "True") for one in found)
