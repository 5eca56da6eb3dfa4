"""Whether a program is at rest: it has seen all that is in its clusters, and nothing waits.

An event that is on its way shows in no queue. So a view is compared with a new list: once they are
equal, there was no work before the list and there is none after it, nothing is on its way either.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from reconciler.core.errors import ClusterError
from reconciler.core.refs import Ref

# resourceVersions by cluster: what was written there.
Written: TypeAlias = Mapping[str, str]
NOTHING: Final[Written] = MappingProxyType({})

SOON: Final = 1.0  # seconds: a delay that ends within these counts as work
_AT_ONCE: Final = 8  # lists


class View(Protocol):
    """A view of the objects of one kind, such as an Informer."""

    @property
    def ref(self) -> Ref:
        """What is viewed."""
        ...

    @property
    def synced(self) -> bool:
        """Whether all objects were seen once."""
        ...

    async def is_current(self, written: str) -> bool:
        """Compare with a new list, which must show what was written. Raises ClusterErrors."""
        ...


class Queue(Protocol):
    """A WorkQueue."""

    @property
    def waiting(self) -> int:
        """How many keys wait for a worker."""
        ...

    @property
    def working(self) -> int:
        """How many keys are worked on."""
        ...

    @property
    def taken(self) -> int:
        """How many keys workers took since the start."""
        ...

    @property
    def due(self) -> float:
        """Seconds until the next delay ends; infinite without delays."""
        ...


class Activity:
    """The views, the queues and the other work of one process, while they run.

    A view whose cluster cannot be read is never current, so such a program is not settled.
    """

    def __init__(self) -> None:
        self._views: list[View] = []
        self._queues: list[tuple[str, Queue]] = []
        self._others: list[str] = []

    def view(self, view: View) -> Callable[[], None]:
        """Count a view in, until what is returned is called."""
        self._views.append(view)
        return lambda: self._views.remove(view)

    def queue(self, name: str, queue: Queue) -> Callable[[], None]:
        """Count a queue in, until what is returned is called."""
        entry = (name, queue)
        self._queues.append(entry)
        return lambda: self._queues.remove(entry)

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Count in, for as long as the block lasts, work that comes from no queue."""
        self._others.append(name)
        try:
            yield
        finally:
            self._others.remove(name)

    def queued(self, soon: float = SOON) -> str:
        """Return which keys wait, are worked on or are due soon, or ""."""
        found = (word for name, queue in self._queues for word in _queued(name, queue, soon))
        return "; ".join(found)

    def _pending(self, soon: float) -> str:
        """Return what is not done yet as far as queues and views tell, or ""."""
        unread = [f"{view.ref} was not read yet" for view in self._views if not view.synced]
        return "; ".join(filter(None, [*self._others, *unread, self.queued(soon)]))

    async def unsettled(self, written: Written, *, soon: float = SOON) -> str:
        """Return why the program is not at rest, "" if it is.

        At rest, every view shows what was written and whatever else is there, no key waits or is
        worked on, and no delay ends within `soon` seconds.
        """
        if reason := self._pending(soon):
            return reason
        before = self._state()
        if reason := await self._outdated(written):
            return reason
        if reason := self._pending(soon):
            return reason
        return "" if self._state() == before else "there was work in the meantime"

    def _state(self) -> object:
        """Return what differs after any work."""
        return [*self._views], [(queue, queue.taken) for _, queue in self._queues]

    async def _outdated(self, written: Written) -> str:
        views = list(self._views)
        clusters = {view.ref.cluster for view in views}
        if unknown := sorted(written.keys() - clusters):
            return f"no cluster is called {unknown[0]}; there are {', '.join(sorted(clusters))}"
        permits = asyncio.Semaphore(_AT_ONCE)

        async def reason(view: View) -> str:
            async with permits:
                try:
                    is_current = await view.is_current(written.get(view.ref.cluster, ""))
                except ClusterError as error:
                    return str(error)
            return "" if is_current else f"{view.ref} lacks changes"

        return "; ".join(filter(None, await asyncio.gather(*map(reason, views))))


def _queued(name: str, queue: Queue, soon: float) -> Iterator[str]:
    if queue.waiting:
        yield f"{name}: {queue.waiting} keys wait"
    if queue.working:
        yield f"{name}: {queue.working} keys are worked on"
    if queue.due < soon:
        yield f"{name}: a key is due in {max(queue.due, 0):.1f} s"
