"""Who leads on a real API server: one at a time, whatever becomes of its connection."""

import asyncio
import contextlib
import itertools
import time
from dataclasses import replace
from typing import Any

import pytest

from reconciler.controller.clock import SystemClock
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.leadership import Leadership, LeaseLost
from reconciler.controller.lease import Lease, Times
from reconciler.controller.metrics import Metrics
from reconciler.core.manifest import get_int, get_text, uid_of
from reconciler.core.refs import LEASE, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support import http_faults
from tests.support import konnector as konnectors
from tests.support.backend import backend
from tests.support.cues import AFTER
from tests.support.cues import Gate as Held
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.faults import FaultyCluster, lost, on
from tests.support.tcp_proxy import STALLED, TcpProxy

# Roomy enough for a busy machine; renewals are a hundred times as often as they have to be.
TIMES = Times(duration=30, deadline=20.0, period=0.2)
# Where a request that hangs has to be given up, which takes half the deadline.
SHORTER = Times(duration=9, deadline=6.0, period=0.2)
# Where a lease has to run out.
SHORT = Times(duration=3, deadline=2.0, period=0.2)
MANAGER = "tests"
STATUS = "klutch_leader_election_master_status"


class Skewed(SystemClock):
    """The time of a process that may have been stopped for a while."""

    def __init__(self):
        super().__init__()
        self.offset = 0.0

    def monotonic(self):
        return super().monotonic() + self.offset


class Candidate:
    """Leads as soon as it can, and writes into the diary all the time that it does."""

    def __init__(self, name, cluster, namespace, diary, times=TIMES):
        self.name, self.diary = name, diary
        self.fence, self.clock, self.metrics = WriteFence(), Skewed(), Metrics()
        self.ref = Ref(cluster.name, LEASE, namespace, "work")
        self.lease = Lease(
            cluster, self.ref, holder=name, manager=MANAGER, clock=self.clock, times=times
        )
        self.leadership = Leadership(self.lease, self.fence, clock=self.clock, metrics=self.metrics)
        self.done = asyncio.Event()
        self.task: Any = None

    def start(self, work=None):
        self.task = asyncio.create_task(self.leadership.lead(work or self.write_on))
        return self

    async def write_on(self):
        while not self.done.is_set():
            await self.fence.write(self.write)
            await asyncio.sleep(0.005)

    async def write(self):
        self.diary.append((self.name, time.monotonic()))

    async def leads(self):
        def begun():
            if self.task.done():
                self.task.result()
            return any(name == self.name for name, _ in self.diary)

        await eventually(begun)

    @property
    def counted(self):
        labels = {"name": "work"}
        return self.metrics.registry.get_sample_value(STATUS, labels)


def turns(diary):
    """Return who wrote, in turns: one of each, unless two led at the same time."""
    return [name for name, _ in itertools.groupby(diary, key=lambda entry: entry[0])]


@pytest.fixture
def diary():
    return []


@pytest.fixture
def times():
    return TIMES


short = pytest.mark.parametrize("times", [SHORT], ids=["short"])


@pytest.fixture
async def candidate(control_plane, namespace, diary, times):
    made = []

    def make(name, cluster=control_plane.cluster):
        made.append(Candidate(name, cluster, namespace, diary, times))
        return made[-1]

    yield make
    for each in made:
        if each.task is not None:
            each.task.cancel()
            await asyncio.gather(each.task, return_exceptions=True)


@pytest.fixture
def live(control_plane, namespace):
    async def look():
        return await control_plane.cluster.get(Ref(control_plane.name, LEASE, namespace, "work"))

    return look


async def test_one_leads_and_gives_it_to_the_other_at_its_end(candidate, live, diary):
    first, second = candidate("first").start(), candidate("second")
    await first.leads()
    second.start()
    held = await live()
    assert get_text(held, "spec", "holderIdentity") == "first"
    assert get_int(held, "spec", "leaseDurationSeconds") == TIMES.duration
    assert (first.counted, second.counted) == (1, 0)
    first.done.set()
    await first.task
    assert first.counted == 0
    given_up = time.monotonic()
    await second.leads()
    # It did not have to wait until the lease ran out.
    began = next(at for name, at in diary if name == "second")
    assert began - given_up < TIMES.duration
    assert turns(diary) == ["first", "second"]
    assert get_int(await live(), "spec", "leaseTransitions") == 1
    with pytest.raises(Stopped):
        first.fence.check()


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
    assert sorted(turns(diary)) == [each.name for each in many]


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


@short
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
    assert began - last >= SHORT.duration
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


async def renewed(live, before, *, times):
    """Return when the lease was renewed so often."""
    for _ in range(times):

        async def later(before=before):
            now = await live()
            return now if renewal(now) != renewal(before) else None

        before = await eventually(later)


def renewal(lease):
    return get_text(lease, "spec", "renewTime")


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
    await renewed(live, made, times=2)
    assert turns(diary) == ["first"]


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
    first.clock.offset = TIMES.deadline
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


async def test_a_namespace_that_is_not_there_is_told_and_waited_for(control_plane, caplog):
    nowhere = Candidate("first", control_plane.cluster, "not-there", [])
    nowhere.start()
    await eventually(lambda: "the lease cannot be had" in caplog.text)
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
    await renewed(live, await live(), times=2)
    assert turns(diary) == ["first"]


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
    await renewed(live, await live(), times=2)
    assert get_text(await live(), "spec", "holderIdentity") == "first"
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await first.task
    assert turns(diary) == ["first"]
    assert get_text(await live(), "spec", "holderIdentity") == ""


async def test_a_defect_of_the_work_ends_it_and_gives_the_lease_back(candidate, live):
    async def work():
        raise ZeroDivisionError

    first = candidate("first").start(work)
    with pytest.raises(ZeroDivisionError):
        await first.task
    assert get_text(await live(), "spec", "holderIdentity") == ""


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
