"""How long a fetched value is kept, when it is fetched anew, and what is done without."""

import asyncio
from collections import deque
from typing import NamedTuple

import pytest

from reconciler.core.errors import HostError
from reconciler.web.issuer import Kept
from tests.support.fake_clock import settle

AWAY = HostError("away")
MINUTES, HOURS = 60.0, 3600.0


class Source:
    """Answers as said: a text, or an error. Answers are held back while `gate` is shut."""

    def __init__(self, *answers: str | HostError) -> None:
        self.answers = deque(answers)
        self.fetches = 0
        self.time = 1_000_000.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.kept = Kept(self.fetch, now=lambda: self.time)

    async def fetch(self) -> str:
        self.fetches += 1
        await self.gate.wait()
        answer = self.answers.popleft()
        if isinstance(answer, HostError):
            raise answer
        return answer


class Step(NamedTuple):
    at: float
    fetched: str | HostError | None  # None: nothing is fetched
    got: str | HostError
    trouble: str = ""


STORIES = {
    "kept for ten minutes": (Step(0, "a", "a"), Step(9.9 * MINUTES, None, "a")),
    "fetched anew after them": (Step(0, "a", "a"), Step(10 * MINUTES, "b", "b")),
    "the last good one, while the provider is away": (
        Step(0, "a", "a"),
        Step(10 * MINUTES, AWAY, "a", "away"),
        Step(5 * HOURS, AWAY, "a", "away"),
        Step(24 * HOURS - 1, AWAY, "a", "away"),
    ),
    "not for more than a day": (
        Step(0, "a", "a"),
        Step(24 * HOURS - 10, AWAY, "a", "away"),
        Step(24 * HOURS, AWAY, AWAY, "away"),
        Step(24 * HOURS + 1, "b", "b"),
    ),
    "after a failure, again in 30 s": (
        Step(0, "a", "a"),
        Step(10 * MINUTES, AWAY, "a", "away"),
        Step(10 * MINUTES + 29, None, "a", "away"),
        Step(10 * MINUTES + 30, "b", "b"),
    ),
    "after a failure, at once where there is nothing": (
        Step(0, AWAY, AWAY, "away"),
        Step(0.1, "a", "a"),
    ),
    "a success begins another day": (
        Step(0, "a", "a"),
        Step(20 * HOURS, "b", "b"),
        Step(40 * HOURS, AWAY, "b", "away"),
    ),
    "a clock that was put back": (Step(0, "a", "a"), Step(-1, "b", "b")),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
async def test_current(story):
    source = Source()
    for number, step in enumerate(story):
        source.time = 1_000_000.0 + step.at
        source.answers = deque([] if step.fetched is None else [step.fetched])
        if step.got is AWAY:
            with pytest.raises(HostError, match="away"):
                await source.kept.current()
        else:
            assert await source.kept.current() == step.got, number
        assert not source.answers, f"{number}: nothing was fetched"
        assert source.kept.trouble == step.trouble, number


async def test_callers_share_a_fetch():
    source = Source("a")
    source.gate.clear()
    callers = [asyncio.create_task(source.kept.current()) for _ in range(100)]
    await settle()
    source.gate.set()
    assert await asyncio.gather(*callers) == ["a"] * 100
    assert source.fetches == 1


async def test_callers_share_a_failure():
    source = Source(AWAY)
    source.gate.clear()
    callers = [asyncio.create_task(source.kept.current()) for _ in range(100)]
    await settle()
    source.gate.set()
    assert await asyncio.gather(*callers, return_exceptions=True) == [AWAY] * 100
    assert source.fetches == 1


async def test_a_caller_that_goes_away_leaves_the_fetch_to_the_next():
    source = Source("a")
    source.gate.clear()
    first, second = (asyncio.create_task(source.kept.current()) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    source.gate.set()
    assert await second == "a"
    assert source.fetches == 2


async def test_newer_fetches_once_in_30_seconds():
    source = Source("a", "b", "c")
    first = await source.kept.current()
    second = await source.kept.newer(first)  # in the same moment as the first fetch
    assert second == "b"
    source.time += 29
    assert await source.kept.newer(second) is second
    source.time += 1
    assert await source.kept.newer(second) == "c"
    assert source.fetches == 3


async def test_a_thousand_callers_for_newer_share_a_fetch():
    source = Source("a", "b")
    first = await source.kept.current()
    source.gate.clear()
    callers = [asyncio.create_task(source.kept.newer(first)) for _ in range(1000)]
    await settle()
    source.gate.set()
    assert set(await asyncio.gather(*callers)) == {"b"}
    assert source.fetches == 2


async def test_newer_is_what_another_has_fetched_meanwhile():
    source = Source("a", "b")
    first = await source.kept.current()
    await source.kept.newer(first)
    source.time += 31
    assert await source.kept.newer(first) == "b"
    assert source.fetches == 2


async def test_newer_than_what_cannot_be_fetched_is_the_same():
    source = Source("a", AWAY, AWAY)
    first = await source.kept.current()
    for _ in range(10):
        assert await source.kept.newer(first) is first
    assert source.fetches == 2
    assert source.kept.trouble == "away"
    assert await source.kept.current() is first
