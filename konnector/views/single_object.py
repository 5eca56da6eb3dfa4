"""Informers of single objects of one kind, each by its name: nothing else of it is ever read.

So it is with Secrets, of which a konnector needs those with kubeconfigs (H28).
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial

from reconciler.controller.informers import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cluster import Cluster


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
