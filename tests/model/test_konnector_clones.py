"""S9: two konnectors of one space, which a clone of an app cluster brings about."""

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from reconciler.api import CLUSTER_BINDING
from reconciler.controller.leadership import LeaseLost
from reconciler.core import names
from tests.kit.clusters import ModelAudit
from tests.support.bound_scenes import Scene, conditions, gone, remove, until
from tests.support.clusters import LiveCluster
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import AGENT, USUAL, konnector
from tests.support.losses import reported, says
from tests.support.made_again import used
from tests.support.settled import settled

TWO = ("KonnectorActive", "TwoKonnectors")


def cloned(app: LiveCluster, second: LiveCluster) -> None:
    """Let a cluster have all that another one has, as where the keys of its etcd are copied."""
    assert isinstance(app.audit, ModelAudit)
    assert isinstance(second.audit, ModelAudit)
    stores = app.audit.model.store, second.audit.model.store
    for resource, key, _ in list(stores[1].everything()):
        stores[1].put(resource, key, None)
    for resource, key, live in stores[0].everything():
        stores[1].put(resource, key, live)


async def mark(scene: Scene) -> Any:
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    return conditions(live).get("KonnectorActive", {}).get("message", "")


async def test_a_clone_deletes_nothing(scene: Scene, second_app_cluster: LiveCluster) -> None:
    """Both stop, and name both; the one that is left goes on after a minute."""
    clock, clone = ForwardClock(), replace(scene, app=second_app_cluster)
    kind, place = scene.offer.kind, (scene.app_namespace, "orders")
    async with scene.backend(), konnector(scene.app.connection, clock=clock) as first:
        await used(scene)
        await settled(first)
        mine = await mark(scene)
        cloned(scene.app, clone.app)
        settings = replace(USUAL, lease_identity="clone")
        async with konnector(clone.app.connection, settings, clock=clock) as second:
            await remove(clone.app, kind, *place)
            await until(lambda: says(scene, *TWO))
            await settled(first, second)
            event = await until(lambda: reported(scene, TWO[1]))
            assert mine in event["note"]
            assert "clone " in event["note"]
            await scene.patch_instance({"spec": {"size": "9Gi"}})
            for _ in range(12):
                clock.put_forward(timedelta(seconds=10))
                await settled(first, second)
                assert (await scene.copy())["spec"] == {"size": "1Gi"}
            assert await clone.instance() is not None
        for _ in range(9):
            clock.put_forward(timedelta(seconds=10))
            await settled(first)
        await until(lambda: is_changed(scene))
        await until(lambda: says(scene, TWO[0], ""))
        assert await mark(scene) == mine


async def is_changed(scene: Scene) -> bool:
    return bool((await scene.copy())["spec"] == {"size": "9Gi"})


async def test_a_successor_writes_its_mark_once_and_deletes_after_a_while(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await used(scene)
        before = await mark(scene)
        await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
        at = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as running:
            await until(lambda: gone(scene.copy()))
            await settled(running)
            assert await mark(scene) not in ("", before)
            written = [
                one
                for one in scene.plane.audit.writes_since(at, namespace=scene.space)
                if one.resource == CLUSTER_BINDING.plural and AGENT in one.agent
            ]
            assert len(written) <= 2


async def test_one_that_stood_still_while_another_took_over_stops_nobody(scene: Scene) -> None:
    """As between SIGSTOP and SIGCONT: its Lease is another's by then, and it answers nothing."""
    clock = ForwardClock()
    first = replace(USUAL, leader_election=True, lease_identity="first")
    second = replace(first, lease_identity="second")
    async with scene.backend():
        with contextlib.suppress(LeaseLost):
            async with konnector(scene.app.connection, first, clock=clock):
                await used(scene)
                clock.put_forward(timedelta(seconds=20))
        async with konnector(scene.app.connection, second) as running:
            await scene.patch_instance({"spec": {"size": "9Gi"}})
            await until(lambda: is_changed(scene))
            await settled(running)
            assert (await mark(scene)).startswith("second ")
            assert await says(scene, TWO[0], "")
