"""One election after another: what is lost is made anew, and what cannot be mended ends all."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from reconciler.controller.leadership import LeaseLost
from reconciler.controller.metrics import Metrics
from reconciler.controller.program import Elections
from tests.support.fake_clock import settle


class Manager:
    """Runs until it is told how to end."""

    def __init__(self):
        self.end = asyncio.get_running_loop().create_future()
        self.missing = "not read yet: Secrets"

    def unready(self):
        return self.missing

    async def run(self, stop):
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({self.end, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self.end.done():
            self.end.result()


class Liveness:
    def ailment(self):
        return ""

    async def run(self):
        await asyncio.Event().wait()


@dataclass
class Term:
    manager: Any
    liveness: Any
    metrics: Metrics


@pytest.fixture
def terms():
    return []


@pytest.fixture
async def elections(terms):
    def make():
        terms.append(Term(Manager(), Liveness(), Metrics()))
        return terms[-1]

    return Elections(make)


async def test_a_lost_lease_is_stood_for_again(elections, terms):
    stop = asyncio.Event()
    running = asyncio.create_task(elections.run(stop))
    await settle()
    assert elections.unready() == "not read yet: Secrets"
    terms[0].manager.end.set_exception(LeaseLost("not renewed for 10 s"))
    await settle()
    assert len(terms) == 2
    assert elections.unready() == (
        "the lease was lost (not renewed for 10 s); not read yet: Secrets"
    )
    terms[1].manager.missing = ""
    assert elections.unready() == ""
    stop.set()
    await running
    assert len(terms) == 2


async def test_a_write_that_nobody_knows_the_outcome_of_ends_the_process(elections, terms):
    running = asyncio.create_task(elections.run(asyncio.Event()))
    await settle()
    terms[0].manager.end.set_exception(LeaseLost("lost", unanswered=True))
    with pytest.raises(LeaseLost):
        await running
    assert len(terms) == 1


async def test_a_lease_that_is_lost_at_the_end_is_not_stood_for_again(elections, terms):
    stop = asyncio.Event()
    stop.set()
    terms[0].manager.end.set_exception(LeaseLost("lost"))
    await elections.run(stop)
    assert len(terms) == 1
