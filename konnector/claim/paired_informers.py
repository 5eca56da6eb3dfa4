"""The objects of one kind in the app cluster and in a space, and who is woken by a change.

A key is that of the app cluster, on either side. Refuses to know what is done about it.
"""

import asyncio
from collections.abc import Callable, Sequence

from konnector.provider.sync_context import Link
from konnector.views import service
from konnector.views.service import ClusterView, ServiceViews, Sort
from reconciler.controller.supervisor import TaskSupervisor
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import ObjectKey
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.read_your_writes import ReadYourWrites


class BothSides:
    """Views that follow while they run. `wake(key)` is called for what has changed, and
    `look(key)` for what there is to look at anyway, once both sides were seen.

    `here` is about the objects in the app cluster, `there` about those on the control plane, which
    the index `service_views.NAME` has to find by the names that they have in the app cluster. Of
    app namespaces without a service namespace, objects wake only with `unmapped`.
    """

    def __init__(
        self,
        link: Link,
        here: Sort,
        there: Sort,
        *,
        wake: Callable[[ObjectKey], None],
        look: Callable[[ObjectKey], None],
        unmapped: bool,
    ) -> None:
        self._link, self._wake, self._look, self._unmapped = link, wake, look, unmapped
        kind = here.kind
        self.view = Informer(link.app, kind, indexes=here.indexes, trim=here.trim)
        self.here = ReadYourWrites(self.view)
        self._there: ServiceViews | ClusterView
        if kind.namespaced:
            self._there = ServiceViews(
                link.plane,
                there,
                link.homes,
                link.metrics,
                wake=self._wake_one,
                ready=self.wake_all,
            )
        else:
            self._there = ClusterView(
                link.plane, there, link.metrics, wake=self._wake_one, ready=self.wake_all
            )
        self.view.store.subscribe_keys(self._woken)
        self._supervisor = TaskSupervisor()
        self._supervisor.start("here", self._follow)
        self._supervisor.start_worker("there", self._there)

    def there(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the objects that belong to an app namespace; None until both sides were seen."""
        return self._there.of(app_namespace) if self.view.synced else None

    def all(self) -> dict[str, ReadYourWrites]:
        """Return all that was seen on the control plane, by app namespace."""
        return self._there.all()

    @property
    def pending(self) -> bool:
        """Whether more may come to light soon; nothing is known to hinder it."""
        return self._there.pending or (not self.view.synced and not self.view.trouble)

    @property
    def missing(self) -> Sequence[str]:
        """What was never read, and why."""
        view = self.view
        here = [] if view.synced else [view.trouble or f"{view.ref}: not answered yet"]
        return [*here, *self._there.missing]

    @property
    def troubles(self) -> Sequence[str]:
        """Why views may be old, or cannot be had."""
        here = [self.view.trouble] if self.view.trouble else []
        return [*here, *self._there.troubles]

    def wake_all(self, app_namespace: str) -> None:
        """Have all looked at that belongs to an app namespace."""
        held = self._there.of(app_namespace)
        there = set(() if held is None else held.view.store.values(service.NAME))
        here = set(self.view.store.names(app_namespace))
        for name in here ^ there:  # has come or gone
            self._wake_one(app_namespace, name)
        for name in here & there:
            self._look(ObjectKey(app_namespace, name))

    def wake_everything(self) -> None:
        """Have all looked at that was seen."""
        for app_namespace in self._there.all():
            self.wake_all(app_namespace)

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        uncounted = self._link.metrics.watch(self.view)
        try:
            await self._supervisor.run()
        finally:
            uncounted()

    async def _follow(self) -> None:
        greeting = asyncio.create_task(self._greet())
        try:
            await self.view.run()
        finally:
            greeting.cancel()

    async def _greet(self) -> None:
        await self.view.wait_synced()
        self.wake_everything()

    def _woken(self, key: ObjectKey) -> None:
        if self._link.homes.service(key.namespace):
            if self.view.synced:  # else all are looked at soon
                self._wake(key)
        elif self._unmapped:
            self._wake(key)

    def _wake_one(self, app_namespace: str, name: str) -> None:
        self._wake(ObjectKey(app_namespace, name))


def name(live: Manifest) -> Sequence[str]:
    """Return the name of an object, as an index does."""
    return (name_of(live),)
