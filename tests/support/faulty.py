"""A cluster that fails on cue: it stands before a real one and does what `Faults` says.

Nothing is made up: what is not failed is performed by the real cluster.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from reconciler.core.errors import ClusterError
from reconciler.core.refs import Kind
from reconciler.kube.cluster import Cluster, Listing, WatchEvent
from reconciler.kube.cluster_wrapper import Call, ClusterWrapper
from reconciler.kube.connectivity import Connectivity
from tests.support.cues import AFTER, BEFORE, Rule
from tests.support.faults import Effect, Events, Faults, Point

T = TypeVar("T")


class FaultyCluster(ClusterWrapper):
    """A `Cluster` with faults; its own ones, unless some are shared with other clusters."""

    def __init__(self, real: Cluster, faults: Faults | None = None) -> None:
        self._real = real
        self.faults = faults or Faults()

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def connectivity(self) -> Connectivity:
        return self._real.connectivity

    async def close(self) -> None:
        await self._real.close()

    async def pages(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        page_size: int = 500,
    ) -> AsyncGenerator[Listing]:
        pages = self._real.pages(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            metadata_only=metadata_only,
            page_size=page_size,
        )
        call = self._unnamed("list", kind, namespace)
        yield await self._pass(call, lambda _: anext(pages))
        async for page in pages:
            yield page

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        resource_version: str,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        read_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        call = self._unnamed("watch", kind, namespace)
        due = self.faults.enter(call)
        await self.faults.pass_point(BEFORE, call, due)
        async with self._real.watch(
            kind,
            namespace=namespace,
            resource_version=resource_version,
            labels=labels,
            fields=fields,
            metadata_only=metadata_only,
            read_timeout=read_timeout,
        ) as events:
            await self.faults.pass_point(AFTER, call, due)
            yield _Stream(events, self.faults, call, due)

    async def _pass(self, call: Call, real: Callable[[Cluster], Awaitable[T]]) -> T:
        due = self.faults.enter(call)
        await self.faults.pass_point(BEFORE, call, due)
        try:
            answer = await real(self._real)
        except ClusterError:  # a refusal is an answer too, and can be late or lost
            await self.faults.pass_point(AFTER, call, due)
            raise
        await self.faults.pass_point(AFTER, call, due)
        return answer


class _Stream:
    """The events of one watch, with what is due between them."""

    def __init__(
        self,
        events: AsyncIterator[WatchEvent],
        faults: Faults,
        call: Call,
        due: Sequence[Rule[Call, Point, Effect]],
    ) -> None:
        self._events, self._faults, self._call, self._due = events, faults, call, due
        self._passed = 0

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        await self._faults.pass_point(Events(self._passed), self._call, self._due)
        event = await anext(self._events)
        self._passed += 1
        self._faults.still_alive()
        return event
