"""A clock that runs, and that a test puts forward instead of waiting."""

import asyncio
import contextlib
from datetime import datetime, timedelta

from reconciler.controller.tasks import SystemClock


class SetClock(SystemClock):
    """A clock that is set to another time of day, while it goes on."""

    def __init__(self, off: timedelta = timedelta()) -> None:
        super().__init__()
        self.off = off

    def now(self) -> datetime:
        return super().now() + self.off


class ForwardClock:
    """The time of this machine, or later: whoever sleeps notices when the clock is put forward."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead = timedelta()
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        return self._system.now() + self._ahead

    def monotonic(self) -> float:
        return self._system.monotonic() + self._ahead.total_seconds()

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._moved.wait()

    def put_forward(self, by: timedelta) -> None:
        """Let so much time have passed."""
        self._ahead += by
        self._moved.set()
        self._moved = asyncio.Event()
