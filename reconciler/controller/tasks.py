"""Waiting for tasks, and work in a thread of its own with an event loop of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
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


async def gather_or_cancel(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all of it at once; return the results in order.

    The first failure ends the rest, and is raised once the rest has ended: nothing writes any
    more when the lock is given back.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


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


async def in_thread(work: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> T:
    """Return what the work comes to, which begins and ends in a new thread.

    A caller that is cancelled cancels the work, and hears of it once that has ended.
    """
    here = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = here.create_future()
    loop = asyncio.new_event_loop()
    task: asyncio.Task[T] = loop.create_task(work())

    def run() -> None:
        loop.run_until_complete(asyncio.wait({task}))
        loop.run_until_complete(loop.shutdown_default_executor())
        here.call_soon_threadsafe(_hand_over, task, outcome)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        return await asyncio.shield(outcome)
    finally:
        if not outcome.done():
            loop.call_soon_threadsafe(task.cancel)
            await ended(outcome)
        if not outcome.cancelled():
            outcome.exception()  # whoever was cancelled does not ask
        thread.join()
        loop.close()


def _hand_over(task: "asyncio.Task[T]", outcome: "asyncio.Future[T]") -> None:
    if task.cancelled():
        outcome.cancel()
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())
