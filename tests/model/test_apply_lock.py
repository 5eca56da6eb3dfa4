"""The lock of an apply: one run at a time, and none that lost it writes on."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pygit2
import pytest

from reconciler.apply import GOOD, Options, Status
from reconciler.apply.lock import Lock
from reconciler.blueprints.objects import build
from reconciler.controller.fence import WriteFence
from reconciler.controller.tasks import SystemClock
from reconciler.core import names
from reconciler.core.errors import Forbidden, Locked, StalePlan
from reconciler.core.manifest import get_text
from reconciler.core.refs import EVENT, LEASE, NAMESPACE, Ref
from reconciler.observe import Pace
from reconciler.source import git
from tests.support.apply_runs import mode, runs, scene
from tests.support.checkouts import commit_files
from tests.support.eventually import eventually
from tests.support.faults import Faults, Meanwhile, deeds, faulty, forbidden, on
from tests.support.fleet_states import fleet
from tests.support.fleet_texts import control_plane

__all__ = ["mode", "runs", "scene"]


def undone(report):
    return [one for one in report.outcomes if one.status not in GOOD]


def lease_of(scene):
    return Ref(scene.plane.name, LEASE, names.KLUTCH_NAMESPACE, names.lock_lease(scene.fleet.name))


async def hold(scene, *, renewed=timedelta(0)):
    """Let another run hold the lock, which it renewed so long ago."""
    time = (SystemClock().now() - renewed).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    times = {"leaseDurationSeconds": 15, "acquireTime": time, "renewTime": time}
    ref = lease_of(scene)
    if await scene.is_gone(Ref(scene.plane.name, NAMESPACE, "", ref.namespace)):
        own = build(NAMESPACE, ref.namespace)
        await scene.plane.cluster.create(own, NAMESPACE, manager="tests")
    spec = {"holderIdentity": "another", **times}
    made = build(LEASE, ref.name, namespace=ref.namespace, spec=spec)
    await scene.plane.cluster.apply(made, LEASE, manager="another", force=True)


async def holder(scene):
    return get_text(await scene.at(lease_of(scene)), "spec", "holderIdentity")


async def test_a_run_that_meets_a_living_one_writes_nothing_and_names_it(scene, runs):
    await hold(scene)
    faults, held = Faults(), SystemClock().now()
    runs.now = lambda: held  # however long the plan takes before
    with pytest.raises(Locked, match=r"another, for \d s\. ") as caught:
        await runs.run(faults, break_lock=False)
    assert (caught.value.holder, faults.count_writes()) == ("another", 0)
    assert await holder(scene) == "another"


@pytest.mark.parametrize("ago", [20, -3600], ids=["late", "early by a clock"])
async def test_the_lock_of_a_dead_run_is_taken_over_and_given_back(ago, scene, runs):
    await hold(scene, renewed=timedelta(seconds=ago))
    async with scene.peers():
        assert undone(await runs.run(break_lock=False)) == []
    assert await holder(scene) == ""


@pytest.mark.parametrize("ago", [20, -3600], ids=["late", "early"])
async def test_a_holder_whose_clock_is_off_is_waited_for_as_long_as_it_may_write(ago, scene, runs):
    async def renew():
        await asyncio.sleep(8)
        await hold(scene, renewed=timedelta(seconds=ago))

    await hold(scene, renewed=timedelta(seconds=ago))
    async with asyncio.TaskGroup() as group:
        group.create_task(renew())
        with pytest.raises(Locked):
            await runs.run(break_lock=False)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "nobody can be told"])
async def test_a_broken_lock_is_recorded_where_that_is_possible(recorded, scene, runs):
    await hold(scene)
    events = on("create", kind=EVENT)
    faults = Faults() if recorded else faulty(events, forbidden())
    async with scene.peers():
        assert undone(await runs.run(faults, break_lock=True)) == []
    events = await scene.plane.cluster.list(EVENT, namespace=names.KLUTCH_NAMESPACE)
    notes = [one["note"] for one in events.items if one["regarding"]["kind"] == LEASE.kind]
    assert notes == ["run-1 took the lock over from another"] * recorded
    assert await holder(scene) == ""


@pytest.fixture
def apply(scene, tmp_path):
    """Take the lock for a commit, out of a clone."""
    whole = pygit2.init_repository(tmp_path / "whole", initial_head="main")
    commits = [commit_files(whole, {"f": f"{one}".encode()}) for one in range(4)]

    async def taken(number, clone="whole", **more):
        revision = commits[number] + "+dirty" * (number % 2)
        known = {"ancestors": git.ancestors(tmp_path / clone, revision, check_owner=False), **more}
        options = Options(holder=f"run-{number}", now=SystemClock().now, pace=Pace(), **known)
        lock = Lock(scene.plane.cluster, fleet(revision), options)
        async with lock.held(WriteFence(), break_it=False):
            pass

    return taken


@pytest.mark.parametrize(
    ("applied", "clone", "older"),
    [((0, 2), "whole", 0), ((3,), "whole", 1), ((0, 2), "none", 0)],
    ids=["applied before", "never applied", "no history"],
)
async def test_a_commit_that_a_later_one_follows_is_refused(apply, applied, clone, older):
    for one in applied:
        await apply(one, clone)
    with pytest.raises(StalePlan, match="git revert"):
        await apply(older, clone)
    await apply(applied[-1], clone)


async def test_a_branch_that_was_set_back_goes_on_from_there(apply):
    for one in (0, 3):
        await apply(one)
    await apply(1, ancestors=None)
    await apply(3)


async def test_a_run_that_is_cut_off_while_it_takes_the_lock_gives_it_back(scene, runs):
    async def cut_off():
        raise asyncio.CancelledError

    await hold(scene)
    with pytest.raises(asyncio.CancelledError):
        await runs.run(faulty(on("create", kind=EVENT), Meanwhile(cut_off)), break_lock=True)
    assert await holder(scene) == ""


async def test_a_run_that_lost_the_lock_starts_no_further_write(scene, runs):
    fence = WriteFence()

    async def is_stolen():
        """Another run takes the lock, and this one gets time to notice."""
        await hold(scene)
        await eventually(lambda: fence.closed)

    await hold(scene, renewed=timedelta(seconds=20))
    faults = faulty(deeds().nth(3), Meanwhile(is_stolen))
    async with scene.peers():
        report = await runs.run(faults, fence=fence)
    assert report.lock_lost
    assert "another holder took it over" in report.ended
    done = [one for one in report.outcomes if one.status is Status.DONE]
    rest = [one for one in report.outcomes if one.status is not Status.DONE]
    assert len(done) == len([c for c in faults.calls if deeds().matches(c)]) == 3
    assert {one.status for one in rest} == {Status.INTERRUPTED}
    assert await holder(scene) == "another"


@pytest.mark.parametrize("listed", [True, False], ids=["in the files", "leaving"])
async def test_a_plan_takes_the_lock_of_the_right_control_plane_whatever_it_says(
    listed, scene, runs, second_app_cluster
):
    scene.fleet.extra = f"---\n{control_plane('other', at='app-2', more=', mode: Direct')}"
    if not listed:
        async with scene.peers():
            await runs.finish()
        scene.fleet.listed = False
    await hold(scene)
    plan = await runs.plan()
    assert plan.sections == {"shop": "eu"}
    for sections in ({}, {"shop": "none"}, {"shop": "other"}):
        faults = Faults()
        with pytest.raises(StalePlan, match="shop"):
            await runs.run(faults, break_lock=False, approved=replace(plan, sections=sections))
        places = [call.ref.cluster for call in faults.calls if deeds().matches(call)]
        assert {*places} <= {"control-plane/other"}  # the namespace of the lock


async def test_a_fleet_without_any_lock_is_not_applied(scene, runs):
    async with scene.peers():
        with pytest.raises(Forbidden):
            await runs.run(faulty(on("get", kind=LEASE), forbidden()))
