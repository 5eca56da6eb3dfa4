"""Who leads on a real API server whose connection is bad: one at a time."""

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from reconciler.controller.leadership import LeaseLost
from reconciler.controller.lease import Times
from reconciler.kube.client import KubeCluster
from tests.support import http_faults
from tests.support import konnector as konnectors
from tests.support.backend import backend
from tests.support.candidates import STATUS, candidate, diary, live, renewed, short, times, turns
from tests.support.cues import Gate as Held
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.tcp_proxy import STALLED, TcpProxy

__all__ = ["candidate", "diary", "live", "times"]

# Where a request that hangs has to be given up, which takes half the deadline.
SHORTER = Times(duration=9, deadline=6.0, period=0.2)


@short
async def test_a_leader_that_is_cut_off_stops_before_another_begins(
    control_plane, candidate, diary
):
    async with TcpProxy(control_plane.connection.server) as line:
        through = replace(control_plane.connection, server=line.url)
        async with KubeCluster(through) as cluster:
            first, second = candidate("first", cluster).start(), candidate("second")
            await first.leads()
            second.start()
            line.cut()
            line.refuse()
            with pytest.raises(LeaseLost, match=r"Lease .*/work: not renewed for 2 s"):
                await first.task
            diary.append(("first", time.monotonic()))
            await second.leads()
            assert turns(diary) == ["first", "second"]
            assert first.counted == 0


@short
async def test_a_write_that_hangs_is_given_up_before_another_begins(
    control_plane, candidate, diary
):
    async with TcpProxy(control_plane.connection.server) as line:
        through = replace(control_plane.connection, server=line.url)
        async with KubeCluster(through) as cluster:
            first = candidate("first", cluster)

            async def work():
                await first.fence.write(first.write)
                line.let(up=STALLED)
                try:
                    await first.fence.write(lambda: cluster.get(first.ref))
                finally:
                    await first.write()

            first.start(work)
            await first.leads()
            second = candidate("second").start()
            with pytest.raises(LeaseLost):
                await first.task
            await second.leads()
            assert turns(diary) == ["first", "second"]


@pytest.mark.parametrize("times", [SHORTER], ids=["shorter"])
async def test_a_request_that_hangs_costs_nothing(control_plane, candidate, live, diary):
    async with FaultProxy(control_plane.connection) as proxy:
        held = Held()
        proxy.add(http_faults.on("PATCH", r"/leases/work$").nth(2), held)
        async with KubeCluster(proxy.connection) as cluster:
            await candidate("first", cluster).start().leads()
            second = candidate("second").start()
            await held.reached.wait()
            before = await live()
            await renewed(live, before, times=3)
            assert turns(diary) == ["first"]
            held.open()  # the late renewal does no harm
            await renewed(live, await live(), times=2)
            assert turns(diary) == ["first"]
            assert not second.task.done()


async def test_a_storm_of_other_writers_costs_nothing(control_plane, candidate, live, diary):
    first = candidate("first").start()
    await first.leads()
    candidate("second").start()

    async def meddle():
        for index in itertools.count():
            patch = {"metadata": {"annotations": {"tests/count": str(index)}}}
            await control_plane.cluster.merge_patch(first.ref, patch, manager="someone")

    meddling = asyncio.create_task(meddle())
    try:
        await renewed(live, await live(), times=8)
    finally:
        meddling.cancel()
        await asyncio.gather(meddling, return_exceptions=True)
    assert turns(diary) == ["first"]


def leads(made):
    samples = [one for metric in made.metrics.registry.collect() for one in metric.samples]
    return [one.value for one in samples if one.name == STATUS] == [1.0]


async def test_a_backend_and_a_konnector_of_one_namespace_both_lead(control_plane, namespace):
    way = control_plane.connection
    settings = replace(konnectors.USUAL, leader_election=True, lease_namespace=namespace)
    async with (
        backend(way, leads=True, lease_namespace=namespace) as one,
        konnectors.konnector(way, settings) as other,
    ):
        await eventually(lambda: leads(one) and leads(other))
