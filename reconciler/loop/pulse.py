"""Whether the process still does its work, for a probe that may restart it."""

from typing import Final

from reconciler.loop.clock import Clock
from reconciler.loop.gate import Gate

_BEAT: Final = 1.0
SILENCE: Final = 30.0  # seconds without a sign of life from the event loop


class Pulse:
    """Notes that the event loop turns. `ailment` may be asked from another thread."""

    def __init__(self, clock: Clock, gate: Gate) -> None:
        self._clock, self._gate = clock, gate
        self._beat_at = clock.monotonic()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(_BEAT)

    def ailment(self) -> str:
        """Return why the process is not healthy, without names of objects; "" if it is."""
        silent = self._clock.monotonic() - self._beat_at
        if silent > SILENCE:
            return f"the event loop has been stuck for {silent:.0f} s"
        # It ends by itself then; where it cannot, a restart is better than a process that idles.
        return "the lease was lost" if self._gate.lock_lost else ""
