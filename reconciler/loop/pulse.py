"""Whether the process still does its work, for a probe that may restart it."""

from collections.abc import Callable
from typing import Final

from reconciler.loop.clock import Clock

_BEAT: Final = 1.0
SILENCE: Final = 30.0  # seconds without a sign of life from the event loop


class Pulse:
    """Notes that the event loop turns. `ailment` may be asked from another thread.

    `else_wrong` tells what else is wrong with the process, without names of objects, or "".
    """

    def __init__(self, clock: Clock, else_wrong: Callable[[], str]) -> None:
        self._clock, self._else_wrong = clock, else_wrong
        self._beat_at = clock.monotonic()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(_BEAT)

    def ailment(self) -> str:
        """Return why the process is not healthy; "" if it is."""
        silent = self._clock.monotonic() - self._beat_at
        if silent > SILENCE:
            return f"the event loop has been stuck for {silent:.0f} s"
        return self._else_wrong()
