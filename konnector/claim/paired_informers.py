"""The objects of one kind in the app cluster and in a space, and which keys a change concerns.

A key is that of the app cluster, on either side. Refuses to know what is done about it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from konnector.provider.sync_context import Link
from konnector.views import service
from konnector.views.service import InformerSpec, ServiceInformers
from reconciler.controller.informers import InformerSet
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import ObjectKey
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.read_your_writes import ReadYourWrites

_HERE: Final = "here"
_THERE: Final = "there"


class PairedInformers:
    """Informers that follow while they run. `enqueue(key)` is called for what has changed, and
    `enqueue_behind(key)` for what there is to look at anyway, once both sides were seen.

    `here` is about the objects in the app cluster, `there` about those on the control plane, which
    the index `service.NAME` has to find by the names that they have in the app cluster.
    Of app namespaces without a service namespace, keys are enqueued only with `unmapped`.
    """

    def __init__(
        self,
        link: Link,
        here: InformerSpec,
        there: InformerSpec,
        *,
        enqueue: Callable[[ObjectKey], None],
        enqueue_behind: Callable[[ObjectKey], None],
        unmapped: bool,
    ) -> None:
        self._link, self._unmapped = link, unmapped
        self._enqueue, self._enqueue_behind = enqueue, enqueue_behind
        self.view = Informer(link.app, here.kind, indexes=here.indexes, trim=here.trim)
        self._here = InformerSet[str](link.metrics)
        self.here = self._here.add(_HERE, self.view, on_synced=self.enqueue_everything)
        self._there = ServiceInformers(
            link.plane,
            there,
            link.homes,
            link.metrics,
            on_change=self._enqueue_name,
            on_synced=self.enqueue_all,
        )
        self.view.store.subscribe_keys(self._changed)
        self._supervisor = TaskSupervisor()
        self._supervisor.start_worker(_HERE, self._here)
        self._supervisor.start_worker(_THERE, self._there)

    def there(self, app_namespace: str) -> ReadYourWrites | None:
        """Return the objects that belong to an app namespace; None until both sides were seen."""
        return self._there.of(app_namespace) if self.view.synced else None

    def all(self) -> dict[str, ReadYourWrites]:
        """Return all that was seen on the control plane, by app namespace."""
        return self._there.all()

    @property
    def missing(self) -> Sequence[str]:
        """What was never read, and why."""
        return [*self._here.missing, *self._there.missing]

    @property
    def troubles(self) -> Sequence[str]:
        """Why objects may be old, or cannot be had."""
        return [*self._here.troubles, *self._there.troubles]

    def enqueue_all(self, app_namespace: str) -> None:
        """Enqueue all that belongs to an app namespace."""
        recent = self._there.of(app_namespace)
        there = set(() if recent is None else recent.view.store.values(service.NAME))
        here = set(self.view.store.names(app_namespace))
        for name in here ^ there:  # has come or gone
            self._enqueue_name(app_namespace, name)
        for name in here & there:
            self._enqueue_behind(ObjectKey(app_namespace, name))

    def enqueue_everything(self) -> None:
        """Enqueue all that was seen."""
        for app_namespace in self._there.all():
            self.enqueue_all(app_namespace)

    def stop(self) -> None:
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        await self._supervisor.run()

    def _changed(self, key: ObjectKey) -> None:
        if self._link.homes.service(key.namespace):
            if self.view.synced:  # else all are looked at soon
                self._enqueue(key)
        elif self._unmapped:
            self._enqueue(key)

    def _enqueue_name(self, app_namespace: str, name: str) -> None:
        self._enqueue(ObjectKey(app_namespace, name))


def name(live: Manifest) -> Sequence[str]:
    """Return the name of an object, as an index does."""
    return (name_of(live),)
