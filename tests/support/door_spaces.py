"""Replicas of the front door that make spaces on a control plane."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bind.door.catalogue import Offer
from bind.door.identity import Identity
from bind.door.provisioning import SpaceTerms
from bind.door.spaces import Spaces
from bind.door.views import Views
from bind.informers import Informers
from reconciler import api
from reconciler.controller.tasks import SystemClock
from reconciler.core import manifest, refs
from reconciler.kube.cluster import Cluster
from tests.support.faults import Faults, FaultyCluster

ISSUER: Final = "https://idp.example.org"
ALICE: Final = Identity(ISSUER, "alice", "oidc:alice")
BOB: Final = Identity(ISSUER, "bob", "oidc:bob")
CI: Final = Identity("https://ci.example.org", "alice", "ci:alice", first=False)
TERMS: Final = SpaceTerms(
    "cluster-", "Shop Inc", "https://api.example.org:6443", ca="PEM", most_per_subject=3
)
_INSIDE: Final = (api.CLUSTER_BINDING, refs.SERVICE_ACCOUNT, refs.SECRET, refs.ROLE_BINDING)


@dataclass
class Door:
    """What tests ask of one replica."""

    plane: Cluster
    spaces: Spaces
    views: Views
    offer: Offer

    async def bind(self, identity: Identity = ALICE, cid: str = "4ceiSr") -> str:
        return (await self.spaces.provide(identity, cid, self.offer)).name


@asynccontextmanager
async def replica(
    cluster: Cluster, name: str, terms: SpaceTerms = TERMS, faults: Faults | None = None
) -> AsyncIterator[Door]:
    """Let a replica serve, from when it has read everything. `name` is that of the offer."""
    seen = Informers(cluster, control_plane_mode=False, quotas=False, door=True)
    running = [asyncio.create_task(one.run()) for one in seen.informers]
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*(one.wait_synced() for one in seen.informers))
        views = Views(seen, consumer_scope="Namespaced")
        plural, _, group = name.partition(".")
        offer = await views.offer(group, plural)
        own = cluster if faults is None else FaultyCluster(cluster, faults)
        yield Door(cluster, Spaces(own, lambda: views, terms, clock=SystemClock()), views, offer)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def inside(cluster: Cluster, space: str) -> list[str]:
    """Return what is in a space, but for what control planes add."""
    return [
        f"{kind} {manifest.name_of(one)}"
        for kind in _INSIDE
        for one in (await cluster.list(kind, namespace=space)).items
        if manifest.name_of(one) != "default"
    ]


COMPLETE: Final = [
    "ClusterBinding cluster",
    "ServiceAccount klutch-binder",
    "Secret klutch-binder",
    "Secret kubeconfig",
    "RoleBinding klutch-binder",
]
