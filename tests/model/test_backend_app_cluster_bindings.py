"""The backend serves AppClusterBindings, whole, also those whose deletion is blocked."""

import pytest

from bind.app_cluster_binding.cleanup import DRAIN_TIMEOUT
from reconciler import api
from reconciler.api import API_SERVICE_EXPORT_REQUEST, APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints.objects import Marks
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest, get_text, is_deleting
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Ref
from reconciler.kube import crds
from tests.support import losses
from tests.support.backend import AGENT, backend, idle
from tests.support.backend_stories import StandingClock
from tests.support.bound_scenes import (
    MANAGER,
    Managed,
    conditions,
    gone,
    new,
    read,
    remove,
    says,
    served,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.cues import Delay
from tests.support.deletion_drills import DEADLINE, STUCK, drill, lived
from tests.support.eventually import eventually
from tests.support.faults import Events, Faults, Meanwhile, on
from tests.support.offers import Offer, offered, publish_template
from tests.support.served_spaces import a_space, flood


async def test_nothing_is_decided_twice_while_the_view_lags(managed: Managed) -> None:
    """What was written counts before a watch tells of it: no write is refused for being late."""
    late = Faults()
    for reported in range(50):
        late.add(on("watch", kind=APP_CLUSTER_BINDING), Delay(0.5), at=Events(reported))
    mark = managed.plane.audit.mark()
    async with backend(managed.plane.connection, faults=late) as made:
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "Ready"))
        await until(managed.answered)
        await idle(made)
    audit = managed.plane.audit
    itself = managed.namespace, APP_CLUSTER_BINDING.plural
    await eventually(lambda: itself not in audit.conflicts_since(mark, AGENT))


async def test_a_living_konnector_gets_time_to_let_go_first(managed: Managed) -> None:
    clock = StandingClock()
    async with managed.backend(clock=clock):
        async with managed.konnector(clock=clock):
            await managed.make_secret()
            await managed.apply(managed.offer.resource)
            await until(lambda: says(managed.export(), "Connected"))
            await until(lambda: says(managed.read(CLUSTER_BINDING, "cluster"), "Healthy"))
        # It counts as living until its next heartbeat is overdue, and does nothing meanwhile.
        await managed.apply()
        await until(managed.drains)
        await until(lambda: says(managed.itself(), "APIServiceBindingsReady", "False", "Draining"))
        assert not manifest.is_deleting(await managed.binding())
        assert await managed.export() is not None

        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "APIServiceBindingsReady"))
        await until(lambda: is_kept(managed))

        await managed.apply()
        await until(managed.drains)
        clock.put_forward(DRAIN_TIMEOUT)
        await until(lambda: gone(managed.binding()))
        async with managed.konnector(clock=clock):
            await until(lambda: gone(managed.export()))


async def is_kept(managed: Managed) -> bool:
    return not await managed.drains()


async def test_an_api_export_lacks_a_template(managed: Managed, namespace: str) -> None:
    plane, app = managed.plane.cluster, managed.app.cluster
    bound, reason = "APIServiceBindingsReady", "APIServiceExportTemplateNotFound"
    async with (
        managed.backend(),
        offered(plane, app, namespace=namespace, template=False) as untold,
    ):
        await managed.make_secret()
        await managed.apply(untold.resource, managed.offer.resource)
        await until(managed.export)
        await until(lambda: says(managed.itself(), bound, "False", reason))
        assert untold.name in conditions(await managed.itself())[bound]["message"]
        assert await managed.binding(untold) is None
        await publish_template(plane, untold, namespace=namespace)
        await until(lambda: managed.export(untold))
        await until(lambda: says(managed.itself(), bound))


async def test_a_konnector_gets_no_more_than_is_listed(managed: Managed) -> None:
    """It may ask for what is offered to others, and is told that it cannot have it."""
    plane = managed.plane.cluster
    async with managed.backend(), offered(plane, namespace=managed.namespace) as other:
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "Ready"))
        for resource in (other.resource, managed.offer.resource):
            made = blueprint.export_request(managed.space, resource, parameters={}, marks=Marks())
            await plane.create(made, API_SERVICE_EXPORT_REQUEST, manager="a konnector")

        def asked(offer: Offer):
            return managed.read(API_SERVICE_EXPORT_REQUEST, offer.name)

        await until(lambda: says(asked(other), "ExportsReady", "False", "NotListed"))
        await until(lambda: says(asked(managed.offer), "ExportsReady"))
        assert await managed.export(other) is None

        await managed.apply(managed.offer.resource, other.resource)
        await until(lambda: says(asked(other), "ExportsReady"))
        assert await managed.export(other) is not None


async def test_who_has_left_gets_nothing_more(managed: Managed) -> None:
    """Whoever still holds the konnector's token asks again for what was let go."""
    plane, kind = managed.plane.cluster, API_SERVICE_EXPORT_REQUEST
    async with managed.backend():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "Ready"))
        await remove(managed.plane, APP_CLUSTER_BINDING, managed.namespace, "shop")
        await until(lambda: gone(managed.itself()))
        resource = managed.offer.resource
        made = blueprint.export_request(managed.space, resource, parameters={}, marks=Marks())
        await plane.create(made, kind, manager="a konnector")
        asked = managed.offer.name
        await until(lambda: says(managed.read(kind, asked), "ExportsReady", "False", "NotListed"))
        assert await managed.export() is None


async def test_what_was_listed_during_a_look_is_not_taken_away(managed: Managed) -> None:
    """An export that follows from the new list is there before the look at the old one ends."""
    plane, faults, exports = managed.plane.cluster, Faults(), list[Manifest]()
    async with (
        offered(plane, namespace=managed.namespace) as other,
        backend(managed.plane.connection, faults=faults),
    ):

        async def list_another() -> None:
            await managed.apply(managed.offer.resource, other.resource)
            space, kind = managed.space, API_SERVICE_EXPORT_REQUEST
            made = blueprint.export_request(space, other.resource, parameters={}, marks=Marks())
            await plane.create(made, kind, manager="a konnector")
            await until(lambda: says(managed.read(kind, other.name), "ExportsReady"))
            exports.append(await managed.export(other))

        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "Ready"))
        looks = on("list", kind=SECRET, namespace=managed.space)
        faults.add(looks.nth(1), Meanwhile(list_another))
        ref = Ref(managed.plane.name, APP_CLUSTER_BINDING, managed.namespace, "shop")
        note: Manifest = {"metadata": {"annotations": {"note": "look again"}}}
        await plane.merge_patch(ref, note, manager=MANAGER)
        await until(lambda: managed.binding(other))
        assert manifest.uid_of(await managed.export(other)) == manifest.uid_of(exports[0])


@pytest.mark.parametrize("policy", ["Release", "Delete"])
async def test_a_deleted_one_lets_go_in_order(managed: Managed, policy: str) -> None:
    clock, kind = StandingClock(), managed.offer.kind
    async with managed.backend(clock=clock), managed.konnector(clock=clock):
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.export(), "Connected"))
        await until(lambda: served(managed.app, kind))
        made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
        await new(managed.app, made, kind, manager="developer")
        await until(lambda: managed.read(kind, "orders", managed.service_namespace))
        await until(lambda: says(managed.read(CLUSTER_BINDING, "cluster"), "Healthy"))

        ref = Ref(managed.plane.name, APP_CLUSTER_BINDING, managed.namespace, "shop")
        await losses.note(managed.plane, ref, keys.DELETION_POLICY, policy)
        await remove(managed.plane, APP_CLUSTER_BINDING, managed.namespace, "shop")
        if policy == "Delete":
            await until(managed.drains)
            await until(lambda: says(managed.itself(), "CleanedUp", "False", "Waiting"))
            message = conditions(await managed.itself())["CleanedUp"]["message"]
            assert f"APIServiceBinding {managed.offer.name}" in message
            assert manifest.annotations_of(await managed.binding())[keys.DELETION_POLICY] == policy
            clock.put_forward(DRAIN_TIMEOUT)
            # Its data goes when it has gone itself; nobody deletes it on the developer's behalf.
            await until(lambda: says(managed.binding(), "Drained", "False", "DrainWaiting"))
            assert await managed.read(kind, "orders", managed.service_namespace) is not None
            await remove(managed.app, kind, managed.app_namespace, "orders")
        await until(lambda: gone(managed.itself()), within=180)

    assert await managed.binding() is None
    space = await managed.read(NAMESPACE, managed.space)
    if policy == "Delete":
        assert space is None
        return
    assert keys.RELEASED in manifest.annotations_of(space)
    assert await managed.export() is None
    assert await managed.read(kind, "orders", managed.service_namespace) is not None


MANY = 1000


async def test_one_tenant_delays_no_other(control_plane: LiveCluster, namespace: str) -> None:
    cluster = control_plane.cluster
    async with offered(cluster, namespace=namespace) as offer, a_space(cluster, offer) as flooding:
        await flood(flooding, MANY)
        async with backend(control_plane.connection), a_space(cluster, offer) as other:
            await other.has(other.export)
            # First come first served, none would be waiting by now.
            listing = await cluster.list(API_SERVICE_EXPORT_REQUEST, namespace=flooding.name)
            phases = [get_text(request, "status", "phase") for request in listing.items]
            assert phases.count("Pending") > MANY / 10


__all__ = ["drill", "lived"]

POLICIES = ("Release", "Delete")


@pytest.mark.parametrize("policy", [pytest.param("", marks=pytest.mark.soak), *POLICIES])
async def test_live_claims_outlive_a_release_and_go_with_a_delete(drill, policy):
    async with drill.backend(), drill.konnector():
        await drill.inhabit()
        data, used = await drill.data(), await drill.used()
        await drill.delete(policy)
        if policy == "Delete":
            await until(drill.managed.drains)
            assert await drill.data() == data
            drill.clock.put_forward(DRAIN_TIMEOUT)
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
async def test_an_app_cluster_that_is_gone_is_waited_for_until_that_is_forced(lived, policy):
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
    way_out = f"annotate this AppClusterBinding with {keys.FORCE_CLEANUP}=true"
    await lived.waits_for(what, way_out, **late)
    lived.clock.put_forward(3 * api.INTERVAL)
    await lived.waits_for(what, "The konnector's last heartbeat was at", **late)
    assert await lived.data() == data
    assert await lived.managed.export() is not None

    await lived.annotate(keys.FORCE_CLEANUP, "true")
    await ends(lived, policy, data)


async def ends(lived, policy, data):
    """Assert that it ends, and its data with it where the policy is Delete."""
    await lived.ended()
    if policy == "Delete":
        await until(lived.has_let_the_data_go)
        return
    assert await lived.data() == data
    assert await lived.space_is_released()


async def test_data_stay_where_the_kind_goes_with_all_that_say_delete(lived):
    data = await lived.data()
    lived.clock.put_forward(3 * api.INTERVAL)
    await lived.annotate(keys.DELETION_POLICY, "Delete")
    await remove(lived.managed.plane, CRD, "", api.APP_CLUSTER_BINDING.resource)
    await until(lived.space_is_released)
    assert await lived.data() == data
    (definition,) = crds.load(api.APP_CLUSTER_BINDING.resource)
    await lived.managed.plane.cluster.create(definition, CRD, manager=MANAGER)


async def test_a_konnector_that_was_silent_for_long_is_not_waited_for(lived):
    data = await lived.data()
    lived.clock.put_forward(3 * api.INTERVAL)
    await lived.delete()
    await ends(lived, "Release", data)


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
    await lived.waits_for(STUCK, "check these objects' finalizers", reason="DeadlineExceeded")
    assert await lived.data() == data

    await lived.hold(lived.binding)
    await ends(lived, policy, data)
