"""What was fetched and is kept: for how long, when it is fetched anew, and what is done without."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from reconciler.core.errors import KlutchError

T = TypeVar("T")

FRESH: Final = 600.0  # seconds in which nothing is fetched again
USABLE: Final = 86_400.0  # where it cannot be fetched again
PAUSE: Final = 30.0  # between fetches that fail, and between those out of turn


class Kept(Generic[T]):
    """A value that `fetch` brings. Callers at one time share one fetch, and its failure.

    `trouble` says why the last fetch failed, "" where it did not.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], *, now: Callable[[], float]) -> None:
        self._fetch, self._now = fetch, now
        self._value: T | None = None
        self._error: KlutchError | None = None
        self._fetched_at = self._failed_at = self._asked_at = float("-inf")
        self._fetches = 0
        self._turn = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """Why the last fetch failed; "" if it did not."""
        return str(self._error or "")

    async def current(self) -> T:
        """Return the value, fetched in the last ten minutes, or in the last day on failures.

        Raises what `fetch` raised where there is none.
        """
        if self._value is not None and self._is_good():
            return self._value
        fetches = self._fetches
        async with self._turn:
            if fetches == self._fetches:
                await self._try()
        if self._value is not None and self._is_usable():
            return self._value
        assert self._error is not None
        raise self._error.with_traceback(None)

    async def newer(self, than: T) -> T:
        """Return the value after a fetch out of turn, or `than` where there is nothing newer.

        There is one such fetch in 30 seconds: the reason for it is what anybody may send.
        """
        async with self._turn:
            if self._value is than and not within(PAUSE, self._asked_at, self._now()):
                self._asked_at = self._now()
                await self._try()
        return than if self._value is None else self._value

    def _is_good(self) -> bool:
        now = self._now()
        if within(FRESH, self._fetched_at, now):
            return True
        return self._is_usable() and within(PAUSE, self._failed_at, now)

    def _is_usable(self) -> bool:
        return within(USABLE, self._fetched_at, self._now())

    async def _try(self) -> None:
        began = self._now()
        try:
            self._value = await self._fetch()
        except KlutchError as error:
            self._error, self._failed_at = error, self._now()
        else:
            self._error, self._fetched_at = None, began
        self._fetches += 1


def within(seconds: float, start: float, now: float) -> bool:
    """Tell whether a time is in the past, and so near; a clock that was put back proves nothing."""
    return 0 <= now - start < seconds
