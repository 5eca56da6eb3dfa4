"""A clock that stands still until a test moves it."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

_TURNS = 50  # of the event loop, in which whoever was woken goes on


class FakeClock:
    """`await clock.advance(60)`: a minute passes, and all that was due in it has happened."""

    def __init__(self) -> None:
        self._start = datetime(2026, 1, 1, tzinfo=UTC)
        self._passed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed + seconds, next(self._order), woken))
        await woken

    def jump(self, seconds: float) -> None:
        """Let time pass without anybody noticing, as when a process is stopped and goes on."""
        self._passed += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass, and wake sleepers in order, each at its time."""
        end = self._passed + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue
            self._passed = max(self._passed, at)
            woken.set_result(None)
            await settle()
        self._passed = end
        await settle()


async def settle() -> None:
    """Let all tasks go on that can."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
