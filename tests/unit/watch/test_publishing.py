"""The present state of a fleet as a watch goes on, and how it reaches those that show it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from klutchctl.controller.rounds import Publishing
from reconciler.apply import Status
from reconciler.core.errors import ConfigError, InvalidRepository, Locked
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, RoundResult, SourceProblem
from reconciler.watch.loop import States
from tests.support import fleets
from tests.support.reports import report

ALL = Task(Trigger.SOURCE, None)
NOW = datetime(2026, 11, 26, 9, tzinfo=UTC)
FLEET = fleets.fleet()


@pytest.fixture
def states():
    return States(FleetState(name=""))


@pytest.fixture
def publishing(states):
    return Publishing(states, now=lambda: NOW, sentence=lambda error: f"said: {error}")


def test_the_files_that_are_in_use(publishing, states):
    publishing.read(FLEET, None, None)
    assert (states.now.name, states.now.fleet, states.now.source.read_at) == ("acme", FLEET, NOW)


PROBLEMS = {
    "not to be read": (ConfigError("gone", where="x"), SourceProblem.UNREADABLE, ""),
    "no fleet": (InvalidRepository((), revision="77aa"), SourceProblem.INVALID, "77aa"),
    "a defect": (KeyError("x"), SourceProblem.UNREADABLE, ""),
}


@pytest.mark.parametrize(("error", "want", "refused"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_why_the_files_are_not_used(error, want, refused, publishing, states):
    publishing.read(FLEET, None, None)
    publishing.unreadable(error)
    source = states.now.source
    assert (source.problem, source.why, source.refused) == (want, f"said: {error}", refused)
    assert states.now.fleet is FLEET


def test_a_round_from_its_begin_to_its_end(publishing, states):
    publishing.began(ALL)
    assert states.now.running == ALL
    publishing.ended(
        ALL, RoundResult(report(Status.DONE, Status.DONE, Status.FAILED, Status.HELD)), 2.5
    )
    (record,) = states.now.history
    assert states.now.running is None
    assert (record.result, record.done, record.failed) == ("partial", 2, 1)
    assert (record.seconds, record.ended_at) == (2.5, NOW)


FAILURES = {
    "locked": Locked("eu", "somebody", timedelta(seconds=3)),
    "failed": ConfigError("no kubeconfig", where="x"),
}


@pytest.mark.parametrize(("word", "error"), FAILURES.items(), ids=FAILURES.keys())
def test_a_round_that_failed_as_a_whole(word, error, publishing, states):
    publishing.began(ALL)
    publishing.failed(ALL, error, 1.0)
    (record,) = states.now.history
    assert (record.result, record.why, states.now.running) == (word, f"said: {error}", None)


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
    assert "state failed" in caplog.text
    assert "s3cret" not in caplog.text
    assert [vars(one)["error"] for one in caplog.records] == ["ValueError"]
