"""How many claims are marked before their copies exist."""

import asyncio

import pytest

from konnector.controllers.in_between import InBetween
from konnector.decisions.guard import FEW, Count
from reconciler.core.refs import ObjectKey

COPIES = {"a space that is empty": 0, "a few copies": 3, "some": 9, "many": 40}


def place(number: int) -> ObjectKey:
    return ObjectKey("dev", f"claim-{number}")


async def entered(room: InBetween, number: int) -> bool:
    """Enter, if there is room now."""
    try:
        async with asyncio.timeout(0):
            await room.enter(place(number))
    except TimeoutError:
        return False
    return True


async def fill(room: InBetween) -> int:
    """Enter as often as there is room; return how often that was."""
    inside = 0
    while await entered(room, inside):
        inside += 1
    return inside


@pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)
async def test_a_kill_leaves_less_than_a_loss(copies: int) -> None:
    inside = await fill(InBetween(lambda: copies))
    assert not Count("databases.example", inside, inside + copies).is_mass
    assert Count("databases.example", inside + 1, inside + 1 + copies).is_mass


async def test_who_waits_comes_in_when_another_leaves() -> None:
    room = InBetween(lambda: 0)
    assert await fill(room) == FEW
    waiting = asyncio.create_task(room.enter(place(10)))
    await asyncio.sleep(0)
    assert not waiting.done()
    room.leave(place(11))  # who is not inside makes no room
    await asyncio.sleep(0)
    assert not waiting.done()
    room.leave(place(0))
    await waiting
    assert not await entered(room, 0)


async def test_who_is_inside_needs_no_room() -> None:
    room = InBetween(lambda: 0)
    await fill(room)
    assert await entered(room, 3)
    room.leave(place(3))
    assert await entered(room, 20)
    assert not await entered(room, 3)
