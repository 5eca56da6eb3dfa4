"""From a change of one kind to the keys of the objects of another that it concerns."""

from bind.controllers.acting import Queue
from reconciler.core.manifest import identity_of
from reconciler.kube.cache.store import Store


class Waker:
    """Adds the keys of those objects of a view that have the woken value in an index."""

    def __init__(self, view: Store, index: str, queue: Queue) -> None:
        self._view, self._index, self._queue = view, index, queue

    def __call__(self, value: str) -> None:
        """Add them."""
        for one in self._view.by(self._index, value):
            self._queue.enqueue("/".join(identity_of(one)))
