"""S1: what a space left is nobody's who has its name later, live: neither rights nor data."""

import base64
import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from bind.settings import Settings
from reconciler.api import API_SERVICE_NAMESPACE, APP_CLUSTER_BINDING
from reconciler.blueprints.objects import UNMARKED, app_cluster_binding, build
from reconciler.core import conditions, keys, names
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest, get_text, uid_of
from reconciler.core.refs import NAMESPACE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT, Ref
from reconciler.kube.client import KubeCluster
from tests.support import kubeconfigs, removal
from tests.support.accounts import with_token
from tests.support.backend import USUAL, backend, idle
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.offers import offered
from tests.support.removal import remove
from tests.support.served_spaces import APP, AppCluster, Space, a_space, filled, gone, place_of

HASHED = replace(USUAL, hashed_names=True)
FORMS = {
    f"{called} names, klutch-bind {doing}": (settings, away)
    for called, settings in (("plain", USUAL), ("hashed", HASHED))
    for doing, away in (("at work", False), ("away", True))
}


async def data(space: Space, home: str, mark: str) -> Ref:
    """Make what holds a tenant's data, and return it."""
    metadata: Manifest = {"annotations": {mark: "true"}, "name": "orders-creds", "namespace": home}
    ref = Ref(space.cluster.name, SECRET, home, "orders-creds")
    made = {**build(SECRET, ref.name), "metadata": metadata, "stringData": {"a": "of-tenant-1"}}
    await space.cluster.create(made, SECRET, manager="tests")
    return ref


async def reads(live: LiveCluster, space: Space, ref: Ref) -> bool:
    token = base64.b64decode(await space.token()).decode()
    async with KubeCluster(with_token(live.connection, token)) as cluster:
        try:
            return await cluster.get(ref) is not None
        except ClusterError:
            return False


async def absent(space: Space, ref: Ref) -> None:
    async def is_gone() -> bool:
        return await space.at(ref) is None

    await eventually(is_gone)


@pytest.mark.parametrize(("settings", "away"), FORMS.values(), ids=FORMS)
async def test_the_next_space_of_a_name_gets_nothing(
    control_plane: LiveCluster, namespace: str, settings: Settings, away: bool
) -> None:
    cluster = control_plane.cluster
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as space,
        AsyncExitStack() as after,
    ):
        place = space.everywhere(NAMESPACE, space.name)
        async with AsyncExitStack() as working:
            await working.enter_async_context(backend(control_plane.connection, settings))
            home = await place_of(space, APP)
            after.push_async_callback(removal.remove, cluster, space.everywhere(NAMESPACE, home))
            secret = await data(space, home, keys.BOUND if away else keys.RELEASED)
            assert await eventually(lambda: reads(control_plane, space, secret))
            former = uid_of(await space.at(place))
            if away:
                await working.aclose()
            await removal.remove(cluster, place)
            await absent(space, place)
            if not away:  # rights go first
                await absent(space, Ref(cluster.name, ROLE_BINDING, home, names.BINDER))
            await filled(space)
            if away:
                await working.enter_async_context(backend(control_plane.connection, settings))

            async def refused() -> bool:
                said = conditions.get(
                    await space.at(space.binding), conditions.SERVICE_NAMESPACES_READY
                )
                line = f"{keys.CONFIRM_SPACE}={former}"
                return said is not None and line in said.message

            await eventually(refused)
            await space.has(space.role)
            await space.has(space.in_space)
            assert not await reads(control_plane, space, secret)
            mapping = await space.at(space.ref(API_SERVICE_NAMESPACE, APP))
            assert get_text(mapping, "status", "namespace") == ""
            # Unless a person says that it is the same tenant.
            notes: Manifest = {"metadata": {"annotations": {keys.CONFIRM_SPACE: former}}}
            await space.patch(place, notes)
            assert await place_of(space, APP) == home
            assert await eventually(lambda: reads(control_plane, space, secret))


async def test_another_app_cluster_binding_with_the_name_of_a_space(
    control_plane: LiveCluster, namespace: str
) -> None:
    """`a/b-c` had the space that `a-b/c` names now, while it is there, and when it is gone."""
    cluster, team = control_plane.cluster, f"{namespace}-b"
    async with offered(cluster, namespace=namespace) as offer, backend(control_plane.connection):
        name = names.app_cluster_binding_space(team, "shop")
        space = Space(cluster, name, offer)
        victim = Ref(cluster.name, APP_CLUSTER_BINDING, namespace, "b-shop")
        attacker = AppCluster(space, team)
        place = space.everywhere(NAMESPACE, name)
        try:
            await bound(space, victim)
            await space.has(space.in_space)
            await space.make(API_SERVICE_NAMESPACE, APP, spec={})
            home = await place_of(space, APP)
            await data(space, home, keys.RELEASED)
            await removal.remove(cluster, victim)
            await absent(space, victim)
            await cluster.create(build(NAMESPACE, team), NAMESPACE, manager="tests")
            await bound(space, attacker.ref)
            await says(space, attacker.ref, "BindingSpaceTaken")
            await removal.remove(cluster, place)
            await says(space, attacker.ref, "BindingSpaceLeftOvers")
            assert await space.at(space.ref(SERVICE_ACCOUNT, names.BINDER)) is None
        finally:
            await removal.remove(cluster, attacker.ref)
            for one in (space.home, name, team):
                await removal.remove(cluster, space.everywhere(NAMESPACE, one))
            await gone(cluster, place)


async def bound(space: Space, ref: Ref) -> None:
    """Make an AppClusterBinding beside its kubeconfig."""
    source = build(SECRET, "shop-kubeconfig", namespace=ref.namespace)
    data = {names.KUBECONFIG: kubeconfigs.text(kubeconfigs.document(user={"token": "t"})).decode()}
    await space.cluster.apply({**source, "stringData": data}, SECRET, manager="tests", force=True)
    made = app_cluster_binding(
        (ref.namespace, ref.name),
        secret=(ref.namespace, "shop-kubeconfig"),
        resources=[space.offer.resource],
        konnector={"deploy": False},
        marks=UNMARKED,
    )
    await space.cluster.create(made, APP_CLUSTER_BINDING, manager="tests")


async def says(space: Space, ref: Ref, reason: str) -> None:
    async def said() -> bool:
        found = conditions.of(await space.at(ref))
        return any(one.reason == reason for one in found)

    await eventually(said)


ENDING = 40
KINDS = 60


async def test_ended_app_namespaces_of_one_tenant_delay_no_other(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with AsyncExitStack() as stack:
        offer = await stack.enter_async_context(offered(cluster, namespace=namespace))
        for _ in range(KINDS - 1):  # each has a template, so that each may have copies anywhere
            await stack.enter_async_context(offered(cluster, namespace=namespace))
        ending = await stack.enter_async_context(a_space(cluster, offer))
        names = [f"n{n}" for n in range(ENDING)]
        for name in names:
            await ending.make(API_SERVICE_NAMESPACE, name)
        made = await stack.enter_async_context(backend(control_plane.connection))
        places = [await place_of(ending, name) for name in names]
        await idle(made)
        for name in names:
            await remove(cluster, ending.ref(API_SERVICE_NAMESPACE, name))
        began = time.monotonic()
        other = await stack.enter_async_context(a_space(cluster, offer))
        await other.has(other.export)
        await place_of(other, "dev")
        assert time.monotonic() - began < 2

        async def gone() -> bool:
            live = [await cluster.get(ending.everywhere(NAMESPACE, one)) for one in places]
            return not any(live)

        await eventually(gone, within=120)
