"""A round that has begun, and what ends it."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from klutchctl.controller import rounds
from klutchctl.controller.rounds import Rounds
from reconciler.controller.fence import Stopped
from reconciler.fleet import load
from reconciler.observe import Pace
from tests.support import fleets
from tests.support.eventually import eventually
from tests.support.reports import report

FLEET = fleets.fleet(control_planes=[fleets.control_plane("eu")], clusters=[], units=[])


@pytest.fixture
def made(monkeypatch):
    """Return rounds whose apply writes twice, a minute apart, and what it has written."""
    written: list[int] = []

    async def write():
        written.append(len(written))

    async def apply(fleet, plan, clusters, *, options, fence, observer):
        del clusters, options, observer
        if fleet.suspended is None:
            await fence.write(write)
            await fence.pause(60)
            await fence.write(write)
        await asyncio.sleep(0)
        return replace(report(), plan=plan, ended=fence.reason)

    monkeypatch.setattr(rounds, "apply", apply)
    monkeypatch.setattr(rounds, "_HEED", 0.001)
    settings: Any = SimpleNamespace(pace=Pace)
    return Rounds(settings, wait_seconds=1, on_outcome=lambda _: None), written


def of(made, fleet=FLEET):
    return made._apply(fleet, report().plan, None)


async def test_a_suspension_from_outside_ends_what_has_begun(made):
    why, (one, written) = [""], made
    one.heed(lambda: why[0])
    going = asyncio.create_task(of(one))
    await eventually(lambda: written)
    why[0] = "a migration"
    with pytest.raises(Stopped, match="the fleet is suspended: a migration"):
        await asyncio.wait_for(going, 10)
    assert written == [0]


async def test_a_round_of_a_suspended_fleet_comes_to_its_end(made):
    one, written = made
    one.heed(lambda: "a migration")
    found = await of(one, load.suspended(FLEET, "a migration"))
    assert (found.ended, written) == ("", [])
