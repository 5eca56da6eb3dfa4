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
from tests.support.eventually import eventually

USUAL: Final = Settings(
    control_plane_mode=True, konnector_image="registry.example.com/konnector:test"
)


@asynccontextmanager
async def backend(way: Connection, settings: Settings = USUAL) -> AsyncIterator[program.Backend]:
    """Let a backend work for the length of the block, from when it has read everything."""
    settings, stop = replace(settings, leader_election=False), asyncio.Event()
    async with KubeCluster(way, agent="klutch-bind") as cluster:
        made = program.wired(
            settings, cluster, leases=cluster, deployments_served=True, lease_namespace="default"
        )
        running = asyncio.create_task(made.manager.run(stop))

        async def read() -> bool:
            if running.done():
                running.result()
            return not made.manager.unready()

        try:
            await eventually(read)
            yield made
        finally:
            stop.set()
            await running
