"""Who may read now, and who gives way."""

import asyncio

import pytest

from reconciler.observe.visits import Pace, ReadSlots


async def test_no_more_than_so_many_read_at_once() -> None:
    lanes = ReadSlots(Pace(parallelism=2), slot_seconds=60)
    inside, most = 0, 0

    async def read() -> None:
        nonlocal inside, most
        async with lanes.turn() as turn, turn.slot():
            inside += 1
            most = max(most, inside)
            for _ in range(5):
                await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(read() for _ in range(10)))
    assert most == 2


async def test_one_that_does_not_answer_at_first_takes_no_slot() -> None:
    lanes = ReadSlots(Pace(parallelism=1), slot_seconds=60)
    never, silent = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with lanes.turn():
            silent.set()
            await never.wait()

    hanging = asyncio.create_task(hang())
    await silent.wait()
    async with lanes.turn() as turn, turn.slot():
        assert not hanging.done()
    hanging.cancel()


async def test_one_that_hangs_in_the_middle_gives_its_slot_back_once() -> None:
    lanes = ReadSlots(Pace(parallelism=1), slot_seconds=0)
    never, holding = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with lanes.turn() as turn, turn.slot():
            holding.set()
            await never.wait()

    hanging = asyncio.create_task(hang())
    await holding.wait()
    async with lanes.turn() as turn, turn.slot():
        assert not hanging.done()
        never.set()
        await hanging
        inner = ReadSlots(Pace(parallelism=1), slot_seconds=60)
        async with inner.slot():
            pass


async def test_a_slot_comes_back_also_from_one_that_fails() -> None:
    lanes = ReadSlots(Pace(parallelism=1), slot_seconds=60)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            async with lanes.turn() as turn, turn.slot():
                raise ValueError("broken")


async def test_time_is_up_in_the_middle() -> None:
    lanes = ReadSlots(Pace(parallelism=1, timeout=0.01), slot_seconds=60)
    with pytest.raises(TimeoutError):
        async with lanes.turn() as turn, turn.slot():
            await asyncio.Event().wait()


async def test_waiting_for_others_is_not_a_clusters_own_time() -> None:
    """The second waits for longer than it has, and then still has it."""
    lanes = ReadSlots(Pace(parallelism=1, timeout=1), slot_seconds=60)
    first_may_end, second_waits = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with lanes.slot():
            await first_may_end.wait()

    async def second() -> str:
        async with lanes.turn() as turn:
            second_waits.set()
            async with turn.slot():
                return "read"

    holding = asyncio.create_task(first())
    reading = asyncio.create_task(second())
    await second_waits.wait()
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()
    loop.call_later(1.2, passed.set)
    await passed.wait()
    first_may_end.set()
    await holding
    assert await reading == "read"
