"""A cluster that fails on cue: it stands before a real one and does what `Faults` says.

Nothing is made up: what is not failed is performed by the real cluster.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import (
    Cluster,
    Listing,
    Page,
    Preconditions,
    Propagation,
    Verb,
    WatchEvent,
)
from tests.support.cues import AFTER, BEFORE, Rule
from tests.support.faults import Call, Effect, Events, Faults, Point

T = TypeVar("T")


class FaultyCluster:
    """A `Cluster` with faults; its own ones, unless some are shared with other clusters."""

    def __init__(self, real: Cluster, faults: Faults | None = None) -> None:
        self._real = real
        self.faults = faults or Faults()

    @property
    def name(self) -> str:
        return self._real.name

    async def close(self) -> None:
        await self._real.close()

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        return await self._through(
            Call("get", ref), lambda: self._real.get(ref, metadata_only=metadata_only)
        )

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
        return await self._through(
            self._call("list", kind, namespace),
            lambda: self._real.list(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                page_size=page_size,
            ),
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
        pages = self._real.pages(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            metadata_only=metadata_only,
            page_size=page_size,
        )
        call = self._call("list", kind, namespace)
        yield await self._through(call, lambda: anext(pages))
        async for page in pages:
            yield page

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        return await self._through(
            self._call("list", kind, namespace),
            lambda: self._real.first_page(
                kind, namespace=namespace, limit=limit, metadata_only=metadata_only
            ),
        )

    async def kind(self, group: str, version: str, plural: str) -> Kind:
        return await self._real.kind(group, version, plural)

    async def create(
        self,
        manifest: Manifest,
        kind: Kind,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        ref = ref_of(self.name, kind, manifest)
        return await self._through(
            Call("create", ref, subresource=subresource, dry_run=dry_run),
            lambda: self._real.create(
                manifest, kind, manager=manager, subresource=subresource, dry_run=dry_run
            ),
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
        return await self._through(
            Call("apply", ref_of(self.name, kind, manifest), subresource, dry_run),
            lambda: self._real.apply(
                manifest,
                kind,
                manager=manager,
                force=force,
                subresource=subresource,
                dry_run=dry_run,
            ),
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
        return await self._through(
            Call("patch", ref, subresource, dry_run),
            lambda: self._real.merge_patch(
                ref, patch, manager=manager, subresource=subresource, dry_run=dry_run
            ),
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
        return await self._through(
            Call("patch", ref, subresource, dry_run),
            lambda: self._real.json_patch(
                ref, patch, manager=manager, subresource=subresource, dry_run=dry_run
            ),
        )

    async def delete(
        self,
        ref: Ref,
        *,
        preconditions: Preconditions,
        propagation: Propagation,
        dry_run: bool = False,
    ) -> bool:
        return await self._through(
            Call("delete", ref, dry_run=dry_run),
            lambda: self._real.delete(
                ref, preconditions=preconditions, propagation=propagation, dry_run=dry_run
            ),
        )

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
        call = self._call("watch", kind, namespace)
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

    def _call(self, verb: Verb, kind: Kind, namespace: str) -> Call:
        return Call(verb, Ref(self.name, kind, namespace, ""))

    async def _through(self, call: Call, real: Callable[[], Awaitable[T]]) -> T:
        due = self.faults.enter(call)
        await self.faults.pass_point(BEFORE, call, due)
        try:
            answer = await real()
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
