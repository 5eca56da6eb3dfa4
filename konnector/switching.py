"""One cluster over a connection that can be exchanged while it is used.

A rotated kubeconfig leads to the same objects by another way, so views need not be read again:
watches go on over the new connection from where they were.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Self, TypeAlias, TypeVar

from reconciler.core.errors import Unreachable
from reconciler.core.manifest import resource_version_of
from reconciler.core.refs import Kind
from reconciler.kube.cluster import Cluster, Listing, WatchEvent
from reconciler.kube.cluster_wrapper import Call, ClusterWrapper
from reconciler.kube.connectivity import Connectivity

log = logging.getLogger(__name__)

T = TypeVar("T")
_Watching: TypeAlias = AbstractAsyncContextManager[AsyncIterator[WatchEvent]]

_PATIENCE: Final = 30.0  # seconds for calls that are under way over the old connection


class Switching(ClusterWrapper):
    """A Cluster that is another one's face. `name` stays that of the first."""

    def __init__(self, first: Cluster) -> None:
        self._now = first
        self._name = first.name
        self._connectivity = Connectivity()
        self._unfollow = first.connectivity.follow(self._connectivity.tell)
        self._under_way: dict[int, int] = {}
        self._idle = asyncio.Event()
        self._retiring: set[asyncio.Task[None]] = set()
        self._ended = False

    @property
    def name(self) -> str:
        """What people call the cluster."""
        return self._name

    @property
    def connectivity(self) -> Connectivity:
        """Who tells when the cluster answers again, or may be reached by a new way."""
        return self._connectivity

    def __repr__(self) -> str:
        return f"Switching({self._now!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def switch(self, to: Cluster) -> None:
        """Use another connection from now on. The old one is closed once nothing uses it.

        Calls that are under way over it may end; what answers to them is still the same cluster.
        """
        old, self._now = self._now, to
        self._unfollow()
        self._unfollow = to.connectivity.follow(self._connectivity.tell)
        self._connectivity.tell()
        retiring = asyncio.create_task(self._retire(old))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Close the connections. The cluster is not usable afterwards."""
        self._ended = True
        self._idle.set()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self._now.close()

    async def _retire(self, old: Cluster) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._under_way.get(id(old)) and not self._ended:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("calls over a connection that was replaced do not end; it is closed")
        finally:
            await old.close()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[Cluster]:
        cluster = self._now
        self._under_way[id(cluster)] = self._under_way.get(id(cluster), 0) + 1
        try:
            yield cluster
        finally:
            self._under_way[id(cluster)] -= 1
            if not self._under_way[id(cluster)]:
                del self._under_way[id(cluster)]
                self._idle.set()

    async def _pass(self, call: Call, real: Callable[[Cluster], Awaitable[T]]) -> T:
        with self._in_use() as cluster:
            return await real(cluster)

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
        """As `Pager.pages`."""
        with self._in_use() as cluster:
            pages = cluster.pages(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                page_size=page_size,
            )
            async with contextlib.aclosing(pages):
                async for page in pages:
                    yield page
                    del page  # nobody needs it while the next is read

    @contextlib.asynccontextmanager
    async def watch(  # noqa: PLR0913 - each is a parameter of the API
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
        """As `Watcher.watch`. Where the connection is exchanged, it goes on over the new one."""

        def opened(cluster: Cluster, version: str) -> _Watching:
            return cluster.watch(
                kind,
                namespace=namespace,
                resource_version=version,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                read_timeout=read_timeout,
            )

        async with contextlib.AsyncExitStack() as stack:
            cluster = self._now
            events = await stack.enter_async_context(opened(cluster, resource_version))
            yield self._followed(stack, opened, cluster, events, resource_version)

    async def _followed(
        self,
        stack: contextlib.AsyncExitStack,
        opened: Callable[[Cluster, str], _Watching],
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
                if cluster is self._now:
                    raise
            await stack.aclose()
            cluster = self._now
            events = await stack.enter_async_context(opened(cluster, version))
