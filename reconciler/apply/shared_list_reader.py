"""One look at a control plane for many who ask at the same time: whole lists, made once.

Refuses to look twice; whoever wants to know what changed has to ask the cluster itself.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from reconciler.core.manifest import Manifest, name_of, namespace_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Listing, Page, Reader

_ByPlace: TypeAlias = Mapping[str, Mapping[str, Manifest]]  # namespace, name


class SharedListReader:
    """A Reader that answers for single namespaces and objects out of lists of the whole cluster.

    Needs the right to list what it is asked for in all namespaces, as a plan does. Raises the
    ClusterErrors of the lists, to all who asked.
    """

    def __init__(self, cluster: Reader) -> None:
        self._cluster = cluster
        self._lists: dict[tuple[Kind, bool], asyncio.Task[tuple[_ByPlace, str]]] = {}

    @property
    def name(self) -> str:
        """What people call the cluster."""
        return self._cluster.name

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        """Return the object, or None where it was absent."""
        found, _ = await self._whole(ref.kind, metadata_only)
        return found.get(ref.namespace, {}).get(ref.name)

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
        """Return the objects of a namespace; any other list is left to the cluster."""
        if not namespace or labels or fields:
            return await self._cluster.list(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                page_size=page_size,
            )
        found, version = await self._whole(kind, metadata_only)
        return Listing(tuple(found.get(namespace, {}).values()), version)

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        """Leave it to the cluster."""
        return await self._cluster.first_page(
            kind, namespace=namespace, limit=limit, metadata_only=metadata_only
        )

    async def _whole(self, kind: Kind, metadata_only: bool) -> tuple[_ByPlace, str]:
        key = kind, metadata_only
        if key not in self._lists:
            self._lists[key] = asyncio.ensure_future(self._listed(kind, metadata_only))
        return await asyncio.shield(self._lists[key])

    async def _listed(self, kind: Kind, metadata_only: bool) -> tuple[_ByPlace, str]:
        listing = await self._cluster.list(kind, metadata_only=metadata_only)
        found: dict[str, dict[str, Manifest]] = defaultdict(dict)
        for one in listing.items:
            found[namespace_of(one)][name_of(one)] = one
        return found, listing.resource_version
