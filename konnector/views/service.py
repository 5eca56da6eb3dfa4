"""The informers of one kind on the control plane: one for each service namespace of a space.

That is as far as the rights of a konnector go (A.8), and no further than its own objects: one of
all namespaces would hold those of every other tenant. Namespaces come and go with the homes. A
cluster-scoped kind has one informer, whose namespace is "".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from konnector.namespace.mapping import Homes
from reconciler.controller.informers import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.read_your_writes import ReadYourWrites
from reconciler.kube.cache.store import Index, Trim
from reconciler.kube.cluster import Cluster

NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class InformerSpec:
    """What is followed, and what of it is kept.

    `on_deleted(app namespace, object)` is called for each object that a watch saw deleted.
    """

    kind: Kind
    trim: Trim
    indexes: Mapping[str, Index]
    on_deleted: Callable[[str, Manifest], None] = lambda _, __: None


class ServiceInformers(InformerSet[str]):
    """Informers by app namespace. `on_change(app namespace, name)`: an object changed since.

    `on_synced(app namespace)` is called when all objects of its service namespace were seen.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: InformerSpec,
        homes: Homes,
        metrics: Metrics,
        *,
        on_change: Callable[[str, str], None],
        on_synced: Callable[[str], None],
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._spec, self._homes = cluster, spec, homes
        self._on_change, self._on_synced = on_change, on_synced
        self._followed: dict[str, str] = {}  # service namespaces by app namespace
        if not spec.kind.namespaced:
            self._follow_namespace("", "")

    def of(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the objects that belong to an app namespace; None until all were seen."""
        if self._followed.get(app_namespace) != self._service(app_namespace):
            return None
        return self.synced(app_namespace)

    def all(self) -> dict[str, ReadYourWrites]:
        """Return all objects that were seen, by app namespace."""
        found = {app: self.of(app) for app in self._followed}
        return {app: recent for app, recent in found.items() if recent is not None}

    async def run(self) -> None:
        """Follow until `stop`."""
        if not self._spec.kind.namespaced:
            await super().run()
            return
        unfollow = self._homes.follow(self._moved)
        try:
            for app in self._homes.all():
                self._moved(app)
            await super().run()
        finally:
            unfollow()

    def _service(self, app: str) -> str:
        return self._homes.service(app) if self._spec.kind.namespaced else ""

    def _moved(self, app: str) -> None:
        """Take up, or give up, the informer for an app namespace."""
        service = self._homes.service(app)
        if app in self._followed and self._followed[app] != service:
            self.drop(app)
            del self._followed[app]
        if service and app not in self._followed:
            self._follow_namespace(app, service)
        self._on_synced(app)

    def _follow_namespace(self, app: str, service: str) -> None:
        informer = Informer(
            self._cluster,
            self._spec.kind,
            namespace=service,
            indexes=self._spec.indexes,
            trim=self._spec.trim,
            deleted=partial(self._spec.on_deleted, app),
        )
        informer.store.subscribe(NAME, lambda name: self._changed(app, informer, name))
        self._followed[app] = service
        self.add(app, informer, on_synced=partial(self._on_synced, app))

    def _changed(self, app: str, informer: Informer, name: str) -> None:
        if informer.synced:  # else `on_synced` follows
            self._on_change(app, name)
