"""Reads whole lists of a control plane once, for many readers at the same time.

Refuses to look twice; to learn what changed, ask the cluster itself.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from typing import TypeAlias

from reconciler.core.errors import Missing
from reconciler.core.manifest import Manifest, name_of, namespace_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Cluster, ClusterWrapper, Listing
from reconciler.kube.requests import ACCEPT_METADATA, ListQuery, Request

_ByPlace: TypeAlias = Mapping[str, Mapping[str, Manifest]]  # namespace, name


class SharedListReader(ClusterWrapper):
    """Answers for single namespaces and objects out of lists of the whole cluster.

    Needs the right to list what it is asked for in all namespaces, as a plan does. Raises the
    ClusterErrors of the lists, to all who asked. Other lists are left to the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._lists: dict[tuple[Kind, bool], asyncio.Task[tuple[_ByPlace, str]]] = {}

    async def send(self, request: Request) -> Manifest:
        """Answer a read of one object from the list; other calls are the cluster's."""
        ref = request.ref
        if request.verb != "get" or not ref.name:
            return await self.inner.send(request)
        objects, _ = await self._list_once(ref.kind, request.accept == ACCEPT_METADATA)
        found = objects.get(ref.namespace, {}).get(ref.name)
        if found is None:
            raise Missing("it was not in the list", ref=ref, verb=request.verb)
        return found

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        """Yield the objects of a namespace at once; other lists as the cluster does."""
        if not ref.namespace or query.labels or query.fields:
            async for page in self.inner.pages(ref, query):
                yield page
            return
        objects, version = await self._list_once(ref.kind, query.metadata_only)
        yield Listing(tuple(objects.get(ref.namespace, {}).values()), version)

    async def _list_once(self, kind: Kind, metadata_only: bool) -> tuple[_ByPlace, str]:
        key = kind, metadata_only
        if key not in self._lists:
            self._lists[key] = asyncio.ensure_future(self._list(kind, metadata_only))
        return await asyncio.shield(self._lists[key])

    async def _list(self, kind: Kind, metadata_only: bool) -> tuple[_ByPlace, str]:
        listing = await self.inner.list(kind, metadata_only=metadata_only)
        objects: dict[str, dict[str, Manifest]] = defaultdict(dict)
        for listed in listing.items:
            objects[namespace_of(listed)][name_of(listed)] = listed
        return objects, listing.resource_version
