"""Checks before each write and wait that this process still holds its Lease."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from reconciler.controller.tasks import ended
from reconciler.http.stream import MAY_SEND

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class Stopped(Exception):
    """The run was ended: no write starts any more."""


class WriteFence:
    """Open until it is closed; then it stays so.

    A write that has been sent is always waited for: `write` finishes although its task is
    cancelled, because a write without an answer is a write of which nobody can tell. `outer` has to
    let a write through, too, and counts it among its own.
    """

    def __init__(self, outer: "WriteFence | None" = None) -> None:
        self._outer = outer
        self._closed = asyncio.Event()
        self._checks: list[Callable[[], str]] = []
        self._sent: set[asyncio.Future[Any]] = set()
        self.reason = ""
        self.lock_lost = False

    @property
    def closed(self) -> bool:
        """Whether no write may start any more."""
        return self._closed.is_set()

    @property
    def sent(self) -> int:
        """The number of writes without an answer yet."""
        return len(self._sent)

    def close(self, reason: str) -> None:
        """Let no further write start; the first reason counts."""
        self.reason = self.reason or reason
        self._closed.set()

    def lose_lock(self, reason: str) -> None:
        """Close, because another run may have begun."""
        self.lock_lost |= not self.closed
        self.close(reason)

    @contextmanager
    def checking(self, lost: Callable[[], str]) -> Iterator[None]:
        """Ask before each write of the block why the lock is lost; "" if it is held.

        A task that should close the fence in time may be late, as after a process was stopped.
        """
        self._checks.append(lost)
        try:
            yield
        finally:
            self._checks.remove(lost)

    def check(self) -> None:
        """Raise Stopped where no write may start."""
        for lost in self._checks:
            if not self.closed and (reason := lost()):
                self.lose_lock(reason)
        if self._outer is not None:
            try:
                self._outer.check()
            except Stopped as stopped:
                self.close(str(stopped))
        if self.closed:
            raise Stopped(self.reason)

    async def guarded(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; from now on its task sends no request once this closes. Raises Stopped."""
        self.check()
        MAY_SEND.set(self.check)
        return await call()

    async def write(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make one write, if any may be made. Raises Stopped."""
        self.check()
        task = asyncio.ensure_future(
            self._outer.write(partial(self.guarded, call)) if self._outer else self.guarded(call)
        )
        self._sent.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await ended(task)
            if not task.cancelled():
                task.exception()  # nobody is left to be told
            raise
        finally:
            self._sent.discard(task)

    def abandon(self) -> bool:
        """Wait no longer for the writes that were sent: their outcome stays unknown.

        Returns whether there were any.
        """
        for task in self._sent:
            task.cancel()
        return bool(self._sent)

    async def pause(self, seconds: float) -> None:
        """Sleep, or less where the fence closes in between. Raises Stopped then."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
        self.check()

    async def until(self, look: Callable[[], Awaitable[T | None]], *, seconds: float) -> T | None:
        """Return the result of `look`, or None where it has none in time.

        Looks at least once, and again after pauses that grow. Raises Stopped.
        """
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + seconds, _FIRST_PAUSE
        while True:
            found = await look()
            left = end - loop.time()
            if found is not None or left <= 0:
                return found
            await self.pause(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
