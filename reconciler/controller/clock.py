"""What time it is, passed in, so that waiting is tested without waiting."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as the loop needs it."""

    def now(self) -> datetime:
        """Return the time of day, in UTC, for what others will read."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for spans."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


def _now() -> datetime:
    return datetime.now(UTC)


class SystemClock:
    """The time of this machine; `now` may be given, for what others will read."""

    def __init__(self, now: Callable[[], datetime] = _now) -> None:
        self._now = now

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return self._now()

    def monotonic(self) -> float:
        """Return seconds since some start.

        Not the event loop's time: some loops read the clock only once per turn, and a process
        that was stopped in the middle of a turn would not notice.
        """
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)
