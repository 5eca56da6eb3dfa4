"""A simulated crash leaves the world as a killed process does."""

import asyncio

import pytest

from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.cues import AFTER, BEFORE, Gate
from tests.support.faults import Crash, Faults, is_write, on, survives
from tests.support.faulty import FaultyCluster
from tests.unit.support.recorder import REF, Recorder, apply, numbers


async def three_writes(*clusters):
    for cluster in clusters:
        await cluster.get(REF)
        await apply(cluster, dry_run=True)
        await apply(cluster)
    await clusters[0].delete(
        REF, preconditions=Preconditions(uid=None), propagation=Propagation.BACKGROUND
    )


KILL_POINTS = [(write, at) for write in (1, 2, 3) for at in (BEFORE, AFTER)]


def two_clusters():
    faults, reals = Faults(), (Recorder(), Recorder())
    return faults, reals, [FaultyCluster(real, faults) for real in reals]


async def test_clusters_that_share_faults_count_their_writes_together():
    faults, _, clusters = two_clusters()
    await three_writes(*clusters)
    assert faults.count_writes() == 3, "reads and dry runs are no kill points"
    assert (faults.calls[0].verb, faults.calls[0].ref) == ("get", REF)


@pytest.mark.parametrize(("write", "at"), KILL_POINTS)
async def test_a_crash_leaves_exactly_the_writes_before_it(write, at):
    faults, reals, clusters = two_clusters()
    faults.crash_at(write, at)
    assert not await survives(three_writes(*clusters))
    done = [request for real in reals for request in real.done if is_write(request)]
    assert len(done) == (write if at is AFTER else write - 1)


async def test_the_dead_do_nothing_more():
    faults, reals, clusters = two_clusters()
    faults.add(on("get"), Crash())
    assert not await survives(clusters[0].get(REF))
    for cluster in clusters:
        assert not await survives(cluster.list(CONFIG_MAP))
        assert not await survives(numbers(cluster))
    assert [real.done for real in reals] == [[], []]


async def test_calls_in_flight_die_with_the_process_and_their_answers_are_not_heard():
    faults, reals, (one, other) = two_clusters()
    gate = Gate()
    faults.add(on("apply", name="slow"), gate, at=AFTER)
    faults.add(on("apply", name="fatal"), Crash())
    async with other.watch(REF, resource_version="1") as events:
        slow = asyncio.create_task(survives(apply(one, name="slow")))
        await gate.reached.wait()
        assert not await survives(apply(other, name="fatal"))
        gate.open()
        assert not await slow
        assert reals[0].verbs == ["apply"]
        assert not await survives(anext(events))


async def test_a_crash_passes_handlers_and_task_groups():
    _, _, clusters = two_clusters()
    clusters[0].faults.add(on(), Crash())

    async def stubborn():
        try:
            await clusters[0].get(REF)
        except Exception:  # what a last guard in a loop does
            pytest.fail("handled")

    async def program():
        async with asyncio.TaskGroup() as group:
            group.create_task(stubborn())
            group.create_task(asyncio.Event().wait())

    assert not await survives(program())


async def test_survivors_and_their_errors_are_told_from_crashes():
    async def fail():
        raise ValueError("mine")

    assert await survives(asyncio.sleep(0))
    with pytest.raises(ValueError, match="mine"):
        await survives(fail())
