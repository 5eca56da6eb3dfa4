"""A view together with what this process wrote and the view does not show yet.

Whoever decides on a view alone decides twice: between a write and its event the object looks as
before. Refuses to guess: what is remembered is what the API server answered, and it counts until
the view has come as far.
"""

from reconciler.core.manifest import (
    Manifest,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    put,
    resource_version_of,
)
from reconciler.core.refs import ObjectKey
from reconciler.kube.cache.informer import Informer


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
