"""The lock of a run whose control plane takes calls only slowly."""

import asyncio
import contextlib
from datetime import UTC, datetime

from reconciler.apply.lock import Lock
from reconciler.controller.fence import WriteFence
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.limits import Limits


def lock_of(cluster, holder):
    return Lock(cluster, "busy-fleet", holder=holder, now=lambda: datetime.now(UTC))


async def test_a_lock_does_not_wait_behind_the_work_that_it_guards(control_plane, namespace):
    async with lock_of(control_plane.cluster, "before").held(WriteFence(), break_it=False):
        pass  # the lease exists from now on
    slow = Limits(qps=0.001, burst=1, concurrency=1)
    async with KubeCluster(control_plane.connection, limits=slow) as busy, asyncio.timeout(60):
        anything = Ref(busy.name, CONFIG_MAP, namespace, "anything")
        await busy.get(anything)
        waiting = asyncio.ensure_future(busy.get(anything))
        async with lock_of(busy, "busy").held(WriteFence(), break_it=False):
            assert not waiting.done()
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
