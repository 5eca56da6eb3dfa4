"""Helpers for asyncio: time, waits, child tasks and threads of an owner.

What time it is comes from a Clock that is passed in, so that waiting is tested without waiting.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from reconciler.kube.host import uptime

S = TypeVar("S")
T = TypeVar("T")


class Clock(Protocol):
    """Time as the loop needs it."""

    def now(self) -> datetime:
        """Return the time of day, in UTC, for others to read."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for spans."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


def now_here() -> datetime:
    """Return the time of day, in UTC."""
    return datetime.now(UTC)


class SystemClock:
    """The time of this machine; `now` may be given, for what others will read."""

    def __init__(self, now: Callable[[], datetime] = now_here) -> None:
        self._now = now

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return self._now()

    def monotonic(self) -> float:
        """Return seconds since some start, also those for which this machine slept.

        Not the event loop's time: a process that was stopped in a turn, or whose machine slept,
        would not notice that its lease is another's by now.
        """
        return uptime()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)


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


def a_few(
    at_once: int, do: Callable[[S], Awaitable[T]], items: Iterable[S]
) -> list[Coroutine[Any, Any, T]]:
    """Return the work on all items, of which so many are done at once."""
    slots = asyncio.Semaphore(at_once)

    async def one(item: S) -> T:
        async with slots:
            return await do(item)

    return [one(item) for item in items]


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work, or None where `stop` is set before, which cancels it."""
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
    """Return the result of the work, which begins and ends in a new thread.

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


class Worker(Protocol):
    """Works until it is asked to stop, such as a Controller or an EventRecorder."""

    async def run(self) -> None:
        """Work until `stop`, and end the work under way."""

    def stop(self) -> None:
        """Begin nothing new."""


class TaskSupervisor:
    """The tasks of an owner, by name. A defect of one of them ends the owner.

    What is started before `run` begins with it.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._waiting: dict[Hashable, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._stops: dict[Hashable, Callable[[], None]] = {}
        self._stop = asyncio.Event()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._waiting or name in self._tasks

    def start(self, name: Hashable, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that is ended by cancelling it, such as a view. The name must be free.

        Nothing starts once the owner ends.
        """
        if self._group is None:
            self._waiting[name] = run
        elif not self._stop.is_set():
            work = run()
            try:
                self._tasks[name] = self._group.create_task(work)
            except RuntimeError:  # the owner was cancelled, or has a defect
                work.close()

    def start_worker(self, name: Hashable, worker: Worker) -> None:
        """Start a worker, which ends by itself after `stop`."""
        self._stops[name] = worker.stop
        self.start(name, worker.run)

    async def end(self, name: Hashable) -> None:
        """Let one stop, and wait until it has. Nothing where there is none of that name."""
        self._waiting.pop(name, None)
        task = self._tasks.get(name)
        self._halt(name)
        if task is not None:
            await ended(task)
            del self._tasks[name]

    def drop(self, name: Hashable) -> None:
        """Let one stop, and do not wait for it. Nothing where there is none of that name."""
        self._waiting.pop(name, None)
        self._halt(name)
        self._tasks.pop(name, None)

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Run them all until `stop`; raises the errors of all in a group."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for name, run in self._waiting.items():
                self._tasks[name] = group.create_task(run())
            self._waiting.clear()
            await self._stop.wait()
            for name in self._tasks:
                self._halt(name)

    def _halt(self, name: Hashable) -> None:
        stop = self._stops.pop(name, None)
        task = self._tasks.get(name)
        if stop is not None:
            stop()
        elif task is not None:
            task.cancel()
