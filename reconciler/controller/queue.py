"""Which keys are to be worked on, and when: each once, and never by two workers at a time.

Decides about order, delays and backoff; refuses to know what a key stands for and what the work
is. For one event loop: nothing here is awaited but `take`.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from reconciler.controller.tasks import Clock
from reconciler.kube.turns import NOBODY, Party, Turns, nobody

K = TypeVar("K", bound=Hashable)

FIRST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 60.0
_DOUBLINGS: Final = 14  # more would be beyond the longest pause
_FEW: Final = 64  # outdated alarms that are not worth a clean-up
_IN_A_ROW: Final = 4  # keys that go before one that waits behind them


class Observer:
    """Counts what happens to the keys of a queue: this one nothing."""

    def added(self) -> None:
        """A key that was not waiting is waiting now."""

    def taken(self, waited: float) -> None:
        """A key is worked on after it waited so many seconds."""

    def failed(self) -> None:
        """A key will come again because the work on it failed."""

    def dropped(self, count: int) -> None:
        """So many keys that wait will never be worked on."""


class WorkQueue(Generic[K]):
    """Keys that wait, are delayed, or are being worked on.

    Whoever takes a key calls `done` at the end. A key that is added while it is worked on comes
    again after that. A key that comes forgets its delay: whoever works on it knows anew when to
    look again. `jitter` is from 0 to 1. Memory grows with the number of different keys only.

    What is looked at only because everything is, as at a start, waits behind what has changed, and
    gets at least every fifth turn.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        jitter: Callable[[], float] = random.random,
        observer: Observer | None = None,
        party: Callable[[K], Party] = nobody,
    ) -> None:
        self._clock, self._jitter, self._observer = clock, jitter, observer or Observer()
        self._wanted: dict[K, float] = {}  # since when
        self._party = party
        self._ready: Turns[K] = Turns()  # those wanted that nobody works on
        self._behind: Turns[K] = Turns()  # likewise, behind these
        self._in_a_row = 0
        self._taken = 0
        self._working: dict[K, Party] = {}
        self._delayed: dict[K, float] = {}  # until when
        self._heap: list[tuple[float, int, K]] = []  # the delays, with outdated ones
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._stir = asyncio.Event()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = float("inf")
        self._closed = False

    def __len__(self) -> int:
        """Return how many keys could be worked on now."""
        return len(self._ready) + len(self._behind)

    @property
    def waiting(self) -> int:
        """How many keys wait for a worker, with those that are worked on already."""
        return len(self._wanted)

    @property
    def working(self) -> int:
        """How many keys are worked on."""
        return len(self._working)

    @property
    def taken(self) -> int:
        """How many keys workers took since the start."""
        return self._taken

    @property
    def due(self) -> float:
        """Seconds until the next delay ends; infinite without delays."""
        return min(self._delayed.values(), default=float("inf")) - self._clock.monotonic()

    def enqueue(self, key: K) -> None:
        """Let the key come as soon as somebody is free."""
        if key in self._behind:
            self._behind.discard(key)
            self._ready.append(key, self._party(key))
        elif self._is_new(key):
            self._ready.append(key, self._party(key))
            self._stir.set()

    def enqueue_behind(self, key: K) -> None:
        """Let the key come after those that came by `add`."""
        if self._is_new(key):
            self._behind.append(key, self._party(key))
            self._stir.set()

    def _is_new(self, key: K) -> bool:
        """Note that the key is wanted; return whether it is to be lined up."""
        self._delayed.pop(key, None)
        if key in self._wanted or self._closed:
            return False
        self._wanted[key] = self._clock.monotonic()
        self._observer.added()
        return key not in self._working

    def enqueue_after(self, key: K, seconds: float) -> None:
        """Let the key come after a while; of several delays the earliest end counts."""
        if seconds <= 0:
            self.enqueue(key)
            return
        at = self._clock.monotonic() + seconds
        sooner = key in self._wanted or self._delayed.get(key, float("inf")) <= at
        if sooner or self._closed:
            return
        self._delayed[key] = at
        if len(self._heap) > _FEW + 2 * len(self._delayed):
            self._heap = [(at, next(self._order), key) for key, at in self._delayed.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at, next(self._order), key))
        if at < self._alarm_at:
            self._stir.set()

    def failed(self, key: K, *, at_least: float = 0.0, at_once: int = 0) -> None:
        """Let the key come again, later with each failure in a row, up to LONGEST_PAUSE.

        The first `at_once` failures in a row cost no pause. `at_least` seconds pass in any
        case, and may be more than LONGEST_PAUSE.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._observer.failed()
        pause = 0.0
        if failures >= at_once:
            pause = FIRST_PAUSE * 2.0 ** min(failures - at_once, _DOUBLINGS)
        # Many that failed together do not come again together.
        pause = min(pause, LONGEST_PAUSE) * (1 + self._jitter()) / 2
        self.enqueue_after(key, max(pause, at_least * (1 + self._jitter() / 10)))

    def succeeded(self, key: K) -> None:
        self._failures.pop(key, None)

    def hasten(self) -> None:
        """Let those keys come now that failed, and forget how often."""
        failed = list(self._failures)
        self._failures.clear()
        for key in failed:
            self.enqueue(key)

    async def take(self) -> K:
        """Return the key whose turn it is, as soon as there is one."""
        while True:
            self._ripen()
            lines = (self._ready, self._behind)
            for line in lines if self._in_a_row < _IN_A_ROW else lines[::-1]:
                try:
                    party, key = line.pop(lambda one: one.may_join(self._working.values()))
                except KeyError:
                    continue
                self._in_a_row = 0 if line is self._behind else self._in_a_row + 1
                self._working[key] = party
                self._taken += 1
                self._observer.taken(self._clock.monotonic() - self._wanted.pop(key))
                return key
            self._stir.clear()
            self._set_alarm()
            await self._stir.wait()

    def done(self, key: K) -> None:
        """Note the end of the work on the key, however it ended."""
        party = self._working.pop(key, NOBODY)
        if key in self._wanted:
            self._ready.append(key, self._party(key))
        if key in self._wanted or party.wide:  # work on another wide object may begin
            self._stir.set()

    def close(self) -> None:
        """Forget all keys, and take none any more. Only `done` may be called afterwards."""
        self._closed = True
        self._observer.dropped(len(self._wanted))
        lines = (self._wanted, self._ready, self._behind, self._delayed, self._heap)
        for forgotten in (*lines, self._failures):
            forgotten.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def _ripen(self) -> None:
        """Let those keys come whose delay has passed."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._delayed.get(key) == at:
                self.enqueue(key)

    def _set_alarm(self) -> None:
        if not self._heap or self._heap[0][0] >= self._alarm_at:
            return  # an alarm too early only costs a look
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = self._heap[0][0]
        self._alarm = asyncio.create_task(self._ring(self._alarm_at))

    async def _ring(self, at: float) -> None:
        await self._clock.sleep(at - self._clock.monotonic())
        self._alarm_at = float("inf")
        self._stir.set()
