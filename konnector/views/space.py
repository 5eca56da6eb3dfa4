"""What a konnector follows in its space on the control plane, whatever is bound."""

from collections.abc import Callable
from typing import Final

from konnector.mass_loss import decide as mass_loss_decide
from konnector.views.single_object import SingleObjectInformers
from reconciler.api.bindings import CLUSTER_BINDING
from reconciler.api.exports import API_SERVICE_EXPORT, API_SERVICE_NAMESPACE
from reconciler.controller.informers import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core import names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Kind, ObjectKey
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cluster import Cluster

_SECRETS: Final = "secrets"
_KINDS: Final = "kinds"


class SpaceInformers:
    """The informers of one space. `on_change` is called when a Secret in it is read or changes."""

    def __init__(
        self,
        cluster: Cluster,
        space: str,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
    ) -> None:
        self.space = space
        self._kinds = kinds = InformerSet[Kind](metrics)
        bindings = Informer(
            cluster, CLUSTER_BINDING, namespace=space, trim=mass_loss_decide.trimmed
        )
        exports = Informer(cluster, API_SERVICE_EXPORT, namespace=space)
        mappings = Informer(cluster, API_SERVICE_NAMESPACE, namespace=space)
        self.recent_cluster_bindings = kinds.add(CLUSTER_BINDING, bindings)
        self.recent_exports = kinds.add(API_SERVICE_EXPORT, exports)
        kinds.add(API_SERVICE_NAMESPACE, mappings)
        self.cluster_bindings, self.exports = bindings.store, exports.store
        self.mappings = mappings.store
        self.secrets = SingleObjectInformers(cluster, SECRET, metrics, on_change=on_change)
        self._supervisor = TaskSupervisor()
        self._supervisor.start_worker(_KINDS, kinds)
        self._supervisor.start_worker(_SECRETS, self.secrets)

    @property
    def cluster_binding(self) -> Manifest | None:
        """The space's ClusterBinding."""
        return self.recent_cluster_bindings.get(self.space, names.CLUSTER_BINDING)

    def export(self, name: str) -> Manifest | None:
        """Return an APIServiceExport of the space."""
        return self.recent_exports.get(self.space, name)

    @property
    def missing(self) -> list[str]:
        """What was never read, and why."""
        return self._kinds.missing

    async def wait_synced(self) -> None:
        """Return once everything was read."""
        await self._kinds.wait_synced()

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        await self._supervisor.run()
