"""The present state, and how it reaches those that show it."""

import asyncio

import pytest

from reconciler.watch.fleet_state import FleetState
from reconciler.watch.states import States

ONE, TWO, THREE = (FleetState(name=name) for name in ("one", "two", "three"))


async def test_a_state_that_is_there_is_not_waited_for():
    states = States(ONE)
    assert (states.now, states.version) == (ONE, 0)
    states.put(TWO)
    assert await states.next(0) == (1, TWO)
    assert states.now is TWO


async def test_those_that_are_slow_skip_what_came_between():
    states = States(ONE)
    waiting = [asyncio.create_task(states.next(0)) for _ in range(2)]
    await asyncio.sleep(0)
    states.put(TWO)
    states.put(THREE)
    assert await asyncio.gather(*waiting) == [(2, THREE), (2, THREE)]


async def test_a_waiter_that_gives_up_leaves_the_others_waiting():
    states = States(ONE)
    leaving, staying = (asyncio.create_task(states.next(0)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    states.put(TWO)
    assert await staying == (1, TWO)


def test_listeners_hear_of_each_change_until_they_leave():
    states, heard = States(ONE), []
    leave = states.listen(lambda before, after: heard.append((before.name, after.name)))
    states.put(TWO)
    states.put(THREE)
    leave()
    states.put(ONE)
    assert heard == [("one", "two"), ("two", "three")]


async def test_a_defect_of_a_listener_is_logged_and_in_nobodys_way(caplog):
    heard: list[str] = []
    states = States(ONE)
    states.listen(lambda *_: heard.remove("s3cret"))
    states.listen(lambda _, after: heard.append(after.name))
    waiting = asyncio.create_task(states.next(0))
    await asyncio.sleep(0)
    states.put(TWO)
    assert (await waiting, heard) == ((1, TWO), ["two"])
    assert "has a defect" in caplog.text
    assert "s3cret" not in caplog.text
    assert [vars(one)["error"] for one in caplog.records] == ["ValueError"]
