"""What a cluster holds of one kind, kept in memory by list and watch."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final, Never

from reconciler.core.errors import Expired, Forbidden, NotServed, Unreachable
from reconciler.core.manifest import Manifest, name_of, namespace_of
from reconciler.core.refs import Kind
from reconciler.kube.cluster import Cluster, Listing

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Mirror:
    """The objects of a kind, of one namespace or of all.

    `known`: they were listed once, or the kind is not served. `served` is false while the
    cluster does not serve the kind; there are no objects then.
    """

    def __init__(self, cluster: Cluster, kind: Kind, namespace: str) -> None:
        self._cluster, self._kind, self._namespace = cluster, kind, namespace
        self._objects: dict[tuple[str, str], Manifest] = {}
        self.known = False
        self.served = False

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return an object as it was a moment ago."""
        return self._objects.get((namespace, name))

    def all(self) -> list[Manifest]:
        """Return all objects as they were a moment ago."""
        return list(self._objects.values())

    def inside(self, namespace: str) -> list[Manifest]:
        """Return those of one namespace."""
        return [one for one in self._objects.values() if namespace_of(one) == namespace]

    async def follow(self, changed: asyncio.Event) -> Never:
        """Keep up with the cluster, and set `changed` after each change.

        An outage, or a kind that comes and goes, is waited out.
        """
        pause = _FIRST_PAUSE
        while True:
            listing = await self._list(changed)
            if listing is None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            with contextlib.suppress(Expired, Forbidden, NotServed, Unreachable):
                await self._watch(listing.resource_version, changed)

    async def _list(self, changed: asyncio.Event) -> Listing | None:
        try:
            listing = await self._cluster.list(self._kind, namespace=self._namespace)
        except NotServed:
            self._replace([], served=False)
            changed.set()
            return None
        except (Forbidden, Unreachable):
            return None
        self._replace(listing.items, served=True)
        changed.set()
        return listing

    async def _watch(self, version: str, changed: asyncio.Event) -> None:
        """Follow until the server ends it."""
        watching = self._cluster.watch(
            self._kind, namespace=self._namespace, resource_version=version
        )
        async with watching as events:
            async for event in events:
                if event.type == "BOOKMARK":
                    continue
                found = self._typed(event.object)
                place = namespace_of(found), name_of(found)
                if event.type == "DELETED":
                    self._objects.pop(place, None)
                else:
                    self._objects[place] = found
                changed.set()

    def _replace(self, items: Iterable[Manifest], *, served: bool) -> None:
        typed = map(self._typed, items)
        self._objects = {(namespace_of(one), name_of(one)): one for one in typed}
        self.known, self.served = True, served

    def _typed(self, item: Manifest) -> Manifest:
        """Say what an object is: lists of built-in kinds leave it out."""
        return {**item, "apiVersion": self._kind.api_version, "kind": self._kind.kind}
