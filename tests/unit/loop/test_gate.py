"""The gate: nothing is written after it closes, and what was sent is waited for."""

import asyncio

import pytest

from reconciler.loop.gate import Gate, Stopped


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
