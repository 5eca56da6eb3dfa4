"""One cluster over a connection that can be exchanged while it is used.

A rotated kubeconfig leads to the same objects by another way, so views need not be read again:
watches go on over the new connection from where they were.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Final, TypeAlias

from reconciler.core.errors import Unreachable
from reconciler.core.manifest import Manifest, resource_version_of
from reconciler.core.refs import Ref
from reconciler.kube.cluster import (
    EVERYTHING,
    Cluster,
    ClusterWrapper,
    Connectivity,
    Listing,
    WatchEvent,
    Watching,
)
from reconciler.kube.requests import ListQuery, Request

log = logging.getLogger(__name__)

_Open: TypeAlias = Callable[[Cluster, str], Watching]  # from a resourceVersion

_CALL_TIMEOUT: Final = 30.0  # seconds for calls that are under way over the old connection


class RotatingCluster(ClusterWrapper):
    """A Cluster whose connection can be replaced. `name` stays that of the first."""

    def __init__(self, first: Cluster) -> None:
        super().__init__(first)
        self.connectivity = Connectivity()  # also reports when there is a new connection
        self._unfollow = first.connectivity.follow(self.connectivity.report)
        self._under_way: dict[int, int] = {}
        self._idle = asyncio.Event()
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"RotatingCluster({self.inner!r})"

    def rotate(self, to: Cluster) -> None:
        """Use another connection from now on. The old one is closed once nothing uses it.

        Calls that are under way over it may end; what answers to them is still the same cluster.
        """
        old, self.inner = self.inner, to
        self._unfollow()
        self._unfollow = to.connectivity.follow(self.connectivity.report)
        self.connectivity.report()
        retiring = asyncio.create_task(self._retire(old))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Close the connections. The cluster is not usable afterwards."""
        self._closed = True
        self._idle.set()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self.inner.close()

    async def _retire(self, old: Cluster) -> None:
        try:
            async with asyncio.timeout(_CALL_TIMEOUT):
                while self._under_way.get(id(old)) and not self._closed:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("calls over a connection that was replaced do not end; it is closed")
        finally:
            await old.close()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[Cluster]:
        cluster = self.inner
        self._under_way[id(cluster)] = self._under_way.get(id(cluster), 0) + 1
        try:
            yield cluster
        finally:
            self._under_way[id(cluster)] -= 1
            if not self._under_way[id(cluster)]:
                del self._under_way[id(cluster)]
                self._idle.set()

    async def send(self, request: Request) -> Manifest:
        """Make the call over the connection of now, which is not closed before it ends."""
        with self._in_use() as cluster:
            return await cluster.send(request)

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        """Yield all pages over one connection."""
        with self._in_use() as cluster:
            async with contextlib.aclosing(cluster.pages(ref, query)) as pages:
                async for page in pages:
                    yield page
                    del page  # nobody needs it while the next is read

    @contextlib.asynccontextmanager
    async def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Stream the events; where the connection is exchanged, over the new one from there on."""

        def opened(cluster: Cluster, version: str) -> Watching:
            return cluster.watch(ref, query, resource_version=version, read_timeout=read_timeout)

        async with contextlib.AsyncExitStack() as stack:
            cluster = self.inner
            events = await stack.enter_async_context(opened(cluster, resource_version))
            yield self._followed(stack, opened, cluster, events, resource_version)

    async def _followed(
        self,
        stack: contextlib.AsyncExitStack,
        opened: _Open,
        cluster: Cluster,
        events: AsyncIterator[WatchEvent],
        version: str,
    ) -> AsyncIterator[WatchEvent]:
        while True:
            try:
                async for event in events:
                    version = resource_version_of(event.object) or version
                    yield event
                return
            except Unreachable:
                if cluster is self.inner:
                    raise
            await stack.aclose()
            cluster = self.inner
            events = await stack.enter_async_context(opened(cluster, version))
