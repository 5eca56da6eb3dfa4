"""klutch-osb that serves compositions, with the rights of bind/deploy/osb-dataservices."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import pytest

from bind.osb.dataservices import managed as kinds
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from tests.support import deployed
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.forward_clock import ForwardClock
from tests.support.osb_backup_manager import BackupManager
from tests.support.osb_compositions import BACKUP_MANAGER, BROKER, Compositions
from tests.support.osb_rights import given, shipped
from tests.support.osb_script import ServedBroker, scripted


@asynccontextmanager
async def composed(
    plane: LiveCluster, namespace: str, *, namespaced: bool = False
) -> AsyncIterator[Compositions]:
    """Make the kinds of compositions, with a broker and a backup manager behind them."""
    with scripted() as broker, backup_manager(broker) as manager:
        front = Compositions(plane, namespace, f"{namespace}-", namespaced)
        if namespaced:
            await front.uninstall()
        await front.install()
        for name, server in ((BROKER, broker), (BACKUP_MANAGER, manager), ("other", broker)):
            kind = {"serviceType": "backupmanager"} if server is manager else {}
            await front.configure(name, server.url, server.user, server.password, **kind)
        try:
            yield front
        finally:
            for name in (BROKER, BACKUP_MANAGER, "other"):
                await front.delete(kinds.PROVIDER_CONFIG, name)
            if namespaced:
                await front.uninstall()
    assert (broker.violations, manager.violations) == ([], [])


@contextmanager
def backup_manager(broker: ServedBroker) -> Iterator[BackupManager]:
    made = BackupManager(lambda instance: instance in broker.inventory.instances)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("namespaced", [False, True], ids=["claims", "namespaced"])
async def test_compositions_need_these_rights_beside_and_no_other(
    control_plane, namespace, namespaced
):
    made = shipped(deployed.DATASERVICES)
    async with composed(control_plane, namespace, namespaced=namespaced) as front:
        async with (
            deployed.installed(front.plane.cluster, front.plane.connection, made) as way,
            deployed.heard(way) as (heard, hearing),
            hurried() as clock,
            front.program(clock=clock, way=heard),
        ):
            await all_four_live(front)
        assert hearing.refused() == set()
    beside = [one for one in made if manifest.name_of(one) == "klutch-osb-dataservices"]
    assert given(beside)
    assert given(beside) - hearing.used() == set()


@asynccontextmanager
async def hurried() -> AsyncIterator[ForwardClock]:
    """Let the time between two polls pass in a fraction of it."""
    clock = ForwardClock()

    async def hurry() -> None:
        while True:
            await asyncio.sleep(0.2)
            clock.put_forward(timedelta(seconds=5))

    hurrying = asyncio.create_task(hurry())
    try:
        yield clock
    finally:
        hurrying.cancel()
        await asyncio.wait({hurrying})


async def all_four_live(front: Compositions) -> None:
    """Make an instance, a binding, a backup and a restore; rotate; change the way; delete all."""
    await front.instance()
    await front.binding()
    await front.make(kinds.BACKUP, {"instanceName": "orders"})
    await front.make(kinds.RESTORE, {"backupName": "orders"})
    managed = (kinds.RESTORE, kinds.BACKUP, kinds.SERVICE_BINDING, kinds.SERVICE_INSTANCE)
    for kind in managed:
        await front.ready(kind)
    before = await front.credentials()
    await front.annotate(kinds.SERVICE_BINDING, keys.OSB_ROTATE, "1")

    async def rotated():
        return await front.credentials() not in (before, {})

    await eventually(rotated)
    other: Manifest = {"spec": {"providerConfigRef": {"name": front.named("other")}}}
    await front.change(kinds.SERVICE_INSTANCE, other)

    async def used():
        live = await front.read(kinds.PROVIDER_CONFIG, "other")
        return manifest.get(live, "status", "users") == 1

    await eventually(used)
    await front.end(*managed)
