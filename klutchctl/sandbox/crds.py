"""The CRDs that the clusters of a sandbox come with."""

import asyncio
from collections.abc import Iterable
from typing import Final

from klutchctl.sandbox.state import Role
from reconciler.core.errors import HostError
from reconciler.core.manifest import Manifest, covers, get_maps, name_of, ref_of
from reconciler.core.refs import CRD
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection

_NAMES: Final = {Role.CONTROL_PLANE: crds.CONTROL_PLANE, Role.APP_CLUSTER: crds.APP_CLUSTER}
_MANAGER: Final = "klutchctl"
_DEADLINE: Final = 30.0
_POLL: Final = 0.05


async def install_everywhere(clusters: Iterable[tuple[Connection, Role]]) -> None:
    """Install on each cluster what belongs there. Raises the errors of all that failed."""
    async with asyncio.TaskGroup() as group:
        for connection, role in clusters:
            group.create_task(_connect_and_install(connection, role))


async def _connect_and_install(connection: Connection, role: Role) -> None:
    async with KubeCluster(connection) as cluster:
        await install(cluster, role)


async def install(cluster: Cluster, role: Role) -> None:
    """Apply the CRDs of `role` where they are absent or differ, and wait until all are served."""
    await install_all(cluster, crds.load(*_NAMES[role]))


async def install_all(cluster: Cluster, manifests: Iterable[Manifest]) -> None:
    """Do the same with these CRDs."""
    async with asyncio.TaskGroup() as group:
        for manifest in manifests:
            group.create_task(_install(cluster, manifest))


async def _install(cluster: Cluster, manifest: Manifest) -> None:
    ref = ref_of(cluster.name, CRD, manifest)
    live = await cluster.get(ref)
    if live is None or not covers(live, manifest):
        live = await cluster.apply(manifest, CRD, manager=_MANAGER, force=True)
    try:
        async with asyncio.timeout(_DEADLINE):
            while live is None or not _established(live):
                await asyncio.sleep(_POLL)
                live = await cluster.get(ref)
    except TimeoutError as error:
        raise HostError(
            f"{cluster.name} does not serve {name_of(manifest)} after {_DEADLINE:.0f} s"
        ) from error


def _established(live: Manifest) -> bool:
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in get_maps(live, "status", "conditions")
    )
