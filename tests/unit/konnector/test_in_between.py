"""How many claims are marked before their copies exist."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from konnector.controllers.in_between import InBetween
from konnector.decisions.guard import Count

COPIES = {"a space that is empty": 0, "a few copies": 3, "some": 9, "many": 40}


async def entered(room: InBetween, stack: AsyncExitStack) -> bool:
    """Enter, if there is room now."""
    try:
        async with asyncio.timeout(0):
            await stack.enter_async_context(room.one())
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)
async def test_a_kill_leaves_less_than_a_loss(copies: int) -> None:
    room, inside = InBetween(lambda: copies), 0
    async with AsyncExitStack() as stack:
        while await entered(room, stack):
            inside += 1
    assert not Count("databases.example", inside, inside + copies).is_mass
    assert Count("databases.example", inside + 1, inside + 1 + copies).is_mass


async def test_who_waits_comes_in_when_another_leaves() -> None:
    room = InBetween(lambda: 0)
    async with AsyncExitStack() as stack, AsyncExitStack() as late:
        while await entered(room, stack):
            pass
        waiting = asyncio.create_task(late.enter_async_context(room.one()))
        await asyncio.sleep(0)
        assert not waiting.done()
        await stack.aclose()
        await waiting
        others = AsyncExitStack()
        async with others:
            assert [await entered(room, others) for _ in range(5)] == [True] * 4 + [False]


async def test_whoever_fails_inside_leaves() -> None:
    room = InBetween(lambda: 0)
    for _ in range(20):
        with pytest.raises(RuntimeError):
            async with room.one():
                raise RuntimeError
