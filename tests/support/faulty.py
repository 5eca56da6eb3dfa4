"""A cluster that fails on cue: it stands before a real one and does what `Faults` says.

Nothing is made up: what is not failed is performed by the real cluster.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube import requests
from reconciler.kube.cluster import EVERYTHING, Cluster, ClusterWrapper, Listing, WatchEvent
from reconciler.kube.requests import ListQuery, Request
from tests.support.cues import AFTER, BEFORE, Rule
from tests.support.faults import Effect, Events, Faults, Point

T = TypeVar("T")


class FaultyCluster(ClusterWrapper):
    """A `Cluster` with faults; its own ones, unless some are shared with other clusters."""

    def __init__(self, real: Cluster, faults: Faults | None = None) -> None:
        super().__init__(real)
        self.faults = faults or Faults()

    async def send(self, request: Request) -> Manifest:
        return await self._passed(request, lambda: self.inner.send(request))

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        pages = self.inner.pages(ref, query)
        yield await self._passed(requests.list_page(ref, query), lambda: anext(pages))
        async for page in pages:
            yield page

    @asynccontextmanager
    async def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        request = requests.watch(ref, query, resource_version=resource_version)
        due = self.faults.enter(request)
        await self.faults.pass_point(BEFORE, request, due)
        async with self.inner.watch(
            ref, query, resource_version=resource_version, read_timeout=read_timeout
        ) as events:
            await self.faults.pass_point(AFTER, request, due)
            yield _Stream(events, self.faults, request, due)

    async def _passed(self, request: Request, real: Callable[[], Awaitable[T]]) -> T:
        due = self.faults.enter(request)
        await self.faults.pass_point(BEFORE, request, due)
        try:
            answer = await real()
        except ClusterError:  # a refusal is an answer too, and can be late or lost
            await self.faults.pass_point(AFTER, request, due)
            raise
        await self.faults.pass_point(AFTER, request, due)
        return answer


class _Stream:
    """The events of one watch, with what is due between them."""

    def __init__(
        self,
        events: AsyncIterator[WatchEvent],
        faults: Faults,
        request: Request,
        due: Sequence[Rule[Request, Point, Effect]],
    ) -> None:
        self._events, self._faults, self._request, self._due = events, faults, request, due
        self._passed = 0

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        await self._faults.pass_point(Events(self._passed), self._request, self._due)
        event = await anext(self._events)
        self._passed += 1
        self._faults.still_alive()
        return event
