"""Whether a program is at rest: it has seen all that is in its clusters, and nothing waits.

An event that is on its way shows in no queue. So a view is compared with a new list: once they are
equal, there was no work before the list and there is none after it, nothing is on its way either.

`GET /settled?after=CLUSTER:RESOURCEVERSION&within=SECONDS` answers 200 once the process has seen
what was written and is at rest, else 503 and what is missing. An answer costs a list of each view,
so only one request is worked on at a time, once a second, and none that comes over a network:
`kubectl port-forward` and `kubectl exec` are on the machine.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from reconciler.controller.health_server import plain
from reconciler.controller.queue import WorkQueue
from reconciler.core.addresses import address_of
from reconciler.core.errors import ClusterError
from reconciler.kube.informer import Informer
from reconciler.web.requests import Response

# resourceVersions by cluster: what was written there.
Written: TypeAlias = Mapping[str, str]
NOTHING: Final[Written] = MappingProxyType({})
# Returns why the process is not at rest after so many seconds, "" once it is.
Settled: TypeAlias = Callable[[Written, float], Coroutine[Any, Any, str]]

SOON: Final = 1.0  # seconds: a delay that ends within these counts as work
_AT_ONCE: Final = 8  # lists
_LONGEST: Final = 4.0  # seconds: the health server cuts off after five
_REST: Final = 1.0  # seconds from one answer to the next
_USAGE: Final = f"ask for after=CLUSTER:RESOURCEVERSION and within=0 to {_LONGEST:g}"


class Activity:
    """The views, the queues and the other work of one process, while they run.

    A view whose cluster cannot be read is never current, so such a program is not settled.
    """

    def __init__(self) -> None:
        self._views: list[Informer] = []
        self._queues: list[tuple[str, WorkQueue[Any]]] = []
        self._others: list[str] = []

    def view(self, view: Informer) -> Callable[[], None]:
        """Count a view in, until what is returned is called."""
        self._views.append(view)
        return lambda: self._views.remove(view)

    def queue(self, name: str, queue: WorkQueue[Any]) -> Callable[[], None]:
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

        async def reason(view: Informer) -> str:
            async with permits:
                try:
                    is_current = await view.is_current(written.get(view.ref.cluster, ""))
                except ClusterError as error:
                    return str(error)
            return "" if is_current else f"{view.ref} lacks changes"

        return "; ".join(filter(None, await asyncio.gather(*map(reason, views))))


def _queued(name: str, queue: WorkQueue[Any], soon: float) -> Iterator[str]:
    if queue.waiting:
        yield f"{name}: {queue.waiting} keys wait"
    if queue.working:
        yield f"{name}: {queue.working} keys are worked on"
    if queue.due < soon:
        yield f"{name}: a key is due in {max(queue.due, 0):.1f} s"


class SettledProbe:
    """Asks the event loop that it was made in, from that of a health server."""

    def __init__(self, settled: Settled) -> None:
        self._settled, self._loop = settled, asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._next = 0.0

    async def __call__(self, client: str, query: str) -> Response:
        if not _is_here(client):
            return plain("only those on this machine may ask", status=403)
        try:
            written, within = _asked(query)
        except ValueError:
            return plain(_USAGE, status=400)
        if self._turn.locked():
            return plain("another request is worked on", status=429)
        async with self._turn:
            try:
                await asyncio.sleep(self._next - time.monotonic())
                return plain(await self._ask(written, within))
            finally:
                self._next = time.monotonic() + _REST

    async def _ask(self, written: Written, within: float) -> str:
        asking = asyncio.run_coroutine_threadsafe(self._settled(written, within), self._loop)
        answer = asyncio.wrap_future(asking)
        try:
            ended, _ = await asyncio.wait([answer], timeout=_LONGEST)
            if ended and not answer.cancelled():
                return answer.result()
            return "there was no answer in time"
        finally:
            answer.cancel()


def _asked(query: str) -> tuple[Written, float]:
    """Raises ValueError."""
    fields = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    written: dict[str, str] = {}
    for one in fields.pop("after", []):
        cluster, _, version = one.rpartition(":")
        if not cluster or not (version.isascii() and version.isdigit()):
            raise ValueError(one)
        written[cluster] = version
    within = float(fields.pop("within", ["0"])[-1])
    if fields or not 0 <= within <= _LONGEST:
        raise ValueError(query)
    return written, within


def _is_here(client: str) -> bool:
    address = address_of(client.partition("%")[0])
    return address is not None and address.is_loopback
