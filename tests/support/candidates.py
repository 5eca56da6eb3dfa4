"""Processes that want to lead, and write into a diary for as long as they do."""

import asyncio
import itertools
import time
from typing import Any

import pytest

from reconciler.controller.fence import WriteFence
from reconciler.controller.leadership import Leadership
from reconciler.controller.lease import Lease, Times
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.core.manifest import get_text
from reconciler.core.refs import LEASE, Ref
from tests.support.eventually import eventually

TIMES = Times(duration=30, deadline=20.0, period=0.2)
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
        return self.metrics.registry.get_sample_value(STATUS, {"name": "work"})


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


async def renewed(live, before, *, times):
    for _ in range(times):

        async def later(before=before):
            now = await live()
            return now if renewal(now) != renewal(before) else None

        before = await eventually(later)


def renewal(lease):
    return get_text(lease, "spec", "renewTime")
