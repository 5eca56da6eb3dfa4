"""A Cluster that stands before another one: what passes to it passes one place."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reconciler.core.manifest import Manifest, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import (
    Cluster,
    Listing,
    Page,
    Preconditions,
    Propagation,
    Verb,
)
from reconciler.kube.connectivity import Connectivity

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a cluster. `ref.name` is "" for lists, watches and generated names."""

    verb: Verb
    ref: Ref
    subresource: str = ""
    dry_run: bool = False


class ClusterWrapper(ABC):
    """The calls of a Cluster that are answered once; streams, pages and watches, are its user's.

    Arguments, answers and errors are those of `Cluster`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call the cluster."""

    @property
    @abstractmethod
    def connectivity(self) -> Connectivity:
        """As `Watcher.connectivity`."""

    @abstractmethod
    async def _pass(self, call: Call, real: Callable[[Cluster], Awaitable[T]]) -> T:
        """Make the call by giving `real` the cluster that stands behind."""

    def _unnamed(self, verb: Verb, kind: Kind, namespace: str) -> Call:
        return Call(verb, Ref(self.name, kind, namespace, ""))

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        """As `Reader.get`."""
        call = Call("get", ref)
        return await self._pass(call, lambda it: it.get(ref, metadata_only=metadata_only))

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
        return await self._pass(
            self._unnamed("list", kind, namespace),
            lambda it: it.list(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                page_size=page_size,
            ),
        )

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        """As `Reader.first_page`."""
        return await self._pass(
            self._unnamed("list", kind, namespace),
            lambda it: it.first_page(
                kind, namespace=namespace, limit=limit, metadata_only=metadata_only
            ),
        )

    async def kind(self, group: str, version: str, plural: str) -> Kind:
        """As `Discoverer.kind`."""
        asked = Kind(group, version, "", plural)
        return await self._pass(
            self._unnamed("get", asked, ""), lambda it: it.kind(group, version, plural)
        )

    async def versions(self, group: str) -> Sequence[str]:
        """As `Discoverer.versions`."""
        asked = Kind(group, "", "", "")
        return await self._pass(self._unnamed("get", asked, ""), lambda it: it.versions(group))

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
        return await self._pass(
            Call("create", ref_of(self.name, kind, manifest), subresource, dry_run),
            lambda it: it.create(
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
        """As `Writer.apply`."""
        return await self._pass(
            Call("apply", ref_of(self.name, kind, manifest), subresource, dry_run),
            lambda it: it.apply(
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
        """As `Writer.merge_patch`."""
        return await self._pass(
            Call("patch", ref, subresource, dry_run),
            lambda it: it.merge_patch(
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
        """As `Writer.json_patch`."""
        return await self._pass(
            Call("patch", ref, subresource, dry_run),
            lambda it: it.json_patch(
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
        """As `Writer.delete`."""
        return await self._pass(
            Call("delete", ref, dry_run=dry_run),
            lambda it: it.delete(
                ref, preconditions=preconditions, propagation=propagation, dry_run=dry_run
            ),
        )
