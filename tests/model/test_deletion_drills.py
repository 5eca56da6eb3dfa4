"""An AppClusterBinding is deleted while something is in the way.

No data goes unless the policy says so, and its conditions tell what is waited for.
"""

import pytest

from bind.app_cluster_binding.cleanup import DRAIN_TIMEOUT
from reconciler import api
from reconciler.core import keys
from reconciler.core.manifest import is_deleting
from reconciler.core.refs import CRD, NAMESPACE, SECRET
from tests.support.bound_scenes import read, until
from tests.support.deletion_drills import DEADLINE, STUCK, drill, lived

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
