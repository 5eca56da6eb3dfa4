"""Informers of the konnector: of single objects, and of what it follows in its space.

Of single objects nothing else is ever read: so it is with Secrets, of which a konnector needs those
with kubeconfigs (H28).
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final

from konnector.mass_loss import decide as mass_loss_decide
from reconciler.api import API_SERVICE_EXPORT, API_SERVICE_NAMESPACE, CLUSTER_BINDING
from reconciler.controller.informers import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core import names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Kind, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import Informer

_SECRETS: Final = "secrets"
_KINDS: Final = "kinds"


class SingleObjectInformers(InformerSet[ObjectKey]):
    """The objects that are needed. `on_change(key)` is called when one is read or changes."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._kind, self._on_change = cluster, kind, on_change
        self._needs: dict[Hashable, frozenset[ObjectKey]] = {}

    def need(self, by: Hashable, keys: Iterable[ObjectKey]) -> None:
        """Follow what `by` needs: these keys, and no others any more."""
        self._needs[by] = frozenset(key for key in keys if all(key))
        wanted = frozenset().union(*self._needs.values())
        for key in self.keys() - wanted:
            self.drop(key)
        for key in wanted - self.keys():
            informer = Informer(
                self._cluster,
                self._kind,
                namespace=key.namespace,
                fields=f"metadata.name={key.name}",
            )
            informer.store.subscribe_keys(self._on_change)
            self.add(key, informer, on_synced=partial(self._on_change, key))

    def knows(self, key: ObjectKey) -> bool:
        """Tell whether an object was read, or that there is none."""
        return self.synced(key) is not None

    def object(self, key: ObjectKey) -> Manifest | None:
        """Return an object that is needed; None where none was seen."""
        recent = self.get(key)
        return None if recent is None else recent.view.store.get(*key)

    def trouble(self, key: ObjectKey) -> str:
        """Return why nothing, or nothing new, is known of an object, or ""."""
        recent = self.get(key)
        return "" if recent is None else recent.view.trouble


class SpaceInformers(TaskSupervisor):
    """The informers of one space. `on_change` is called when a Secret in it is read or changes."""

    def __init__(
        self,
        cluster: Cluster,
        space: str,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
    ) -> None:
        super().__init__()
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
        self.start_worker(_KINDS, kinds)
        self.start_worker(_SECRETS, self.secrets)

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
