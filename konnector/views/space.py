"""What a konnector follows in its space on the control plane, whatever is bound."""

from collections.abc import Callable, Sequence

from konnector.mass_loss import decide as mass_loss_decide
from konnector.views.single_object import NamedViews
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.controller.metrics import Metrics
from reconciler.controller.supervisor import TaskSupervisor
from reconciler.core import names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, ObjectKey
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.read_your_writes import ReadYourWrites
from reconciler.kube.cluster import Cluster


class ProviderViews:
    """The views of one space. `on_change` is called when a Secret in it was read or changes."""

    def __init__(
        self,
        cluster: Cluster,
        space: str,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
    ) -> None:
        self.space, self._metrics = space, metrics
        bindings = Informer(
            cluster, CLUSTER_BINDING, namespace=space, trim=mass_loss_decide.trimmed
        )
        exports = Informer(cluster, API_SERVICE_EXPORT, namespace=space)
        mappings = Informer(cluster, API_SERVICE_NAMESPACE, namespace=space)
        self._informers = (bindings, exports, mappings)
        self.cluster_bindings = bindings.store
        self.recent_cluster_bindings = ReadYourWrites(bindings)
        self.recent_exports = ReadYourWrites(exports)
        self.exports, self.mappings = exports.store, mappings.store
        self.secrets = NamedViews(cluster, SECRET, metrics, on_change=on_change)
        self._supervisor = TaskSupervisor()
        for view in self._informers:
            self._supervisor.start(view.ref.kind.kind, view.run)
        self._supervisor.start_worker("secrets", self.secrets)

    @property
    def cluster_binding(self) -> Manifest | None:
        """The space's ClusterBinding."""
        return self.recent_cluster_bindings.get(self.space, names.CLUSTER_BINDING)

    def export(self, name: str) -> Manifest | None:
        """Return an APIServiceExport of the space."""
        return self.recent_exports.get(self.space, name)

    @property
    def missing(self) -> Sequence[str]:
        """What was never read, and why."""
        return [
            view.trouble or f"{view.ref}: not answered yet"
            for view in self._informers
            if not view.synced
        ]

    async def wait_synced(self) -> None:
        """Return once everything was read."""
        for view in self._informers:
            await view.wait_synced()

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        uncounted = [self._metrics.watch(view) for view in self._informers]
        try:
            await self._supervisor.run()
        finally:
            for each in uncounted:
                each()
