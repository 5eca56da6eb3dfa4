"""What is done about one key: look, decide, carry that out, and when to look again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from reconciler.controller.executor import Executor, Observed
from reconciler.core.decision import Decision
from reconciler.core.refs import ObjectKey
from reconciler.kube.informer import ReadYourWrites
from reconciler.kube.store import Store

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
V = TypeVar("V")


class Queue(Protocol[K_contra]):
    """Where keys wait for their controller."""

    def enqueue(self, key: K_contra) -> None:
        """Let the key be reconciled soon."""
        ...


class Reconciler(Protocol[K_contra]):
    """The work of one controller."""

    async def reconcile(self, key: K_contra, /) -> timedelta | None:
        """Do what follows from the present state of a key; return when to look again.

        None: only at the next event. Raises KlutchErrors, and Stopped where it may not write.
        """
        ...


class ObjectReconciler(ABC, Generic[K, V]):
    """A Reconciler of objects: `look` reads, `decide` judges and does nothing else.

    `recents` are the views that take in what was written.
    """

    def __init__(self, executor: Executor, *recents: ReadYourWrites) -> None:
        self.executor, self.recents = executor, recents

    @abstractmethod
    def subscribe(self, queue: Queue[K]) -> None:
        """Have the keys enqueued that a change concerns."""

    @abstractmethod
    async def look(self, key: K) -> tuple[Observed, V] | None:
        """Return the object of a key and what else concerns it; None where nothing follows."""

    @abstractmethod
    def decide(self, view: V, now: datetime) -> Decision:
        """Return what follows."""

    async def decided(self, view: V) -> Decision:
        """Return what follows, where that takes further reads."""
        return self.decide(view, self.executor.now())

    async def reconcile(self, key: K) -> timedelta | None:
        """Look, decide, and carry that out. Raises KlutchErrors and Stopped."""
        looked = await self.look(key)
        if looked is None:
            return None
        about, view = looked
        decision = await self.decided(view)
        return await self.executor.execute(decision, about, recents=self.recents)


def enqueue_mapped(queue: Queue[ObjectKey], view: Store, index: str) -> Callable[[Any], None]:
    """Return what enqueues the objects of a view that have a changed value in an index."""

    def enqueue(value: Any) -> None:
        for key in view.keys_by(index, value):
            queue.enqueue(key)

    return enqueue
