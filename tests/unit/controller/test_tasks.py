"""What comes of work that a stop may end, and of work in a thread of its own."""

import asyncio
import threading
import time

import pytest

from reconciler.controller.tasks import in_thread, unless


async def test_work_that_ends_is_answered():
    async def work():
        await asyncio.sleep(0)
        return 7

    assert await unless(asyncio.Event(), work()) == 7


async def test_work_that_fails_fails():
    async def work():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await unless(asyncio.Event(), work())


async def test_work_that_is_stopped_is_cancelled_and_ends_first():
    stop, done = asyncio.Event(), []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    asyncio.get_running_loop().call_soon(stop.set)
    assert await unless(stop, work()) is None
    assert done == ["closed"]


async def test_who_waits_may_be_cancelled():
    done = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            done.append("closed")

    waiting = asyncio.create_task(unless(asyncio.Event(), work()))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["closed"]


async def test_work_in_a_thread_goes_on_while_the_caller_is_busy():
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


async def test_work_in_a_thread_is_cancelled_with_its_caller_who_waits_for_its_end():
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


async def test_what_work_in_a_thread_raises_is_raised():
    async def work():
        raise KeyError("x")

    with pytest.raises(KeyError):
        await in_thread(work, name="beside")
