"""Who leads: one at a time, and what becomes of the lease."""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any

import pytest

from reconciler.controller.fence import Stopped
from reconciler.controller.leadership import LeaseLost
from reconciler.core.manifest import get_int, get_text, uid_of
from reconciler.core.refs import LEASE
from reconciler.kube.requests import Preconditions, Propagation
from tests.support import candidates
from tests.support.candidates import candidate, diary, live, times
from tests.support.cues import AFTER
from tests.support.eventually import eventually
from tests.support.faults import FaultyCluster, lost, on

__all__ = ["candidate", "diary", "live", "times"]


async def test_one_leads_and_gives_it_to_the_other_at_its_end(candidate, live, diary):
    first, second = candidate("first").start(), candidate("second")
    await first.leads()
    second.start()
    held = await live()
    assert get_text(held, "spec", "holderIdentity") == "first"
    assert get_int(held, "spec", "leaseDurationSeconds") == candidates.TIMES.duration
    assert (first.counted, second.counted) == (1, 0)
    first.done.set()
    await first.task
    assert first.counted == 0
    given_up = time.monotonic()
    await second.leads()
    # It did not have to wait until the lease ran out.
    began = next(at for name, at in diary if name == "second")
    assert began - given_up < candidates.TIMES.duration
    assert candidates.turns(diary) == ["first", "second"]
    assert get_int(await live(), "spec", "leaseTransitions") == 1
    with pytest.raises(Stopped):
        first.fence.check()


@pytest.mark.parametrize(("minutes", "terms"), [(0, 2), (-2, 1), (2, 1)])  # 2: a wrong clock
async def test_a_term_is_known_by_the_one_before_if_that_ended_just_now(
    candidate, live, minutes, terms
):
    first, second = candidate("first"), candidate("second")
    renewed = second.clock.now() + timedelta(minutes=minutes)
    first.clock.now = lambda: renewed
    await first.lease.make()
    await second.lease.take(await live())
    assert len(second.lease.terms) == terms


async def test_of_many_one_leads_at_a_time_and_all_have_their_turn(candidate, diary):
    inside = []

    def work_of(name):
        async def work():
            inside.append(name)
            assert inside == [name]
            await asyncio.sleep(0.05)
            assert inside == [name]
            inside.remove(name)
            diary.append((name, time.monotonic()))

        return work

    many = [candidate(f"c{index}").start(work_of(f"c{index}")) for index in range(5)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(each.task for each in many))
    assert sorted(candidates.turns(diary)) == [each.name for each in many]


@candidates.short
async def test_a_dead_leader_is_succeeded_when_its_lease_has_run_out(
    control_plane, candidate, diary
):
    cluster = FaultyCluster(control_plane.cluster)
    first = candidate("first", cluster).start()
    await first.leads()
    second = candidate("second").start()
    # It dies: nothing is renewed any more, and nothing given back.
    cluster.faults.add(on(), lost())
    last = time.monotonic() - first.lease.since_renewal
    first.task.cancel()
    await asyncio.gather(first.task, return_exceptions=True)
    await second.leads()
    began = next(at for name, at in diary if name == "second")
    assert began - last >= candidates.SHORT.duration
    assert candidates.turns(diary) == ["first", "second"]


async def test_a_lease_that_somebody_deleted_is_made_again(control_plane, candidate, live, diary):
    first = candidate("first").start()
    await first.leads()
    gone = await live()
    await control_plane.cluster.delete(
        first.ref, preconditions=Preconditions(uid_of(gone)), propagation=Propagation.BACKGROUND
    )

    async def again():
        now = await live()
        assert now is not None
        assert uid_of(now) != uid_of(gone)
        return now

    made: Any = await eventually(again)
    assert get_text(made, "spec", "holderIdentity") == "first"
    await candidates.renewed(live, made, times=2)
    assert candidates.turns(diary) == ["first"]


async def test_who_is_robbed_of_the_lease_stops(control_plane, candidate, live, diary):
    first = candidate("first").start()
    await first.leads()
    theft = {"spec": {"holderIdentity": "robber"}}
    await control_plane.cluster.merge_patch(first.ref, theft, manager="someone")
    with pytest.raises(LeaseLost, match="another holder took it over"):
        await first.task
    # It gives back only what is its own.
    assert get_text(await live(), "spec", "holderIdentity") == "robber"


async def test_a_process_that_was_stopped_writes_nothing_when_it_goes_on(candidate):
    first = candidate("first").start()
    await first.leads()
    first.clock.offset = candidates.TIMES.deadline
    with pytest.raises(Stopped, match="not renewed"):
        await first.fence.write(first.write)
    with pytest.raises(LeaseLost):
        await first.task


async def test_an_answer_that_is_lost_is_found_out(control_plane, candidate, live):
    cluster = FaultyCluster(control_plane.cluster)
    cluster.faults.add(on("create", kind=LEASE).nth(1), lost(), at=AFTER)
    first = candidate("first", cluster).start()
    await first.leads()
    assert get_text(await live(), "spec", "holderIdentity") == "first"


async def test_a_namespace_that_is_not_there_is_reported_and_waited_for(control_plane, caplog):
    nowhere = candidates.Candidate("first", control_plane.cluster, "not-there", [])
    nowhere.start()
    await eventually(lambda: "the lease cannot be acquired" in caplog.text)
    assert not nowhere.task.done()
    nowhere.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await nowhere.task


async def test_who_stops_waiting_leaves_the_lease_to_its_holder(candidate, live, diary):
    first, second = candidate("first").start(), candidate("second")
    await first.leads()
    second.start()
    await asyncio.sleep(0)
    second.task.cancel()
    await asyncio.gather(second.task, return_exceptions=True)
    await candidates.renewed(live, await live(), times=2)
    assert candidates.turns(diary) == ["first"]


async def test_who_is_cancelled_gives_the_lease_back_after_its_last_write(candidate, live, diary):
    first = candidate("first")
    sent, answered = asyncio.Event(), asyncio.Event()

    async def slow():
        sent.set()
        await answered.wait()
        await first.write()

    async def work():
        await first.fence.write(slow)

    first.start(work)
    await sent.wait()
    first.task.cancel()
    # The lease is renewed as long as the write is under way.
    await candidates.renewed(live, await live(), times=2)
    assert get_text(await live(), "spec", "holderIdentity") == "first"
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await first.task
    assert candidates.turns(diary) == ["first"]
    assert get_text(await live(), "spec", "holderIdentity") == ""


async def test_a_defect_of_the_work_ends_it_and_gives_the_lease_back(candidate, live):
    async def work():
        raise ZeroDivisionError

    first = candidate("first").start(work)
    with pytest.raises(ZeroDivisionError):
        await first.task
    assert get_text(await live(), "spec", "holderIdentity") == ""
