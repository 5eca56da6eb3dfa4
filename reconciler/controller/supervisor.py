"""Tasks that come and go while their owner runs."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol

from reconciler.controller.tasks import ended


class Worker(Protocol):
    """What works until it is told to stop."""

    async def run(self) -> None:
        """Work until `stop`, and end what is under way."""

    def stop(self) -> None:
        """Begin nothing new."""


class TaskSupervisor:
    """What an owner started, by name. A defect of one of them ends the owner.

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

    def __len__(self) -> int:
        return len(self._waiting) + len(self._tasks)

    def start(self, name: Hashable, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start what is ended by cancelling it, such as a view. The name must be free."""
        if self._group is None:
            self._waiting[name] = run
        elif not self._stop.is_set():
            self._tasks[name] = self._group.create_task(run())

    def start_worker(self, name: Hashable, worker: Worker) -> None:
        """Start what ends by itself when it is told to stop."""
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
        """Let all stop."""
        self._stop.set()

    async def run(self) -> None:
        """Run them all until `stop`; raises what one of them raised, in a group."""
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
