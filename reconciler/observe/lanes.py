"""Who may read now: so many clusters at once, and no cluster at the cost of the others.

A cluster that does not even answer costs nobody anything: the first, small read of each is made
in the wide lane. What is read after that takes a slot, for `PATIENCE` seconds at most: a cluster
that hangs in the middle gives it back and goes on without.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

WIDE: Final = 256  # clusters with open connections at once; each may be a few files
PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`parallelism` clusters are read at once, each in `timeout` seconds of its own time."""

    parallelism: int = 32
    timeout: float = 60.0


class Lanes:
    """The lanes of one event loop. `patience` is in seconds."""

    def __init__(self, pace: Pace, *, wide: int = WIDE, patience: float = PATIENCE) -> None:
        self._timeout, self._patience = pace.timeout, patience
        self._slots = asyncio.Semaphore(pace.parallelism)
        self._wide = asyncio.Semaphore(max(wide, pace.parallelism))

    @asynccontextmanager
    async def turn(self) -> "AsyncIterator[Turn]":
        """Start a cluster's turn in the wide lane, with its clock running."""
        async with self._wide:
            clock = asyncio.timeout(self._timeout)
            async with clock:
                yield Turn(self, clock)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the slots for as long as the block lasts, or until patience ends."""
        await self._slots.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._slots.release()

        overdue = asyncio.get_running_loop().call_later(self._patience, give_back)
        try:
            yield
        finally:
            overdue.cancel()
            give_back()


class Turn:
    """One cluster's time. Raises TimeoutError in the block of `Lanes.turn` when it is up."""

    def __init__(self, lanes: Lanes, clock: asyncio.Timeout) -> None:
        self._lanes, self._clock = lanes, clock

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Take a slot. The clock stands still while others make this cluster wait."""
        loop = asyncio.get_running_loop()
        when = self._clock.when()
        left = 0.0 if when is None else when - loop.time()
        self._clock.reschedule(None)
        async with self._lanes.slot():
            self._clock.reschedule(loop.time() + left)
            yield
