"""The konnector, run within a test between real clusters.

Usually all of it but the lease: one konnector per app cluster or space at a time is up to the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from konnector import APP_CLUSTER, CONTROL_PLANE, program
from konnector.kubeconfig import app_cluster
from konnector.kubeconfig.connections import RotatingCluster
from konnector.settings import ControlPlaneMode, Settings
from reconciler.controller.program import Term
from reconciler.controller.tasks import Clock, SystemClock
from reconciler.core import names
from reconciler.core.errors import ConfigError
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from reconciler.kube.limits import Limits
from tests.support.eventually import working
from tests.support.faults import Faults, FaultyCluster

AGENT: Final = "konnector"
USUAL: Final = Settings(
    lease_identity="test", lease_namespace=names.KLUTCH_NAMESPACE, leader_election=False
)
_RESTART: Final = 0.1  # seconds
_LIMITS: Final = Limits(qps=2000, burst=4000, concurrency=512)


@asynccontextmanager
async def konnector(
    home: Connection,
    settings: Settings = USUAL,
    *,
    clock: Clock | None = None,
    faults: Faults | None = None,
) -> AsyncIterator[Term]:
    """Let a konnector work for the length of the block, from when it has read its bindings.

    `home` leads to the app cluster, in control-plane mode to the control plane. With `faults` its
    calls to both clusters fail on cue.
    """
    clock = clock or SystemClock()
    mode = settings.control_plane_mode
    async with AsyncExitStack() as opened:
        way = replace(home, name=APP_CLUSTER if mode is None else CONTROL_PLANE)
        real = await opened.enter_async_context(KubeCluster(way, limits=_LIMITS, agent=AGENT))
        cluster = _faulty(real, faults)
        app: Cluster = cluster
        in_use = None
        if mode is None:
            kind = await program.served_bindings(real, clock)
        else:
            connect = partial(program.connect, limits=_LIMITS, networks=settings.networks)
            there, in_use = await app_cluster.working(real, mode, connect, clock)
            app = await opened.enter_async_context(RotatingCluster(_faulty(there, faults)))
            kind = await program.discovered_bindings(real, clock)
        made = program.wired(
            settings, cluster, app, leases=real, kind=kind, clock=clock, in_use=in_use
        )
        async with working(made.manager):
            yield made


@asynccontextmanager
async def beside_control_plane(
    plane: Connection, space: str, secret: str, *, clock: Clock | None = None
) -> AsyncIterator[list[Term]]:
    """Let a konnector work in control-plane mode, as its Deployment would; it is listed then.

    It is started again and again until the Secret with the app cluster's kubeconfig is there.
    """
    stop, settings, running = asyncio.Event(), in_space(space, secret), list[Term]()

    async def keep_running() -> None:
        while not stop.is_set():
            try:
                async with konnector(plane, settings, clock=clock) as made:
                    running.append(made)
                    await stop.wait()
            except ConfigError:
                await asyncio.sleep(_RESTART)

    keeping = asyncio.create_task(keep_running())
    try:
        yield running
    finally:
        stop.set()
        await keeping


def in_space(space: str, secret: str) -> Settings:
    """Return the settings of a konnector that runs beside the control plane."""
    return replace(
        USUAL,
        control_plane_mode=ControlPlaneMode(
            space=space, secret_namespace=space, secret_name=secret
        ),
        lease_namespace=space,
    )


def _faulty(cluster: Cluster, faults: Faults | None) -> Cluster:
    return cluster if faults is None else FaultyCluster(cluster, faults)
