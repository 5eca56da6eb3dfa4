"""How often webhooks may cause a look at the source, and which of them were there before."""

import asyncio
from collections.abc import Callable
from typing import Final

from reconciler.controller.tasks import Clock

APART: Final = 2.0  # seconds from one look to the next
REMEMBERED: Final = 10_000


class Looks:
    """Causes looks, at most one per `APART`: what is asked for meanwhile is one look at its end."""

    def __init__(self, look: Callable[[], None], clock: Clock) -> None:
        self._look, self._clock = look, clock
        self._next_at = clock.monotonic()
        self._later: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Cause a look, now or soon."""
        if self._later is not None:
            return
        seconds = self._next_at - self._clock.monotonic()
        if seconds <= 0:
            self._do()
        else:
            self._later = asyncio.create_task(self._do_later(seconds))

    def close(self) -> None:
        """Cause nothing any more."""
        if self._later is not None:
            self._later.cancel()

    async def _do_later(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._later = None
        self._do()

    def _do(self) -> None:
        self._next_at = self._clock.monotonic() + APART
        self._look()


class Deliveries:
    """Remembers the last deliveries, the newest `REMEMBERED` of all hooks."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], None] = {}

    def is_new(self, hook: str, delivery: str) -> bool:
        """Remember a delivery, and tell whether it was not there before."""
        key = hook, delivery
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True
