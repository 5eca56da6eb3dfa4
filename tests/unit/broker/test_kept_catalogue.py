"""Which catalogue of a broker holds, whatever comes after it."""

from typing import Any, cast

import pytest

from reconciler.blueprints.offering import outcomes
from reconciler.blueprints.offering.catalogue import Catalogue, Offering
from reconciler.broker.client import BrokerClient, BrokerFault
from reconciler.broker.gate import Gate, KeptCatalogue

GOOD = Catalogue((Offering("id", "database"),), "good")
EMPTY = Catalogue((), "empty")
SILENCE = BrokerFault(outcomes.Unknown("silence"))


class Clock:
    """Seconds, as a test sets them."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Answers:
    """What a broker answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def catalogue(self) -> Catalogue:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("Catalogue", answer)


async def kept(*answers: Any) -> tuple[KeptCatalogue, Gate, Clock]:
    clock = Clock()
    gate = Gate(now=clock)
    known = KeptCatalogue(gate, now=clock)
    client = cast("BrokerClient", Answers(*answers))
    for _ in answers:
        await known.read(client)
        clock.now += 1
    return known, gate, clock


@pytest.mark.parametrize(
    ("answers", "latest", "problem"),
    [
        ([GOOD], GOOD, ""),
        ([GOOD, EMPTY], GOOD, "it offers nothing"),
        ([GOOD, SILENCE], GOOD, "silence"),
        ([GOOD, SILENCE, GOOD], GOOD, ""),
        ([EMPTY], EMPTY, "it offers nothing"),
        ([EMPTY, GOOD], GOOD, ""),
        ([SILENCE], None, "silence"),
    ],
)
async def test_the_last_good_one_holds(answers, latest, problem):
    known, _, _ = await kept(*answers)
    assert (known.latest, known.problem) == (latest, problem)


@pytest.mark.parametrize(
    ("answer", "seconds", "is_fresh"),
    [(GOOD, 58, True), (GOOD, 59, False), (EMPTY, 0, True), (SILENCE, 0, False)],
)
async def test_it_is_fresh_for_a_minute_after_it_was_read(answer, seconds, is_fresh):
    known, _, clock = await kept(answer)
    clock.now += seconds
    assert known.is_fresh is is_fresh
