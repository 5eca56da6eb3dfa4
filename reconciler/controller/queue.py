"""Queues keys with due times: each key once, and never at two workers at a time.

Decides about order, delays and backoff; does not know what a key stands for and what the work
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
# The lines: of what is half done, of what has changed, and of what is looked at anyway.
AHEAD, USUAL, BEHIND = range(3)


class Observer:
    """Observes the keys of a queue: this one does nothing."""

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
    again after that. A key that comes forgets its delay: whoever works on it knows again when to
    look again. `jitter` is from 0 to 1. Memory grows with the number of different keys only.

    Keys wait in lines, and of several that it is added to a key waits in the first. What is looked
    at only because everything is, as at a start, or because it is time, waits BEHIND what has
    changed; that waits behind what goes AHEAD. Each line gets at least every sixth turn.
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
        self._wanted: dict[K, tuple[float, int]] = {}  # since when, and in which line
        self._party = party
        self._lines: tuple[Turns[K], ...] = (Turns(), Turns(), Turns())  # that nobody works on
        self._passed = [0, 0, 0]  # keys that went before each line, in a row
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
        return sum(map(len, self._lines))

    @property
    def waiting(self) -> int:
        """The number of keys that wait for a worker, or have one."""
        return len(self._wanted)

    @property
    def working(self) -> int:
        return len(self._working)

    @property
    def taken(self) -> int:
        """The number of keys that workers took since the start."""
        return self._taken

    @property
    def due(self) -> float:
        """Seconds until the next delay ends; infinite without delays."""
        return min(self._delayed.values(), default=float("inf")) - self._clock.monotonic()

    def enqueue(self, key: K, line: int = USUAL) -> None:
        """Let the key come as soon as somebody is free, in the turn of its line."""
        self._delayed.pop(key, None)
        since, before = self._wanted.get(key, (None, BEHIND + 1))
        if before <= line or self._closed:
            return
        if since is None:
            since = self._clock.monotonic()
            self._observer.added()
        else:
            self._lines[before].discard(key)
        self._wanted[key] = since, line
        if key not in self._working:
            self._line_up(key, line)

    def _line_up(self, key: K, line: int) -> None:
        self._lines[line].append(key, self._party(key))
        self._stir.set()

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

    def forget(self, key: K) -> None:
        """Let a key come no more that waits, at once or later."""
        if (wanted := self._wanted.pop(key, None)) is not None:
            self._lines[wanted[1]].discard(key)
            self._observer.dropped(1)
        self._delayed.pop(key, None)
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
            late = [line for line in (USUAL, BEHIND) if self._passed[line] >= _IN_A_ROW]
            for line in (*late, AHEAD, USUAL, BEHIND):
                try:
                    party, key = self._lines[line].pop(
                        lambda one: one.may_join(self._working.values())
                    )
                except KeyError:
                    continue
                ahead, behind = self._passed[:line], self._passed[line + 1 :]
                self._passed = [*ahead, 0, *(passed + 1 for passed in behind)]
                self._working[key] = party
                self._taken += 1
                since, _ = self._wanted.pop(key)
                self._observer.taken(self._clock.monotonic() - since)
                return key
            self._stir.clear()
            self._set_alarm()
            await self._stir.wait()

    def done(self, key: K) -> None:
        """Note the end of the work on the key, however it ended."""
        party = self._working.pop(key, NOBODY)
        if key in self._wanted:
            self._line_up(key, self._wanted[key][1])
        elif party.wide:  # work on another wide object may begin
            self._stir.set()

    def close(self) -> None:
        """Forget all keys, and take none any more. Only `done` may be called afterwards."""
        self._closed = True
        self._observer.dropped(len(self._wanted))
        for line in self._lines:
            line.clear()
        for forgotten in (self._wanted, self._delayed, self._heap, self._failures):
            forgotten.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def _ripen(self) -> None:
        """Line up the keys whose delay has passed."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._delayed.get(key) == at:
                self.enqueue(key, USUAL if key in self._failures else BEHIND)

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
