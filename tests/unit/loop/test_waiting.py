"""What comes of work that is waited for until somebody says stop."""

import asyncio

import pytest

from reconciler.loop.waiting import unless


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
