"""Waiting: for what must end although the waiter is told to go, and for what must not."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what the work comes to, or None where `stop` is set before, which cancels it."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        await ended(working)
    return None if working.cancelled() else working.result()
