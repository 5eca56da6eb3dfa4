"""Waiting for a condition instead of for a time, such as for a program that works."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, overload

from reconciler.controller.manager import Manager

T = TypeVar("T")


@overload
async def eventually(probe: Callable[[], Awaitable[T]], *, within: float = 60.0) -> T: ...
@overload
async def eventually(probe: Callable[[], T], *, within: float = 60.0) -> T: ...
async def eventually(probe: Callable[[], T | Awaitable[T]], *, within: float = 60.0) -> T:
    """Call `probe` until it returns something true, and return that.

    The time is for a busy machine, on which namespaces go slowly and API servers take seconds to
    serve a new kind. A failed assertion inside it counts as "not yet". After `within` seconds the
    test fails with the last value or assertion.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            answer = probe()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
            last = value
        except AssertionError as failure:
            last = failure
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s; last: {last!r}")
        # Looks cost the servers; whoever has waited for long waits a little longer.
        waited = time.monotonic() - deadline + within
        await asyncio.sleep(min(0.2, 0.03 + 0.05 * waited))


@asynccontextmanager
async def working(manager: Manager) -> AsyncIterator[None]:
    """Let it work, from when it has read all that it needs, until it has ended in order."""
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))

    def read() -> bool:
        if running.done():
            running.result()
        return not manager.unready()

    try:
        await eventually(read)
        yield
    finally:
        stop.set()
        await running
