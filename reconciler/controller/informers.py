"""Informers that belong together: they come and go, and tell together what is not known."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Generic, TypeVar

from reconciler.controller.metrics import Cached, Metrics
from reconciler.controller.tasks import TaskSupervisor
from reconciler.kube.informer import Informer, ReadYourWrites

K = TypeVar("K", bound=Hashable)


def _nothing() -> None:
    pass


def missing(informers: Iterable[Cached]) -> list[str]:
    """Return what was not read yet, and why."""
    unread = (informer for informer in informers if not informer.synced)
    return [informer.trouble or f"{informer.ref}: not answered yet" for informer in unread]


class InformerSet(Generic[K]):
    """Informers by key. They follow, and are counted in the metrics, while the set runs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._recents: dict[K, ReadYourWrites] = {}
        self._supervisor = TaskSupervisor()

    def add(
        self, key: K, informer: Informer, *, on_synced: Callable[[], None] = _nothing
    ) -> ReadYourWrites:
        """Follow with an informer; the key must be free. `on_synced` is called once it has read."""
        recent = self._recents[key] = ReadYourWrites(informer)
        self._supervisor.start(key, partial(self._follow, informer, on_synced))
        return recent

    def drop(self, key: K) -> None:
        """Follow with this informer no more."""
        del self._recents[key]
        self._supervisor.drop(key)

    def keys(self) -> set[K]:
        """Return the keys of all informers."""
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
        """All informers."""
        return [recent.view for recent in self._recents.values()]

    @property
    def missing(self) -> list[str]:
        """What was not read yet, and why."""
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
        """Follow no more."""
        self._supervisor.stop()

    async def run(self) -> None:
        """Follow until `stop`."""
        await self._supervisor.run()

    async def _follow(self, informer: Informer, on_synced: Callable[[], None]) -> None:
        uncounted = self._metrics.watch(informer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(informer.run())
                group.create_task(_greet(informer, on_synced))
        finally:
            uncounted()


async def _greet(informer: Informer, on_synced: Callable[[], None]) -> None:
    await informer.wait_synced()
    on_synced()
