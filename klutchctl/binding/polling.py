"""Waits for what another party is to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    look: Callable[[], Awaitable[T | None]], *, seconds: float, every: float = 0.5
) -> T | None:
    """Return what `look` finds, or None where it finds nothing in time. It looks once at least."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (found := await look()) is None:
        left = end - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(every, left))
    return found
