"""Who goes next; the places and the rate that are given so, with a clock that sleeping moves."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.refs import NAMESPACE, Ref
from reconciler.kube.turns import NOBODY, Party, Places, SharedReads, TokenBucket, Turns, act_for
from tests.support.fake_clock import settle

PARTIES = st.builds(Party, st.sampled_from("abc"), st.sampled_from("123"))
# Who arrives; where it is nobody, one goes.
STORIES = st.lists(st.one_of(st.none(), PARTIES), max_size=120)


class Waiting:
    """Counts which others went while somebody waited."""

    def __init__(self):
        self.lengths: Counter[Any] = Counter()
        self.others: dict[Any, Counter[Any]] = {}

    def came(self, one):
        if not self.lengths[one]:
            self.others[one] = Counter()
        self.lengths[one] += 1

    def went(self, one, beside):
        self.lengths[one] -= 1
        self.others[one] = Counter()
        for other, seen in self.others.items():
            if other != one and self.lengths[other] and beside(other):
                seen[one] += 1
                assert seen[one] == 1, f"{one} went twice while {other} waited"


@given(STORIES)
def test_of_others_none_goes_twice_while_one_waits_and_those_of_a_space_go_in_their_order(story):
    turns, owners, spaces = Turns[int](), Waiting(), Waiting()
    parties: dict[int, Party] = {}
    for number, arriving in enumerate(story):
        if arriving is not None:
            turns.append(number, arriving)
            parties[number] = arriving
            owners.came(arriving.owner)
            spaces.came(arriving)
        elif turns:
            party, gone = turns.pop()
            assert gone == min(n for n, one in parties.items() if one == party)
            assert parties.pop(gone) == party
            owners.went(party.owner, lambda _: True)
            spaces.went(party, lambda one, owner=party.owner: one.owner == owner)
        assert len(turns) == len(parties)
        assert all(n in turns for n in parties)


@given(st.lists(PARTIES, max_size=30), st.sets(st.integers(0, 29)), st.sets(PARTIES))
def test_what_is_given_up_leaves_no_trace_and_who_may_not_go_keeps_the_turn(came, given_up, barred):
    turns, plain = Turns[int](), Turns[int]()
    for number, party in enumerate(came):
        turns.append(number, party)
        if number not in given_up and party not in barred:
            plain.append(number, party)
    for number in given_up:
        turns.discard(number)
    for _ in range(len(plain)):
        assert turns.pop(lambda party: party not in barred)[0] in {
            p for p in came if p not in barred
        }
    with pytest.raises(KeyError):
        turns.pop(lambda party: party not in barred)
    assert len(turns) == sum(p in barred and n not in given_up for n, p in enumerate(came))


class FakeTime:
    def __init__(self):
        self.now = 100.0

    def read(self):
        return self.now

    async def sleep(self, seconds):
        for _ in range(5):  # who goes now notes the time before it moves
            await asyncio.sleep(0)
        self.now += seconds


class Calls:
    """Calls by a bucket, and when each was sent."""

    def __init__(self, time, bucket):
        self.time, self.bucket, self.sent = time, bucket, {}

    def call(self, *names, party=NOBODY):
        return [asyncio.create_task(self._run(name, party)) for name in names]

    async def _run(self, name, party):
        act_for(party)
        await self.bucket.take()
        self.sent[name] = round(self.time.now - 100, 6)


@pytest.fixture
def time():
    return FakeTime()


async def test_a_burst_passes_and_then_the_rate_holds(time):
    calls = Calls(time, TokenBucket(qps=10, burst=3, now=time.read, sleep=time.sleep))
    await asyncio.gather(*calls.call(*range(6)))
    assert calls.sent == {0: 0, 1: 0, 2: 0, 3: 0.1, 4: 0.2, 5: 0.3}


async def test_idle_time_gives_credit_up_to_the_burst_and_no_more(time):
    calls = Calls(time, TokenBucket(qps=10, burst=2, now=time.read, sleep=time.sleep))
    await asyncio.gather(*calls.call(0))
    time.now += 3600
    await asyncio.gather(*calls.call(1, 2, 3))
    assert [calls.sent[n] for n in (1, 2, 3)] == [3600, 3600, 3600.1]


async def test_a_wait_that_is_cancelled_costs_nobody_anything(time):
    calls = Calls(time, TokenBucket(qps=10, burst=1, now=time.read, sleep=time.sleep))
    await asyncio.gather(*calls.call("first"))
    for task in (given_up := calls.call(*range(50))):
        task.cancel()
    await asyncio.gather(*given_up, *calls.call("next"), return_exceptions=True)
    assert calls.sent == {"first": 0, "next": 0.1}


# Who has a thousand calls waiting, and how long one of `Party("b", "1")` then waits.
FLOODS = {
    "another owner": ([Party("a", "1")], 0.2),
    "fifty spaces of another": ([Party("a", str(n)) for n in range(50)], 0.2),
    "another space of its owner": ([Party("b", "2")], 0.2),
    "both": ([Party("a", "1"), Party("b", "2")], 0.4),
}


@pytest.mark.parametrize(("flooding", "within"), FLOODS.values(), ids=FLOODS)
async def test_a_thousand_calls_of_others_delay_one_by_its_turn(time, flooding, within):
    calls = Calls(time, TokenBucket(qps=10, burst=1, now=time.read, sleep=time.sleep))
    waiting = [
        task for n in range(1000) for task in calls.call(n, party=flooding[n % len(flooding)])
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    began = time.now
    await asyncio.gather(*calls.call("one", party=Party("b", "1")))
    assert calls.sent["one"] - (began - 100) <= within + 0.001
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


# So many places; whether it is all about wide objects; who begins at once.
PLACES = {"few": (2, False, ["a0", "a1"]), "one for all that is wide": (50, True, ["a0"])}


@pytest.mark.parametrize(("at_once", "wide", "first"), PLACES.values(), ids=PLACES)
async def test_places_are_given_in_turns_too(at_once, wide, first):
    places, began, ends = Places(at_once), [], asyncio.Event()

    async def run(name, party):
        async with places.turn(party):
            began.append(name)
            await ends.wait()

    names = [(f"a{n}", Party("a", str(n), wide)) for n in range(51)] + [("b", Party("b", "", wide))]
    tasks = [asyncio.create_task(run(*one)) for one in names]
    await settle()
    assert began == first
    ends.set()
    await asyncio.gather(*tasks)
    assert began.index("b") == len(first) + 1


async def test_each_answer_of_a_shared_read_is_of_a_call_after_the_question():
    sent = []

    async def get(ref, *, metadata_only):
        sent.append(asyncio.get_running_loop().create_future())
        return await sent[-1]

    reads, ref = SharedReads(cast(Any, SimpleNamespace(get=get))), Ref("app", NAMESPACE, "", "a")
    first = asyncio.create_task(reads.metadata(ref))
    await settle()
    gives_up, *later = (asyncio.create_task(reads.metadata(ref)) for _ in range(3))
    await settle()
    gives_up.cancel()  # which ends the call of no other
    sent[0].set_result({"seen": "early"})
    await settle()
    sent[1].set_exception(KeyError)
    assert await first == {"seen": "early"}
    assert [type(one) for one in await asyncio.gather(*later, return_exceptions=True)] == [
        KeyError
    ] * 2
    assert len(sent) == 2


async def test_who_keeps_a_place_for_long_holds_up_no_other():
    places, ends = Places(1), asyncio.Event()

    async def work(longest=None):
        async with places.turn(NOBODY, longest=longest):
            await ends.wait()

    slow = asyncio.create_task(work(0.01))
    await settle()
    async with asyncio.timeout(60), places.turn(NOBODY):
        ends.set()
        await slow  # which leaves a second time in vain
        waits = asyncio.create_task(work())
        await settle()
        assert not waits.done()
    await waits
