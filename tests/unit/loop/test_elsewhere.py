"""Work in a thread of its own goes on while others are busy, and ends with its caller."""

import asyncio
import threading
import time

import pytest

from reconciler.loop.elsewhere import in_thread


async def test_it_goes_on_while_the_caller_is_busy():
    seen = []

    async def work():
        for _ in range(5):
            await asyncio.sleep(0.01)
            seen.append(threading.current_thread().name)
        return "done"

    working = asyncio.create_task(in_thread(work, name="beside"))
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 - this is what it is to be busy
    assert seen == ["beside"] * 5
    assert await working == "done"


async def test_it_is_cancelled_with_its_caller_who_waits_for_its_end():
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    working = asyncio.create_task(in_thread(work, name="beside"))
    await asyncio.sleep(0.05)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert ended == [True]


async def test_what_it_raises_is_raised():
    async def work():
        raise KeyError("x")

    with pytest.raises(KeyError):
        await in_thread(work, name="beside")
