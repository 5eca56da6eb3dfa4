"""The clusters of a pull request, without those that only the pull request gives a way to.

A pull request could otherwise lead klutchctl, with its credentials, to any cluster that its
kubeconfig knows, and show the answer in the plan.
"""

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.core.errors import ConfigError
from reconciler.fleet.values import Access
from reconciler.kube.registry import Reached
from reconciler.observe import Clusters


@dataclass(frozen=True, slots=True)
class PullRequestAccess:
    """`observe.Clusters` where these control planes and app clusters are refused."""

    clusters: Clusters
    ref: str
    refused_planes: Collection[str]
    refused_clusters: Collection[str]

    async def control_plane(self, name: str) -> Reached:
        """Return a control plane. Raises ConfigError for a refused one."""
        if name in self.refused_planes:
            raise self._refusal()
        return await self.clusters.control_plane(name)

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        """Return an app cluster. Raises ConfigError for a refused one."""
        if name in self.refused_clusters:
            raise self._refusal()
        return await self.clusters.app_cluster(name, access, control_plane=control_plane)

    async def close(self, name: str) -> None:
        """Give the connections of a cluster back."""
        await self.clusters.close(name)

    def _refusal(self) -> ConfigError:
        return ConfigError(
            f"{self.ref} does not lead there, so it is not contacted",
            hint=f"It is read once its document is in {self.ref}",
        )
