"""Turns at a broker: who gets them, and when nobody does."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from reconciler.blueprints.offering import outcomes
from reconciler.broker.gate import Gate
from reconciler.kube.turns import Party
from tests.support.fake_clock import settle

UNKNOWN = outcomes.Unknown("no answer in 60 s")
ANSWERS = [outcomes.Done(), outcomes.Accepted(), outcomes.Gone(), outcomes.Progress("failed")]
OTHERS = [
    outcomes.Denied(403, "x"),
    outcomes.Absent(is_json=False),
    outcomes.Refused("x", "busy"),
    outcomes.Refused("x", "conflict"),
    outcomes.Refused("x"),
]


@pytest.fixture
def gate(clock):
    return Gate(now=clock.monotonic)


def of(space):
    """Return the party of a space: in these names its owner is the first letter."""
    return Party(space[0], space)


class Callers:
    """Calls that last until they are ended, by the order in which they got their turns."""

    def __init__(self, gate):
        self.gate, self.began, self.ends, self.tasks = gate, [], {}, {}

    def call(self, space, name):
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(space, name))

    async def _run(self, space, name):
        async with self.gate.turn(of(space)):
            self.began.append(name)
            await self.ends[name].wait()

    async def end(self, *names):
        for name in names:
            self.ends[name].set()
        await settle()

    async def cancel(self, *names):
        for name in names:
            self.tasks[name].cancel()
        await settle()

    async def close(self):
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


@pytest.fixture
async def callers(gate):
    made = Callers(gate)
    yield made
    await made.close()


async def test_two_at_once_of_a_space_and_four_in_all(callers):
    for name in ("a1", "a2", "a3", "b1", "b2", "b3", "c1"):
        callers.call(name[0], name)
    await settle()
    assert callers.began == ["a1", "a2", "b1", "b2"]


async def test_a_space_that_floods_and_hangs_delays_no_other(callers):
    for number in range(1000):
        callers.call("flood", f"flood{number}")
    await settle()
    for number in range(3):
        callers.call("b", f"b{number}")
        await settle()
    assert callers.began == ["flood0", "flood1", "b0", "b1"]
    await callers.end("b0")
    assert callers.began[4:] == ["b2"]


async def test_an_owner_of_fifty_spaces_that_hang_leaves_a_turn_to_others(callers):
    for number in range(50):
        callers.call(f"a{number}", f"a{number}")
    await settle()
    assert callers.began == ["a0", "a1", "a2"]
    callers.call("b", "b")
    await settle()
    assert callers.began[3:] == ["b"]
    await callers.end("a0")
    assert callers.began[4:] == ["a3"]


async def test_spaces_that_wait_take_turns(callers):
    for name in ("a1", "a2", "b1", "b2", "c1", "c2", "c3", "d1", "d2", "a3"):
        callers.call(name[0], name)
    await settle()
    await callers.end("a1", "a2", "b1", "b2", "c1", "d1")
    assert callers.began[4:8] == ["c1", "d1", "a3", "c2"]
    assert set(callers.began[8:]) == {"d2", "c3"}


async def test_calls_that_are_given_up_leave_no_trace(callers):
    for name in ("a1", "a2", "a3", "a4", "a5"):
        callers.call("a", name)
    await settle()
    await callers.cancel("a3", "a1")
    assert callers.began == ["a1", "a2", "a4"]
    await callers.end("a2", "a4")
    assert callers.began[3:] == ["a5"]


async def test_a_turn_that_comes_in_the_moment_of_giving_up_goes_to_the_next(callers):
    for name in ("a1", "a2", "a3", "a4"):
        callers.call("a", name)
    await settle()
    callers.ends["a1"].set()
    await asyncio.sleep(0)  # it leaves, and a3 has the turn but was not resumed
    callers.tasks["a3"].cancel()
    await settle()
    assert callers.began == ["a1", "a2", "a4"]


async def test_a_turn_is_not_given_to_a_call_that_was_given_up(callers):
    for name in ("a1", "a2", "a3", "a4"):
        callers.call("a", name)
    await settle()
    callers.ends["a1"].set()
    callers.tasks["a3"].cancel()  # and does not know yet when a1 leaves
    await settle()
    assert callers.began == ["a1", "a2", "a4"]


async def test_a_call_that_fails_gives_its_turn_back(gate):
    for _ in range(5):
        with pytest.raises(OSError, match="x"):
            async with gate.turn(of("a")):
                raise OSError("x")
    async with AsyncExitStack() as stack:
        for space in ("a", "a", "b", "b"):
            await asyncio.wait_for(stack.enter_async_context(gate.turn(of(space))), 5)


def record(gate, *outcomes, space="a"):
    for outcome in outcomes:
        gate.record(outcome, space=space)


@pytest.mark.parametrize("outcome", [UNKNOWN, outcomes.Unsent("no connection")])
def test_five_in_a_row_without_a_word_close_it(gate, outcome):
    record(gate, *[outcome] * 4)
    assert gate.closed == ""
    record(gate, outcome)
    assert gate.closed == f"the broker does not answer: {outcome.problem}"


@pytest.mark.parametrize("answer", [*ANSWERS, *OTHERS])
def test_a_word_between_breaks_the_row(gate, answer):
    record(gate, *[UNKNOWN] * 4, answer, *[UNKNOWN] * 4)
    assert gate.closed == ""


@pytest.mark.parametrize("answer", [*ANSWERS, *OTHERS])
def test_any_word_opens_it(gate, answer):
    record(gate, *[UNKNOWN] * 5, answer)
    assert gate.closed == ""


def test_the_catalogue_is_asked_each_30_seconds_and_opens_it(gate, clock):
    assert gate.pause == 0
    record(gate, *[UNKNOWN] * 5)
    assert gate.pause == 30
    clock.jump(30)
    assert gate.pause == 0
    gate.record(UNKNOWN, catalogue=True)
    assert gate.pause == 30
    clock.jump(12)
    assert gate.pause == 18
    assert gate.closed != ""
    gate.record(outcomes.Done(), catalogue=True)
    assert (gate.closed, gate.pause) == ("", 0)


def test_calls_that_fail_while_the_catalogue_answers_close_it_once(gate):
    record(gate, *[UNKNOWN] * 5, space="poison")
    gate.record(outcomes.Done(), catalogue=True)
    record(gate, *[UNKNOWN] * 50, space="poison")
    assert gate.closed == ""
    record(gate, *[UNKNOWN] * 4, space="b")
    assert gate.closed == ""
    record(gate, UNKNOWN, space="b")
    assert gate.closed != ""


def test_until_a_call_of_that_space_is_answered(gate):
    record(gate, *[UNKNOWN] * 5)
    gate.record(outcomes.Done(), catalogue=True)
    record(gate, outcomes.Done(), *[UNKNOWN] * 5)
    assert gate.closed != ""


def test_a_catalogue_that_is_read_as_ever_makes_nobody_suspect(gate):
    record(gate, *[UNKNOWN] * 4)
    gate.record(outcomes.Done(), catalogue=True)
    record(gate, *[UNKNOWN] * 5)
    assert gate.closed != ""


def test_denied_credentials_are_not_tried_for_five_minutes(gate, clock):
    record(gate, outcomes.Denied(401, "who are you"))
    assert gate.closed == "the broker does not accept our credentials: who are you"
    clock.jump(299)
    assert gate.closed != ""
    clock.jump(1)
    assert gate.closed == ""
    record(gate, outcomes.Denied(401, "who are you"))
    assert gate.closed != ""


def test_denied_credentials_are_not_tried_at_the_catalogue_either(gate, clock):
    record(gate, outcomes.Denied(401, "x"))
    assert gate.pause == 300
    clock.jump(299)
    assert gate.pause == 1
    gate.use("digest-2")
    assert gate.pause == 0


def test_a_call_that_gets_a_403_each_time_has_the_catalogue_read_each_30_seconds(gate, clock):
    gate.record(outcomes.Done(), catalogue=True)
    clock.jump(29)
    record(gate, outcomes.Denied(403, "x"))
    assert not gate.doubted
    clock.jump(1)
    record(gate, outcomes.Denied(403, "x"))
    assert gate.doubted


def test_a_clock_that_was_put_back_opens_it(gate, clock):
    record(gate, outcomes.Denied(401, "x"))
    clock.jump(-10_000)
    assert gate.closed == ""


def test_other_credentials_are_tried_at_once(gate):
    gate.use("digest-1")
    record(gate, outcomes.Denied(401, "x"))
    gate.use("digest-1")
    assert gate.closed != ""
    gate.use("digest-2")
    assert gate.closed == ""


@pytest.mark.parametrize("answer", OTHERS[1:])
def test_what_a_gateway_could_say_does_not(gate, answer):
    record(gate, outcomes.Denied(401, "x"), answer)
    assert gate.closed != ""


def test_a_403_counts_where_the_catalogue_gets_it_too(gate):
    record(gate, outcomes.Denied(403, "x"))
    assert (gate.closed, gate.doubted) == ("", True)
    gate.record(outcomes.Denied(403, "x"), catalogue=True)
    assert (gate.closed != "", gate.doubted) == (True, False)
