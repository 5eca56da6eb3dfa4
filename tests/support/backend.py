"""The backend `klutch-bind`, run within a test on a real control plane.

All of it but the lease: one backend per control plane at a time is up to the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from bind import program
from bind.settings import Settings
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.loop.clock import Clock, SystemClock
from tests.support.eventually import eventually
from tests.support.faults import Faults
from tests.support.faulty import FaultyCluster

AGENT: Final = "klutch-bind"
USUAL: Final = Settings(
    control_plane_mode=True, konnector_image="registry.example.com/konnector:test"
)


@asynccontextmanager
async def backend(
    way: Connection,
    settings: Settings = USUAL,
    *,
    clock: Clock | None = None,
    faults: Faults | None = None,
) -> AsyncIterator[program.Backend]:
    """Let a backend work for the length of the block, from when it has read everything.

    With `faults` its calls fail on cue. One that dies of them raises SimulatedCrash in a group.
    """
    settings, stop = replace(settings, leader_election=False), asyncio.Event()
    async with KubeCluster(way, agent=AGENT) as real:
        cluster = real if faults is None else FaultyCluster(real, faults)
        made = program.wired(
            settings,
            cluster,
            leases=cluster,
            deployments_served=True,
            lease_namespace="default",
            clock=clock or SystemClock(),
        )
        running = asyncio.create_task(made.manager.run(stop))

        def read() -> bool:
            if running.done():
                running.result()
            return not made.manager.unready()

        try:
            await eventually(read)
            yield made
        finally:
            stop.set()
            await running


def is_idle(made: program.Backend) -> bool:
    """Tell whether no key waits and none is worked on: what is due only later does not count."""
    sums = {metric.name: metric for metric in made.meters.registry.collect()}
    busy = ("workqueue_depth", "klutch_active_workers")
    return not any(sample.value for name in busy for sample in sums[name].samples)
