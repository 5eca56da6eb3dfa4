"""Which clusters are looked at again, and when; what a look that a round overtook is worth."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from klutchctl.controller.work import Pace, Paces, Relooks, due, paces
from reconciler.core.errors import ConfigError
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState
from reconciler.watch.loop import States
from tests.kit.virtual_time import VirtualLoop
from tests.support import fleets

NOW = datetime(2026, 11, 26, tzinfo=UTC)
FLEET = fleets.fleet(
    control_planes=[fleets.control_plane()],
    clusters=[fleets.app_cluster("shop"), fleets.app_cluster("cafe")],
)


def cluster(name, *states, whole=None):
    units = tuple(
        BoundUnit("b", UnitHealth(UnitKey(name, "g", f"r{n}"), state, "", ""))
        for n, state in enumerate(states)
    )
    return ClusterHealth(name, "eu", units, whole)


def board(*clusters):
    return Board("acme", "", NOW, clusters)


FIRST = {  # seconds until the next look
    "well": (cluster("shop", State.READY), 300),
    "on its way": (cluster("shop", State.READY, State.PROGRESSING), 1),
    "broken": (cluster("shop", State.DEGRADED), 1),
    "unknown": (cluster("shop", State.UNKNOWN), 1),
    "not read": (cluster("shop", whole=State.UNKNOWN), 1),
    "held back": (cluster("shop", whole=State.DEGRADED), 1),
}


@pytest.mark.parametrize(("one", "want"), FIRST.values(), ids=FIRST.keys())
def test_when_a_cluster_is_looked_at_again(one, want):
    found = paces({}, board(one), (), now=0.0, longest=300.0)
    again = paces(found, board(one), (), now=0.5, longest=300.0)
    assert found["shop"].at == again["shop"].at == want


STATES = {
    "the same": [State.DEGRADED],
    "another each time": [State.DEGRADED, State.PROGRESSING],
    "more and more": [State.DEGRADED, State.PROGRESSING, State.UNKNOWN, State.DEGRADED],
}


@pytest.mark.parametrize("states", STATES.values(), ids=STATES)
def test_what_is_not_well_is_looked_at_less_and_less_whatever_it_says(states):
    now, pauses = 0.0, []
    known: Paces = {}
    for n in range(12):
        one = cluster("shop", *states[: 1 + n % len(states)])
        known = paces(known, board(one), due(known, now), now=now, longest=300.0)
        pauses.append(known["shop"].at - now)
        now = known["shop"].at
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_what_a_round_finds_anew_is_looked_at_soon():
    known: Paces = {}
    for _ in range(6):
        known = paces(known, board(cluster("shop", State.DEGRADED)), ["shop"], now=0, longest=300)
    changed = paces(known, board(cluster("shop", State.PROGRESSING)), (), now=7.0, longest=300.0)
    assert changed["shop"].at == 8.0


def test_what_is_due_soon_is_looked_at_along():
    known: dict[str, Pace] = {}
    for name, now in (("shop", 0.0), ("cafe", 0.4), ("late", 3.0)):
        known |= paces({}, board(cluster(name, State.DEGRADED)), (), now=now, longest=300.0)
    assert due(known, 0.9) == frozenset()
    assert due(known, 1.0) == {"shop", "cafe"}


class Looks:
    """Looks that find a board; `during` happens while they read."""

    def __init__(self, found, during=lambda: None):
        self.found, self.during, self.asked = found, during, []
        self.ended = asyncio.Event()

    async def __call__(self, fleet, names):
        self.asked.append(sorted(names))
        self.during()
        self.ended.set()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


async def after_a_look(states, looks, interval=300.0):
    task = asyncio.create_task(Relooks(looks, interval=interval).run(states))
    async with asyncio.timeout(30):
        await looks.ended.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return states.now.board.clusters


BROKEN, WELL = cluster("shop", State.DEGRADED), cluster("shop", State.READY)


def operated():
    return States(FleetState(name="acme", fleet=FLEET, board=board(BROKEN)))


async def test_the_board_follows():
    looks = Looks(board(WELL))
    assert await after_a_look(operated(), looks) == (WELL,)
    assert looks.asked == [["shop"]]


def test_what_was_well_is_looked_at_before_a_round_is_due():
    states = States(FleetState(name="acme", fleet=FLEET, board=board(WELL)))

    async def looked_after():
        began = asyncio.get_running_loop().time()
        assert await after_a_look(states, Looks(board(BROKEN))) == (BROKEN,)
        return asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(looked_after()) < 20


async def test_a_round_knows_better():
    states = operated()
    running = replace(states.now, running=Task(Trigger.DRIFT, None))
    looks = Looks(board(WELL), during=lambda: states.put(running))
    assert await after_a_look(states, looks) == (BROKEN,)


async def test_a_look_that_fails_is_no_end():
    assert await after_a_look(operated(), Looks(ConfigError("no kubeconfig", where="x"))) == (
        BROKEN,
    )
