"""A round that has begun, and what ends it."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from klutchctl.controller import rounds
from klutchctl.controller.rounds import Publishing, Rounds
from reconciler.apply import Status
from reconciler.controller.fence import Stopped
from reconciler.controller.tasks import now_here
from reconciler.core.decision import FieldChange
from reconciler.fleet import load
from reconciler.observe import Pace
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, RoundRecord, RoundResult
from reconciler.watch.loop import States
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


def ended(trigger: Trigger, *ends: Status) -> RoundRecord:
    states = States(FleetState(name="acme"))
    recorder = Publishing(states, now=now_here, sentence=str)
    found = report(*ends)
    fields = (FieldChange("/spec/claims", [], ["x"]),)
    lines = [replace(one, change=replace(one.change, fields=fields)) for one in found.outcomes]
    recorder.ended(Task(trigger, None), RoundResult(replace(found, outcomes=tuple(lines))), 1.0)
    return states.now.history[0]


def test_a_round_of_drift_names_what_it_repaired():
    first = "shop: update Namespace x /spec/claims"
    assert ended(Trigger.DRIFT, Status.DONE).why == first
    why = ended(Trigger.DRIFT, *[Status.DONE] * 5).why
    assert why.startswith(f"{first}; ")
    assert why.endswith("; and 2 more")
    assert ended(Trigger.SOURCE, Status.DONE).why == ""
    assert ended(Trigger.DRIFT, Status.DONE, Status.FAILED).why == ""
