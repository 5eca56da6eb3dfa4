"""How many claims of a kind may be held and marked while their copy is still to be made.

A konnector that is killed then leaves so many marked claims without a copy. They must stay fewer
than what the guard takes for a loss: more than FEW, and more than half of the marked ones
(mapping.md 10), or a person would be asked to allow what nobody lost.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from konnector.decisions.guard import FEW


class InBetween:
    """Lets so many in at once as there are copies, but always a few. `copies` counts them."""

    def __init__(self, copies: Callable[[], int]) -> None:
        self._copies, self._inside = copies, 0
        self._left = asyncio.Event()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold one place for the length of the block, as soon as there is one."""
        while self._inside >= FEW and self._inside >= self._copies():
            self._left.clear()
            await self._left.wait()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._left.set()
