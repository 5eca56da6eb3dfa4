"""What a view alone does not show: what this process wrote, and the whole of metadata's objects.

Whoever decides on a view alone decides twice: between a write and its event the object looks as
before. Refuses to guess: what is remembered is what the API server answered, and it counts until
the view has come as far.
"""

from typing import Final

from reconciler.core.manifest import (
    Manifest,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    put,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import ObjectKey, Ref
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cache.store import Store
from reconciler.kube.cluster import Reader


class ReadYourWrites:
    """The objects of a view as this process knows them."""

    def __init__(self, view: Informer) -> None:
        self.view = view
        self._written: dict[ObjectKey, Manifest] = {}
        self._deleted: dict[ObjectKey, str] = {}  # and the resourceVersion that it had

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None where it is absent.

        One whose deletion was accepted is being deleted, also before the view says so.
        """
        key = ObjectKey(namespace, name)
        live = self._newest(key)
        asked = self._deleted.get(key)
        if asked is None:
            return live
        if live is None or resource_version_of(live) != asked:
            del self._deleted[key]
            return live
        return put(live, "accepted", "metadata", "deletionTimestamp")

    def wrote(self, answer: Manifest) -> None:
        """Take in what the API server answered to a write."""
        kept = self.view.store.trim(answer)
        self._written[ObjectKey(namespace_of(kept), name_of(kept))] = kept

    def deleted(self, namespace: str, name: str, version: str) -> None:
        """Take in that the deletion of an object in this resourceVersion was accepted."""
        self._deleted[ObjectKey(namespace, name)] = version

    def _newest(self, key: ObjectKey) -> Manifest | None:
        written = self._written.get(key) if self._written else None
        if written is not None:
            if not self.view.has_seen(resource_version_of(written)):
                ended = is_deleting(written) and not finalizers_of(written)
                return None if ended else written
            del self._written[key]
        return self.view.store.get(*key)


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
