"""Views of single objects of one kind, each by its name: nothing else of the kind is ever read.

So it is with Secrets, of which a konnector needs those with kubeconfigs (H28).
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from reconciler.controller.metrics import Metrics
from reconciler.controller.supervisor import TaskSupervisor
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, ObjectKey
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cluster import Cluster


class NamedViews:
    """The objects that somebody needs. `on_change(place)` is called when one is read or changes."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        metrics: Metrics,
        *,
        on_change: Callable[[ObjectKey], None],
    ) -> None:
        self._cluster, self._kind, self._metrics = cluster, kind, metrics
        self._on_change = on_change
        self._needs: dict[Hashable, frozenset[ObjectKey]] = {}
        self._views: dict[ObjectKey, Informer] = {}
        self._supervisor = TaskSupervisor()

    def need(self, by: Hashable, places: Iterable[ObjectKey]) -> None:
        """Follow these places for somebody, and no others any more."""
        self._needs[by] = frozenset(place for place in places if all(place))
        wanted = frozenset().union(*self._needs.values())
        for place in self._views.keys() - wanted:
            del self._views[place]
            self._supervisor.drop(str(place))
        for place in wanted - self._views.keys():
            view = Informer(
                self._cluster,
                self._kind,
                namespace=place.namespace,
                fields=f"metadata.name={place.name}",
            )
            self._views[place] = view
            self._supervisor.start(str(place), partial(self._follow, place, view))

    def knows(self, place: ObjectKey) -> bool:
        """Tell whether it was read what is at this place, or that nothing is."""
        view = self._views.get(place)
        return view is not None and view.synced

    def get(self, place: ObjectKey) -> Manifest | None:
        """Return the object at a place that somebody needs; None where none was seen."""
        view = self._views.get(place)
        return None if view is None else view.store.get(*place)

    def trouble(self, place: ObjectKey) -> str:
        """Return why nothing, or nothing new, is known of a place, or ""."""
        view = self._views.get(place)
        return "" if view is None else view.trouble

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        await self._supervisor.run()

    async def _follow(self, place: ObjectKey, view: Informer) -> None:
        view.store.subscribe_keys(self._on_change)
        uncounted = self._metrics.watch(view)
        greeting = asyncio.create_task(self._greet(place, view))
        try:
            await view.run()
        finally:
            greeting.cancel()
            uncounted()

    async def _greet(self, place: ObjectKey, view: Informer) -> None:
        await view.wait_synced()
        self._on_change(place)
