"""Opens a client for each cluster of a fleet on first use, and closes all at the end.

Follows what the files say about access (product.md, `spec.access`). Does not know what for.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from reconciler.api import kubeconfig_content
from reconciler.core.errors import ConfigError
from reconciler.core.live import Address, control_plane_ref_name
from reconciler.core.manifest import Manifest
from reconciler.core.names import KLUTCH_NAMESPACE
from reconciler.core.refs import SECRET, Ref
from reconciler.fleet.values import Access, Fleet
from reconciler.kube import kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster, Reader
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.kubeconfig.entries import Kubeconfig
from reconciler.kube.kubeconfig.files import SERVICE_ACCOUNT as POD_ACCOUNT
from reconciler.kube.kubeconfig.files import in_cluster
from reconciler.kube.limits import Limits, of_app_cluster
from reconciler.kube.networks import ANYWHERE, Networks

_HOST: Final = "in-cluster/"  # no document can be named so


@dataclass(frozen=True, slots=True)
class Reached:
    """A cluster, and our own address of it.

    `again` opens a connection of its own there, for another event loop.
    """

    cluster: Cluster
    address: Address
    again: Callable[[], KubeCluster] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The sources of access: kubeconfig files, environment, and a pod's own account.

    `networks` bounds where kubeconfigs in Secrets lead.
    """

    kubeconfigs: Sequence[Path]
    environ: Mapping[str, str]
    pod_account: Path = POD_ACCOUNT
    limits: Limits = field(default_factory=Limits)
    networks: Networks = ANYWHERE


class Registry:
    """The clients of one run. Use within one event loop, as a context manager.

    `control_planes` are known by name from the start, so that an app cluster's Secret can be
    read on its own. Raises ConfigError where access leads nowhere, and ClusterErrors where a
    Secret that holds a kubeconfig cannot be read.
    """

    def __init__(self, control_planes: Mapping[str, Access], around: Surroundings) -> None:
        self._control_planes = control_planes
        self._around = around
        self._kubeconfig: Kubeconfig | None = None
        self._open: dict[str, tuple[KubeCluster, Address]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(self.close(name) for name in list(self._open)))

    async def control_plane(self, name: str) -> Reached:
        """Return a control plane. Its client is named as its objects' `Ref.cluster`."""
        ref_name = control_plane_ref_name(name)
        async with self._locks[ref_name]:
            if ref_name not in self._open:
                access = self._control_planes[name]
                if access.secret is None:
                    connection = self._direct(ref_name, access)
                else:
                    holder = (await self._host()).cluster
                    connection = await self._by_secret(ref_name, access.secret, holder)
                self._add(connection, self._around.limits)
        return self._reached(ref_name)

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        """Return an app cluster; a Secret with its kubeconfig lies on its control plane."""
        async with self._locks[name]:
            if name not in self._open:
                if access.secret is None:
                    connection = self._direct(name, access)
                else:
                    holder = (await self.control_plane(control_plane)).cluster
                    connection = await self._by_secret(name, access.secret, holder)
                self._add(connection, of_app_cluster(self._around.limits))
        return self._reached(name)

    async def close(self, name: str) -> None:
        """Close one client (a `Ref.cluster`), if it is open; asking for it opens it again."""
        cluster, _ = self._open.pop(name, (None, None))
        if cluster is not None:
            await cluster.close()

    def load_kubeconfig(self) -> Kubeconfig:
        """Return the operator's merged kubeconfig; read once, as parsing takes its time."""
        if self._kubeconfig is None:
            self._kubeconfig = kubeconfig.merged(self._around.kubeconfigs)
        return self._kubeconfig

    def _add(self, connection: Connection, limits: Limits) -> None:
        cluster = KubeCluster(connection, limits=limits)
        self._open[connection.name] = cluster, address_of(connection)

    def _reached(self, name: str) -> Reached:
        cluster, address = self._open[name]
        return Reached(cluster, address, cluster.again)

    async def _host(self) -> Reached:
        """Return the cluster that klutchctl runs in, for the Secrets of control planes."""
        async with self._locks[_HOST]:
            if _HOST not in self._open:
                self._add(self._in_cluster(_HOST), self._around.limits)
        return self._reached(_HOST)

    def _direct(self, name: str, access: Access) -> Connection:
        if access.in_cluster:
            return self._in_cluster(name)
        chosen = entries.profile(self.load_kubeconfig(), access.context)
        return profile.connection(
            chosen, name=name, environ=self._around.environ, read=kubeconfig.read_file
        )

    def _in_cluster(self, name: str) -> Connection:
        around = self._around
        return in_cluster(environ=around.environ, root=around.pod_account, name=name)

    async def _by_secret(self, name: str, secret: tuple[str, str], holder: Reader) -> Connection:
        ref = Ref(holder.name, SECRET, KLUTCH_NAMESPACE, secret[0])
        content = _payload(await holder.get(ref), ref, key=secret[1])
        around = self._around
        return kubeconfig.from_secret(
            content, name=name, environ=around.environ, networks=around.networks
        )


def of(fleet: Fleet, around: Surroundings) -> Registry:
    """Return the clusters of a fleet. Contacts none.

    Raises ConfigError where the files speak of contexts and there is no usable kubeconfig.
    """
    planes = {plane.name: plane.access for plane in fleet.control_planes.values()}
    registry = Registry(planes, around)
    accesses = [*planes.values(), *(cluster.access for cluster in fleet.clusters.values())]
    if any(access.context for access in accesses):
        registry.load_kubeconfig()
    return registry


def address_of(connection: Connection) -> Address:
    """Return the target of a connection, without our user there."""
    return Address(connection.server, connection.ca or "", connection.tls_server_name)


def _payload(secret: Manifest | None, ref: Ref, *, key: str) -> bytes:
    if secret is None:
        hint = "Create it, or name another in spec.access.secretRef"
        raise ConfigError(f"{ref.object} does not exist", where=ref.cluster, hint=hint)
    content = kubeconfig_content(secret, key)
    if isinstance(content, str):
        raise ConfigError(f"{ref.object} {content}", where=ref.cluster)
    return content
