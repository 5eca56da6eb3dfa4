"""How many claims of a kind may be held and marked while their copy is still to be made.

A konnector that is killed then leaves so many marked claims without a copy. They must stay fewer
than what the guard takes for a loss: more than FEW, and more than half of the marked ones
(mapping.md 10), or a person would be asked to allow what nobody lost.
"""

import asyncio
from collections.abc import Callable

from konnector.decisions.guard import FEW
from reconciler.core.refs import ObjectKey


class InBetween:
    """Lets so many in at once as there are copies, but always a few. `copies` counts them."""

    def __init__(self, copies: Callable[[], int]) -> None:
        self._copies = copies
        self._inside: set[ObjectKey] = set()
        self._left = asyncio.Event()

    async def enter(self, place: ObjectKey) -> None:
        """Go in as soon as there is room; who is inside stays there until `leave`."""
        while place not in self._inside and self._is_full():
            self._left.clear()
            await self._left.wait()
        self._inside.add(place)

    def leave(self, place: ObjectKey) -> None:
        """Make room, where this place has taken some."""
        if place in self._inside:
            self._inside.discard(place)
            self._left.set()

    def _is_full(self) -> bool:
        return len(self._inside) >= FEW and len(self._inside) >= self._copies()
