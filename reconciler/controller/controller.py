"""Reconciles keys with a number of workers, and requeues each as its result asks.

The one place that reads `KlutchError.retry`. Does not know what the work is. A Reconciler looks
at what a key stands for, decides, and has that carried out.
"""

import asyncio
import logging
import random
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from reconciler.controller import log_context
from reconciler.controller.executor import Executor, Observed
from reconciler.controller.fence import Stopped
from reconciler.controller.metrics import Metrics
from reconciler.controller.queue import FIRST_PAUSE, LONGEST_PAUSE, USUAL, WorkQueue
from reconciler.controller.tasks import Clock
from reconciler.core.decision import Decision, Note
from reconciler.core.errors import ClusterError, KlutchError, Oversized, Retry
from reconciler.core.refs import ObjectKey
from reconciler.kube.cluster import Connectivity
from reconciler.kube.informer import ReadYourWrites
from reconciler.kube.store import Store
from reconciler.kube.turns import Party, act_for, nobody

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
V = TypeVar("V")
# Looks at what a key stands for, and does what follows. Returns when to look again though
# nothing happens, None for never. Raises KlutchErrors, and Stopped where it may not write.
Reconcile: TypeAlias = Callable[[K], Awaitable[timedelta | None]]

WORKERS: Final = 4
_TOO_LARGE: Final = Note("TooLarge", "Not served: this is too large to be read", "Warning")
_AT_ONCE: Final = 3  # conflicts in a row that cost no pause
_HOPELESS: Final = LONGEST_PAUSE  # until the input changes, which an event reports
_NEAR: Final = 0.02  # seconds of a round trip for which the workers are enough
_FARTHEST: Final = 8  # times as many, at most
_FRAMES: Final = 12  # of a traceback: more tell no more


class Controller(Generic[K]):
    """Calls `reconcile` for keys that were added, never for one key twice at a time.

    Keys may be added at any time; they wait until it runs. `name` is a word of ours, for logs
    and metrics; controllers may share one. `timeout` is in seconds: see `stop`. `depends_on` are
    the clusters that it works with: when one of them is back, what failed is tried again at once,
    and the farther they are, the more than `workers` wait for them at a time.
    `party` returns whose a key is, so that no party waits for all keys of another, nor for the
    calls that they take.
    Idle, it costs one task.
    """

    def __init__(  # noqa: PLR0913 - each is chosen by another part of a program
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        clock: Clock,
        metrics: Metrics,
        workers: int = WORKERS,
        timeout: float = 20.0,
        jitter: Callable[[], float] = random.random,
        depends_on: Sequence[Connectivity] = (),
        party: Callable[[K], Party] = nobody,
    ) -> None:
        self.name = name
        self._depends_on = depends_on
        self._reconcile, self._clock, self._timeout = reconcile, clock, timeout
        self._party = party
        self._metrics, self._activity = metrics.controller(name), metrics.activity
        self._queue: WorkQueue[K] = WorkQueue(
            clock, jitter=jitter, observer=self._metrics, party=party
        )
        self._workers, self._free = workers, asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    def __repr__(self) -> str:
        return f"Controller({self.name!r})"

    @property
    def rests(self) -> bool:
        """Whether no key waits, and no other than the asking one is worked on."""
        return self._queue.working <= 1 and not self._queue.waiting

    def enqueue(self, key: K, line: int = USUAL) -> None:
        """Enqueue a key, in a line of the queue; subscriptions call this."""
        self._queue.enqueue(key, line)

    def enqueue_after(self, key: K, seconds: float) -> None:
        """Let the key be worked on after so many seconds, or sooner."""
        self._queue.enqueue_after(key, seconds)

    def stop(self) -> None:
        """Begin no work any more. Work under way may end within `timeout`."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop`. Run it once; when cancelled, it waits for writes that were sent."""
        unfollow = [cluster.follow(self._queue.hasten) for cluster in self._depends_on]
        unfollow.append(self._activity.queue(self.name, self._queue))
        try:
            async with asyncio.TaskGroup() as group:
                beginning = group.create_task(self._begin(group))
                await self._stop.wait()
                beginning.cancel()
                if self._working:
                    await asyncio.wait(self._working, timeout=self._timeout)
                for late in self._working:
                    late.cancel()
        finally:
            for each in unfollow:
                each()
            self._queue.close()

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        while True:
            while len(self._working) >= self._at_once():
                self._free.clear()
                await self._free.wait()
            task = group.create_task(self._work(await self._queue.take()))
            self._working.add(task)
            task.add_done_callback(self._end)

    def _at_once(self) -> int:
        far = sum(cluster.round_trip for cluster in self._depends_on) / _NEAR
        return round(self._workers * min(1 + far, _FARTHEST))

    def _end(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._free.set()

    async def _work(self, key: K) -> None:
        began = self._clock.monotonic()
        log_context.bind(controller=self.name, key=key)
        act_for(self._party(key))
        result = "stopped"
        try:
            for cluster in self._depends_on:
                await cluster.wait_viewed()
            again = await self._reconcile(key)
        except Stopped:
            pass
        except KlutchError as error:
            result = "conflict" if error.retry is Retry.NOW else "error"
            self._retry(key, error)
        except Exception as error:  # a defect of ours must not end the work on other keys
            result = "error"
            fields = {"controller": self.name, "key": str(key), "error": _place(error)}
            log.error("a reconcile failed because of a defect", extra=fields)
            self._queue.failed(key)
        else:
            result = "success" if again is None else "requeue_after"
            self._queue.succeeded(key)
            if again is not None:
                self._queue.enqueue_after(key, max(again.total_seconds(), FIRST_PAUSE))
        finally:
            self._queue.done(key)
            self._metrics.ended(result, self._clock.monotonic() - began)

    def _retry(self, key: K, error: KlutchError) -> None:
        """Let the key come again when the same may succeed."""
        fields = {"controller": self.name, "key": str(key), "error": str(error)}
        if error.retry is Retry.NOW:
            log.debug("a reconcile met a conflict", extra=fields)
            self._queue.failed(key, at_once=_AT_ONCE)
            return
        log.warning("a reconcile failed", extra=fields)
        asked = error.retry_after if isinstance(error, ClusterError) else None
        self._queue.failed(key, at_least=_HOPELESS if error.retry is Retry.NEVER else asked or 0.0)


def _place(error: BaseException) -> str:
    """Return the type and place of a defect, innermost first; never its text, which may leak."""
    frames = reversed(traceback.extract_tb(error.__traceback__, -_FRAMES))
    shown = ((PurePath(one.filename).parts[-3:], one.lineno, one.name) for one in frames)
    where = ", ".join(f"{'/'.join(file)}:{line} {name}" for file, line, name in shown)
    defect = f"{type(error).__name__} at {where or 'nowhere'}"
    return "; from ".join((defect, *map(_place, _behind(error))))


def _behind(error: BaseException) -> Sequence[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return error.exceptions[:_FRAMES]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return () if cause is None else (cause,)


class Queue(Protocol[K_contra]):
    """The line of keys for a controller."""

    def enqueue(self, key: K_contra) -> None: ...


class Reconciler(Protocol[K_contra]):
    """The work of one controller."""

    async def reconcile(self, key: K_contra, /) -> timedelta | None:
        """Reconcile the present state of a key; return the time until the next look.

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
        """Return the object of a key and other facts about it; None where nothing follows."""

    def decide(self, view: V, now: datetime) -> Decision:
        """Return the decision."""
        raise NotImplementedError

    async def decided(self, view: V) -> Decision:
        """Return the decision, where it takes further reads."""
        return self.decide(view, self.executor.now())

    async def reconcile(self, key: K) -> timedelta | None:
        """Look, decide, and carry that out. Raises KlutchErrors and Stopped."""
        try:
            looked = await self.look(key)
        except Oversized as error:
            if error.stub is not None:
                self.executor.recorder.record(error.ref, error.stub, _TOO_LARGE)
            raise
        if looked is None:
            return None
        about, view = looked
        return await self.executor.execute(await self.decided(view), about, recents=self.recents)


def enqueue_mapped(queue: Queue[ObjectKey], view: Store, index: str) -> Callable[[Any], None]:
    def enqueue(value: Any) -> None:
        for key in view.keys_by(index, value):
            queue.enqueue(key)

    return enqueue
