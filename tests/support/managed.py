"""A program's manager that works while a test looks on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.controller.manager import Manager
from tests.support.eventually import eventually


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
