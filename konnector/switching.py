"""One cluster over a connection that can be exchanged while it is used.

A rotated kubeconfig leads to the same objects by another way, so views need not be read again:
watches go on over the new connection from where they were.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Self, TypeAlias

from reconciler.core.errors import Unreachable
from reconciler.core.manifest import Manifest, resource_version_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import (
    Cluster,
    Listing,
    Page,
    Preconditions,
    Propagation,
    WatchEvent,
)

_Watching: TypeAlias = AbstractAsyncContextManager[AsyncIterator[WatchEvent]]

_PATIENCE: Final = 30.0  # seconds for calls that are under way over the old connection


class Switching:
    """A Cluster that is another one's face. `name` stays that of the first."""

    def __init__(self, first: Cluster) -> None:
        self._now = first
        self.name = first.name
        self._under_way: dict[int, int] = {}
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        return f"Switching({self._now!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def switch(self, to: Cluster) -> None:
        """Use another connection from now on, and close the old one.

        Calls that are under way over it may end; what answers to them is still the same cluster.
        """
        old, self._now = self._now, to
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while self._under_way.get(id(old)):
                    self._idle.clear()
                    await self._idle.wait()
        await old.close()

    async def close(self) -> None:
        """Close the connections. The cluster is not usable afterwards."""
        await self._now.close()

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

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        """As `Reader.get`."""
        with self._in_use() as cluster:
            return await cluster.get(ref, metadata_only=metadata_only)

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        page_size: int = 500,
    ) -> Listing:
        """As `Reader.list`."""
        with self._in_use() as cluster:
            return await cluster.list(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                page_size=page_size,
            )

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

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        """As `Reader.first_page`."""
        with self._in_use() as cluster:
            return await cluster.first_page(
                kind, namespace=namespace, limit=limit, metadata_only=metadata_only
            )

    async def kind(self, group: str, version: str, plural: str) -> Kind:
        """As `Discoverer.kind`."""
        with self._in_use() as cluster:
            return await cluster.kind(group, version, plural)

    async def create(
        self,
        manifest: Manifest,
        kind: Kind,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """As `Writer.create`."""
        with self._in_use() as cluster:
            return await cluster.create(
                manifest, kind, manager=manager, subresource=subresource, dry_run=dry_run
            )

    async def apply(
        self,
        manifest: Manifest,
        kind: Kind,
        *,
        manager: str,
        force: bool,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """As `Writer.apply`."""
        with self._in_use() as cluster:
            return await cluster.apply(
                manifest,
                kind,
                manager=manager,
                force=force,
                subresource=subresource,
                dry_run=dry_run,
            )

    async def merge_patch(
        self,
        ref: Ref,
        patch: Manifest,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """As `Writer.merge_patch`."""
        with self._in_use() as cluster:
            return await cluster.merge_patch(
                ref, patch, manager=manager, subresource=subresource, dry_run=dry_run
            )

    async def json_patch(
        self,
        ref: Ref,
        patch: Sequence[Manifest],
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """As `Writer.json_patch`."""
        with self._in_use() as cluster:
            return await cluster.json_patch(
                ref, patch, manager=manager, subresource=subresource, dry_run=dry_run
            )

    async def delete(
        self,
        ref: Ref,
        *,
        preconditions: Preconditions,
        propagation: Propagation,
        dry_run: bool = False,
    ) -> bool:
        """As `Writer.delete`."""
        with self._in_use() as cluster:
            return await cluster.delete(
                ref, preconditions=preconditions, propagation=propagation, dry_run=dry_run
            )

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
