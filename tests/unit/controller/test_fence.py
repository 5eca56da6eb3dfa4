"""The fence: nothing is written after it closes, and what was sent is waited for."""

import asyncio

import pytest

from reconciler.controller.fence import Stopped, WriteFence
from tests.support.fake_clock import settle


async def test_a_closed_gate_lets_no_write_start():
    fence, sent = WriteFence(), []

    async def write():
        sent.append(1)

    fence.close("the end")
    with pytest.raises(Stopped, match="the end"):
        await fence.write(write)
    assert sent == []


async def test_a_wait_ends_as_soon_as_the_gate_closes():
    fence = WriteFence()

    async def never():
        fence.close("interrupted")

    with pytest.raises(Stopped):
        await fence.until(never, seconds=3600)


async def test_a_wait_looks_at_least_once():
    async def look():
        return "seen"

    assert await WriteFence().until(look, seconds=0) == "seen"


@pytest.mark.parametrize("is_lost", [False, True])
async def test_the_first_reason_counts(is_lost):
    fence = WriteFence()
    (fence.lose_lock if is_lost else fence.close)("the first")
    fence.lose_lock("taken over")
    assert (fence.reason, fence.lock_lost) == ("the first", is_lost)


async def test_a_fence_is_asked_before_each_write_and_only_while_it_stands():
    fence, lost = WriteFence(), [""]

    async def write():
        return "written"

    with fence.checking(lambda: lost[0]):
        assert await fence.write(write) == "written"
    lost[0] = "not renewed"
    assert await fence.write(write) == "written"
    with fence.checking(lambda: lost[0]), pytest.raises(Stopped, match="not renewed"):
        await fence.write(write)
    assert (fence.closed, fence.lock_lost) == (True, True)


async def test_a_write_is_waited_for_however_often_its_task_is_cancelled():
    fence, begun, go_on, done = WriteFence(), asyncio.Event(), asyncio.Event(), []

    async def write():
        begun.set()
        await go_on.wait()
        done.append(1)

    task = asyncio.create_task(fence.write(write))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await settle()
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


@pytest.mark.parametrize("at_the_outer_one", [False, True])
async def test_a_write_that_never_ends_can_be_given_up(at_the_outer_one):
    fence, begun = WriteFence(), asyncio.Event()

    async def write():
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task((WriteFence(fence) if at_the_outer_one else fence).write(write))
    await begun.wait()
    task.cancel()
    await settle()
    assert not task.done()
    assert fence.abandon()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fence_within_another_lets_through_what_both_do():
    outer = WriteFence()
    inner, sent = WriteFence(outer), []

    async def write():
        sent.append(1)

    await inner.write(write)
    outer.close("the lease was lost")
    with pytest.raises(Stopped, match="the lease was lost"):
        await inner.write(write)
    assert (sent, inner.reason, WriteFence().closed) == ([1], "the lease was lost", False)
