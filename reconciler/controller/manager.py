"""Runs informers and controllers: reads first, leads, works, and stops in order.

Informers that come and go meanwhile belong to a set.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Generic, TypeVar

from reconciler.controller.health_server import NOTHING, SOON, Written
from reconciler.controller.leadership import Leadership, LeaseLost
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import TaskSupervisor, Worker, ended
from reconciler.core.manifest import Manifest, resource_version_of, uid_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster, Reader
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.store import Index, Store

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_REMINDER: Final = 10.0  # seconds until what is still missing is logged again
_LOOK: Final = 0.05  # seconds between two looks whether all is at rest


class Manager:
    """Views and workers that belong together. A process may run several, each once.

    Without `leadership` the work begins as soon as everything was read. With it, a process that
    does not lead keeps its views up to date, so that it can begin at once. `first` is done before
    any work. `advice` is a sentence on what to do where the server lets it read less than all.
    """

    def __init__(
        self,
        *,
        views: Sequence[Informer],
        workers: Sequence[Worker],
        metrics: Metrics,
        leadership: Leadership | None = None,
        first: Callable[[], Awaitable[None]] | None = None,
        advice: str = "",
    ) -> None:
        self._views, self._workers, self._first = tuple(views), tuple(workers), first
        self._metrics, self._leadership = metrics, leadership
        self._advice = advice
        self._working = False

    def unready(self) -> str:
        """Return the views that were not read yet, or "". May be asked from another thread."""
        unread = [view for view in self._views if not view.synced]
        if not unread:
            return ""
        reasons = "; ".join(missing(unread))
        advised = self._advice and any(view.trouble for view in unread)
        return f"not read yet: {reasons}" + (f". {self._advice}" if advised else "")

    async def unsettled(self, written: Written = NOTHING, *, soon: float = SOON) -> str:
        """Return why this process is not at rest, "" if it is; see `Activity.unsettled`."""
        if not self._working:
            return self.unready() or "this process does not lead"
        return await self._metrics.activity.unsettled(written, soon=soon)

    async def settled(
        self, written: Written = NOTHING, within: float = 0.0, *, soon: float = SOON
    ) -> str:
        """Return "" once this process is at rest, or, after so many seconds, why it is not.

        `written` are resourceVersions by cluster: what was written there has been seen then.
        """
        until = time.monotonic() + within
        while True:
            reason = await self.unsettled(written, soon=soon)
            if not reason or time.monotonic() >= until:
                return reason
            await asyncio.sleep(_LOOK)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then let the workers end what they began.

        Raises LeaseLost. A defect of a view or a worker ends all, as an ExceptionGroup.
        """
        lost: LeaseLost | None = None
        with ExitStack() as counted:
            for view in self._views:
                counted.callback(self._metrics.watch(view))
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(view.run()) for view in self._views]
                try:
                    await self._until(stop)
                except LeaseLost as error:
                    lost = error
                finally:
                    for each in following:
                        each.cancel()
        if lost is not None:
            raise lost

    async def _until(self, stop: asyncio.Event) -> None:
        doing = asyncio.create_task(self._do())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not self._working:
                doing.cancel()
            for worker in self._workers:
                worker.stop()
            await asyncio.wait({doing})
        finally:
            stopping.cancel()
            doing.cancel()
            await ended(doing)
            if not doing.cancelled():
                doing.exception()  # so that it counts as told where a view's failure ends us first
        if not doing.cancelled():
            doing.result()

    async def _do(self) -> None:
        await self._read()
        if self._leadership is None:
            await self._work()
        else:
            await self._leadership.lead(self._work)

    async def _read(self) -> None:
        """Wait until everything was read, and log missing views now and then."""
        async with asyncio.TaskGroup() as group:
            waiting = {group.create_task(view.wait_synced()) for view in self._views}
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=_REMINDER)
                if waiting:
                    log.warning("controllers wait for informers", extra={"why": self.unready()})

    async def _work(self) -> None:
        if self._first is not None:
            await self._first()
        self._working = True
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.run())


def missing(informers: Iterable[Informer]) -> list[str]:
    """Return the views that were not read yet, and why."""
    unread = (informer for informer in informers if not informer.synced)
    return [informer.trouble or f"{informer.ref}: not answered yet" for informer in unread]


class ClusterInformers:
    """The informers of one cluster, from its start to its end; a subclass names their views."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._recents: dict[Store, ReadYourWrites] = {}

    @property
    def informers(self) -> Sequence[Informer]:
        return [recent.view for recent in self._recents.values()]

    def recent(self, view: Store) -> ReadYourWrites:
        """Return one of these views together with this process's last writes to it."""
        return self._recents[view]

    def trouble(self, *views: Store) -> str:
        """Return why one of these views may be old, or ""."""
        return next(filter(None, (self._recents[view].view.trouble for view in views)), "")

    def _view(
        self, kind: Kind, indexes: Mapping[str, Index], *, served: bool = True, **more: Any
    ) -> Store:
        """Return the store of such an Informer; empty for ever if not `served`."""
        informer = Informer(self.cluster, kind, indexes=indexes, **more)
        if served:
            self._recents[informer.store] = ReadYourWrites(informer)
        return informer.store


class InformerSet(Generic[K]):
    """Informers by key. They follow, and are counted in the metrics, while the set runs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._recents: dict[K, ReadYourWrites] = {}
        self._supervisor = TaskSupervisor()

    def add(
        self, key: K, informer: Informer, *, on_synced: Callable[[], None] | None = None
    ) -> ReadYourWrites:
        """Follow with an informer; the key must be free. `on_synced` is called once it has read."""
        recent = self._recents[key] = ReadYourWrites(informer)
        informer.on_synced = on_synced
        self._supervisor.start(key, partial(self._follow, informer))
        return recent

    def drop(self, key: K) -> None:
        del self._recents[key]
        self._supervisor.drop(key)

    def keys(self) -> set[K]:
        return set(self._recents)

    def get(self, key: K) -> ReadYourWrites | None:
        """Return an informer's objects, as far as they were read."""
        return self._recents.get(key)

    def synced(self, key: K) -> ReadYourWrites | None:
        """Return an informer's objects; None until all were read."""
        recent = self._recents.get(key)
        return recent if recent is not None and recent.view.synced else None

    @property
    def informers(self) -> list[Informer]:
        return [recent.view for recent in self._recents.values()]

    @property
    def missing(self) -> list[str]:
        """The unread views, and why."""
        return missing(self.informers)

    @property
    def troubles(self) -> list[str]:
        """Why objects may be old, or cannot be had."""
        return [informer.trouble for informer in self.informers if informer.trouble]

    async def wait_synced(self) -> None:
        """Return once all that there are now have read."""
        for informer in self.informers:
            await informer.wait_synced()

    def stop(self) -> None:
        self._supervisor.stop()

    async def run(self) -> None:
        await self._supervisor.run()

    async def _follow(self, informer: Informer) -> None:
        uncounted = self._metrics.watch(informer)
        try:
            await informer.run()
        finally:
            uncounted()


_MOST: Final = 64


class Bodies:
    """The objects behind a view of one kind; as new as the view, or newer."""

    def __init__(self, cluster: Reader, view: Store) -> None:
        self._cluster, self._view = cluster, view
        self._bodies: dict[tuple[str, str], Manifest] = {}

    async def get(self, namespace: str, name: str) -> Manifest | None:
        """Return a whole object, None where the view has none. Raises ClusterErrors."""
        key, known = (namespace, name), self._view.get(namespace, name)
        if known is None:
            self._bodies.pop(key, None)
            return None
        body = self._bodies.get(key)
        if body is not None and _state(body) == _state(known):
            return body
        body = await self._cluster.get(Ref(self._cluster.name, self._view.kind, *key))
        if body is not None:
            if len(self._bodies) >= _MOST:
                self._bodies.pop(next(iter(self._bodies)))
            self._bodies[key] = body
        return body


def _state(live: Manifest) -> tuple[str, str]:
    return uid_of(live), resource_version_of(live)
