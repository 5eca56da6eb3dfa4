"""Waiting for what must come to its end although the waiter is told to go."""

import asyncio
from typing import Any


async def ended(task: asyncio.Future[Any]) -> None:
    """Return once the task has ended, whatever came of it.

    A caller that is cancelled meanwhile, however often, hears of it after that.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
