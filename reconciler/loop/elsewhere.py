"""Work in a thread of its own, with an event loop of its own: nobody who is busy holds it up."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from reconciler.loop.waiting import ended

T = TypeVar("T")


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
