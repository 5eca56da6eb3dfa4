"""The gate: nothing is written after it closes, and what was sent is waited for."""

import asyncio

import pytest

from reconciler.loop.gate import Gate, Stopped
from tests.support.fake_clock import settle


async def test_a_closed_gate_lets_no_write_start():
    gate, sent = Gate(), []

    async def write():
        sent.append(1)

    gate.close("the end")
    with pytest.raises(Stopped, match="the end"):
        await gate.write(write)
    assert sent == []


async def test_a_write_that_was_sent_is_waited_for_although_its_task_is_cancelled():
    gate, begun, go_on, done = Gate(), asyncio.Event(), asyncio.Event(), []

    async def write():
        begun.set()
        await go_on.wait()
        done.append(1)

    task = asyncio.create_task(gate.write(write))
    await begun.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


async def test_a_wait_ends_as_soon_as_the_gate_closes():
    gate = Gate()

    async def never():
        gate.close("interrupted")

    with pytest.raises(Stopped):
        await gate.until(never, seconds=3600)


async def test_a_wait_looks_at_least_once():
    async def look():
        return "seen"

    assert await Gate().until(look, seconds=0) == "seen"


async def test_the_first_reason_counts():
    gate = Gate()
    gate.close("a signal")
    gate.lose_lock("the lock")
    assert (gate.reason, gate.lock_lost) == ("a signal", False)


async def test_a_lock_that_was_lost_stays_lost():
    gate = Gate()
    gate.lose_lock("not renewed")
    gate.lose_lock("taken over")
    assert (gate.reason, gate.lock_lost) == ("not renewed", True)


async def test_a_fence_is_asked_before_each_write_and_only_while_it_stands():
    gate, lost = Gate(), [""]

    async def write():
        return "written"

    with gate.fenced(lambda: lost[0]):
        assert await gate.write(write) == "written"
    lost[0] = "not renewed"
    assert await gate.write(write) == "written"
    with gate.fenced(lambda: lost[0]), pytest.raises(Stopped, match="not renewed"):
        await gate.write(write)
    assert (gate.closed, gate.lock_lost) == (True, True)


async def test_a_write_is_waited_for_however_often_its_task_is_cancelled():
    gate, begun, go_on, done = Gate(), asyncio.Event(), asyncio.Event(), []

    async def write():
        begun.set()
        await go_on.wait()
        done.append(1)

    task = asyncio.create_task(gate.write(write))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await settle()
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


async def test_a_write_that_never_ends_can_be_given_up():
    gate, begun = Gate(), asyncio.Event()

    async def write():
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(gate.write(write))
    await begun.wait()
    task.cancel()
    await settle()
    assert not task.done()
    gate.abandon()
    with pytest.raises(asyncio.CancelledError):
        await task
