"""The backend `klutch-bind`, run within a test on a real control plane.

Usually all of it but the lease: one backend per control plane at a time is up to the test.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from bind import program
from bind.settings import Settings
from reconciler.controller.program import Term
from reconciler.controller.tasks import Clock, SystemClock
from reconciler.core import names
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support.eventually import working
from tests.support.faults import Faults, FaultyCluster
from tests.support.settled import settled

AGENT: Final = "klutch-bind"
REGISTRY: Final = "registry.example.com"
USUAL: Final = Settings(
    control_plane_mode=True,
    konnector_image=f"{REGISTRY}/konnector:test",
    konnector_image_prefixes=(REGISTRY,),
)


@asynccontextmanager
async def backend(
    way: Connection,
    settings: Settings = USUAL,
    *,
    clock: Clock | None = None,
    faults: Faults | None = None,
    leads: bool = False,
    lease_namespace: str = names.KLUTCH_NAMESPACE,
) -> AsyncIterator[Term]:
    """Let a backend work for the length of the block, from when it has read everything.

    With `faults` its calls fail on cue. One that dies of them raises SimulatedCrash in a group.
    `leads`: it first takes the lease in `lease_namespace`, which has to be there.
    """
    settings = replace(settings, leader_election=leads)
    async with KubeCluster(way, agent=AGENT) as real:
        cluster = real if faults is None else FaultyCluster(real, faults)
        asks = settings.control_plane_mode
        made = program.wired(
            settings,
            cluster,
            leases=cluster,
            deployments_served=not asks or await program.serves_deployments(cluster),
            lease_namespace=lease_namespace,
            clock=clock or SystemClock(),
        )
        async with working(made.manager):
            yield made


async def idle(made: Term) -> None:
    """Wait until a backend is at rest."""
    await settled(made)
