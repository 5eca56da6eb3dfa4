"""The queue: each key once, never by two at a time, and when it comes again."""

import asyncio
from itertools import pairwise

import pytest

from reconciler.controller.queue import AHEAD, BEHIND, LONGEST_PAUSE, WorkQueue
from reconciler.kube.turns import Party
from tests.support.fake_clock import settle


class Taker:
    """Takes all keys that come, and notes when; with `hold`, does not say that it is done."""

    def __init__(self, clock, queue, *, hold=False):
        self.clock, self.queue, self.hold = clock, queue, hold
        self.taken = []
        self.at = []
        self._task = asyncio.create_task(self._run())

    async def _run(self):
        while True:
            key = await self.queue.take()
            self.taken.append(key)
            self.at.append(round(self.clock.monotonic(), 6))
            if not self.hold:
                self.queue.done(key)

    async def end(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.queue.close()


@pytest.fixture
async def queue(clock):
    made: WorkQueue[str] = WorkQueue(clock, jitter=lambda: 1.0)
    yield made
    made.close()


@pytest.fixture
async def taker(clock, queue):
    made = Taker(clock, queue)
    await settle()
    yield made
    await made.end()


async def test_keys_come_in_the_order_of_their_adding_each_once(queue, clock):
    for key in "abacb":
        queue.enqueue(key)
    assert len(queue) == 3
    taker = Taker(clock, queue)
    await settle()
    await taker.end()
    assert taker.taken == ["a", "b", "c"]


async def taken(queue, count):
    keys = []
    for _ in range(count):
        keys.append(await queue.take())
        queue.done(keys[-1])
    return "".join(keys)


async def test_what_changed_goes_before_what_is_looked_at_anyway_which_is_not_forgotten(queue):
    for key in "abcd":
        queue.enqueue(key, BEHIND)
    assert len(queue) == 4
    for key in "stuvwxyzc":
        queue.enqueue(key)
    assert len(queue) == 12
    assert await taken(queue, 12) == "stuvawxyzbcd"


async def test_what_is_half_done_goes_first_and_no_line_waits_for_ever(queue):
    for key in "abc":
        queue.enqueue(key)
    queue.enqueue("z", BEHIND)
    for key in "stuvwxyc":
        queue.enqueue(key, AHEAD)
    assert await taken(queue, 11) == "stuvazwxycb"


async def test_what_comes_with_time_waits_behind_what_has_changed_and_what_failed_does_not(
    queue, clock
):
    queue.enqueue_after("time", 1)
    queue.failed("failed", at_least=1)
    await clock.advance(2)
    queue.enqueue("changed")
    assert [await taken(queue, 1) for _ in range(3)] == ["changed", "failed", "time"]


async def test_what_changed_is_not_looked_at_twice(queue):
    queue.enqueue("a")
    queue.enqueue("a", BEHIND)
    assert await taken(queue, 1) == "a"
    queue.enqueue("b", BEHIND)
    assert await queue.take() == "b"
    queue.enqueue("b", BEHIND)  # while it is worked on
    assert len(queue) == 0
    queue.done("b")
    assert await taken(queue, 1) == "b"


async def test_a_key_is_never_worked_on_by_two_and_comes_again_after_an_add_meanwhile(queue, clock):
    taker = Taker(clock, queue, hold=True)
    queue.enqueue("a")
    await settle()
    queue.enqueue("a")
    queue.enqueue("a")
    queue.enqueue("b")
    await settle()
    assert taker.taken == ["a", "b"]
    queue.done("a")
    await settle()
    assert taker.taken == ["a", "b", "a"]
    queue.done("a")
    await settle()
    assert taker.taken == ["a", "b", "a"]
    await taker.end()


DELAYS = {
    "the earliest of several counts": ([5, 2, 9], [2]),
    "no delay is at once": ([0], [0]),
    "a negative delay is at once": ([-3], [0]),
    "what comes at once needs no delay": ([0, 4], [0]),
    "a delay is forgotten when the key comes sooner": ([4, 0], [0]),
}


@pytest.mark.parametrize(("delays", "times"), DELAYS.values(), ids=DELAYS.keys())
async def test_delays(queue, taker, clock, delays, times):
    for delay in delays:
        queue.enqueue_after("a", delay)
    await clock.advance(100)
    assert taker.at == times


async def test_delays_of_different_keys_do_not_hinder_each_other(queue, taker, clock):
    queue.enqueue_after("late", 8)
    await clock.advance(1)
    queue.enqueue_after("early", 1)
    queue.enqueue_after("between", 3)
    await clock.advance(100)
    assert list(zip(taker.taken, taker.at, strict=True)) == [
        ("early", 2),
        ("between", 4),
        ("late", 8),
    ]


async def test_a_delay_that_ends_during_work_brings_the_key_after_it(queue, clock):
    taker = Taker(clock, queue, hold=True)
    queue.enqueue("a")
    await settle()
    queue.enqueue_after("a", 1)
    await clock.advance(5)
    assert taker.taken == ["a"]
    queue.done("a")
    await settle()
    assert taker.taken == ["a", "a"]
    await taker.end()


async def test_delays_that_are_forgotten_over_and_over_leave_nothing_behind(queue, taker, clock):
    for _ in range(2_000):
        queue.enqueue_after("a", 3600)
        queue.enqueue("a")
        await settle_a_little()
    assert len(taker.taken) == 2_000
    assert len(queue._heap) < 200


async def settle_a_little():
    for _ in range(3):
        await asyncio.sleep(0)


async def pauses(queue, clock, failures, **how):
    """Work on a key that fails so many times in a row and is then left; return the pauses."""
    at = []

    async def work():
        for _ in range(failures):
            key = await queue.take()
            at.append(clock.monotonic())
            queue.failed(key, **how)
            queue.done(key)
        queue.done(await queue.take())
        at.append(clock.monotonic())

    queue.enqueue("a")
    working = asyncio.create_task(work())
    await clock.advance(1_000)
    assert working.done()
    return [round(after - before, 6) for before, after in pairwise(at)]


async def test_pauses_double_with_each_failure_in_a_row(queue, clock):
    assert await pauses(queue, clock, 4) == [0.005, 0.01, 0.02, 0.04]


async def test_the_first_failures_may_cost_no_pause(queue, clock):
    assert await pauses(queue, clock, 4, at_once=2) == [0, 0, 0.005, 0.01]


@pytest.mark.parametrize(("jitter", "longest"), [(0.0, LONGEST_PAUSE / 2), (1.0, LONGEST_PAUSE)])
async def test_pauses_are_scattered_and_never_longer_than_a_minute(clock, jitter, longest):
    queue: WorkQueue[str] = WorkQueue(clock, jitter=lambda: jitter)
    for _ in range(5_000):
        queue.failed("a")
        queue.enqueue("a")
        queue.done(await queue.take())
    queue.failed("a")
    taker = Taker(clock, queue)
    began = clock.monotonic()
    await clock.advance(longest - 0.001)
    assert taker.taken == []
    await clock.advance(0.002)
    assert taker.at == [began + longest]
    await taker.end()


async def test_success_makes_pauses_short_again(queue, clock):
    await pauses(queue, clock, 6)
    queue.succeeded("a")
    assert await pauses(queue, clock, 1) == [0.005]


async def test_a_server_that_asks_for_time_gets_it(queue, taker, clock):
    queue.failed("a", at_least=90)
    await clock.advance(89.9)
    assert taker.taken == []
    await clock.advance(10)
    assert taker.taken == ["a"]


async def test_news_end_a_pause(queue, taker, clock):
    queue.failed("a", at_least=90)
    await clock.advance(1)
    queue.enqueue("a")
    await clock.advance(200)
    assert taker.at == [1]


async def test_several_may_take(queue, clock):
    takers = [Taker(clock, queue, hold=True) for _ in range(3)]
    await settle()
    for key in "abc":
        queue.enqueue(key)
    await settle()
    assert sorted(key for taker in takers for key in taker.taken) == ["a", "b", "c"]
    for taker in takers:
        await taker.end()


async def test_what_failed_comes_at_once_when_hastened_and_what_is_only_delayed_does_not(
    queue, taker, clock
):
    for _ in range(20):
        queue.failed("failed")
        await clock.advance(LONGEST_PAUSE)
    queue.failed("failed")
    queue.enqueue_after("delayed", 30)
    before = clock.monotonic()
    queue.hasten()
    await settle()
    assert (taker.taken[-1], taker.at[-1]) == ("failed", before)
    queue.failed("failed")
    await clock.advance(1)
    assert taker.at[-1] - before < 1  # its failures were forgotten
    await clock.advance(100)
    assert (taker.taken[-1], taker.at[-1]) == ("delayed", before + 30)


async def test_a_key_that_is_worked_on_comes_again_when_hastened_if_it_had_failed(queue, clock):
    queue.failed("a")
    taker = Taker(clock, queue, hold=True)
    await clock.advance(1)
    assert taker.taken == ["a"]
    queue.hasten()
    queue.done("a")
    await settle()
    assert taker.taken == ["a", "a"]
    await taker.end()


async def test_parties_have_their_turns(clock):
    made = WorkQueue[str](clock, party=lambda key: Party(key[0]))
    for key in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        made.enqueue(key)
    made.enqueue("d1", BEHIND)
    taker = Taker(clock, made)
    await settle()
    assert taker.taken == ["a1", "b1", "c1", "a2", "d1", "b2", "a3", "a4"]
    await taker.end()


async def test_work_on_wide_objects_goes_on_one_by_one_beside_all_other(clock):
    made = WorkQueue[str](clock, party=lambda key: Party(key[0], wide=key[1] == "w"))
    made.enqueue("cw1", BEHIND)
    for key in ("aw1", "aw2", "bw1", "a1", "b1"):
        made.enqueue(key)
    taker = Taker(clock, made, hold=True)
    await settle()
    assert taker.taken == ["aw1", "b1", "a1"]
    for done, following in (("aw1", "bw1"), ("bw1", "cw1"), ("cw1", "aw2")):
        made.done(done)
        await settle()
        assert taker.taken[3:] == [following]
        taker.taken.remove(following)
    await taker.end()
