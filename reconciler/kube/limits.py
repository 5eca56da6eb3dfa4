"""How much one cluster may be asked at once, and how long an answer may take."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for the calls to one cluster. Times are in seconds, sizes in bytes.

    `deadline` bounds one call with all its repetitions, from when it is first sent: waiting
    for a free slot, for the rate or for a credential plug-in does not count. `read_timeout`
    bounds the silence inside an answer. `max_body` bounds one answer, `max_list` all pages of a
    list together.
    """

    concurrency: int = 32
    qps: float = 100.0
    burst: int = 300
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    deadline: float = 60.0
    max_body: int = 256 * 2**20
    max_list: int = 2**30


class TokenBucket:
    """Lets `qps` calls a second pass, after a burst; waiters leave in the order of arrival."""

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1.0 / qps
        self._credit = (burst - 1) * self._interval
        self._now, self._sleep = now, sleep
        self._reserved = float("-inf")  # until when calls have been promised

    async def take(self) -> None:
        """Return when the next call may be sent."""
        now = self._now()
        slot = max(self._reserved, now - self._credit)
        self._reserved = slot + self._interval
        if slot > now:
            try:
                await self._sleep(slot - now)
            except asyncio.CancelledError:
                self._reserved -= self._interval  # nothing will be sent in its place
                raise
