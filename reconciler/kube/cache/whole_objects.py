"""Whole objects of a view that holds only metadata: read when they are needed, and kept a while."""

from typing import Final

from reconciler.core.manifest import Manifest, resource_version_of, uid_of
from reconciler.core.refs import Ref
from reconciler.kube.cache.store import Store
from reconciler.kube.cluster import Reader

_MOST: Final = 64


class Bodies:
    """The objects behind a view of one kind; as new as the view, or newer."""

    def __init__(self, cluster: Reader, view: Store) -> None:
        self._cluster, self._view = cluster, view
        self._held: dict[tuple[str, str], Manifest] = {}

    async def get(self, namespace: str, name: str) -> Manifest | None:
        """Return a whole object, None where the view has none. Raises ClusterErrors."""
        key, known = (namespace, name), self._view.get(namespace, name)
        if known is None:
            self._held.pop(key, None)
            return None
        body = self._held.get(key)
        if body is not None and _state(body) == _state(known):
            return body
        body = await self._cluster.get(Ref(self._cluster.name, self._view.kind, *key))
        if body is not None:
            if len(self._held) >= _MOST:
                self._held.pop(next(iter(self._held)))
            self._held[key] = body
        return body


def _state(live: Manifest) -> tuple[str, str]:
    return uid_of(live), resource_version_of(live)
