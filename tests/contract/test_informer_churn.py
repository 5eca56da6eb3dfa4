"""Random changes and random faults: in the end the cache is the server, and all consumers know.

`SEEDS=20` makes more stories than three. Three run at once.
"""

import asyncio
import contextlib
import itertools
import os
import random

import pytest

from reconciler.core.refs import CONFIG_MAP
from reconciler.kube import limits
from reconciler.kube.client import KubeCluster
from reconciler.kube.informer import Informer
from reconciler.kube.limits import Limits
from tests.support import churn
from tests.support.churn import Consumer, following, seen, truth
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy

ACTS = 4
SECONDS = 20.0 / ACTS
AT_ONCE = 3
SEEDS = range(int(os.environ.get("SEEDS", AT_ONCE)))
BATCHES = [tuple(SEEDS[start : start + AT_ONCE]) for start in range(0, len(SEEDS), AT_ONCE)]


@pytest.fixture
async def hasty(control_plane):
    """The cluster past all faults, for the writers."""
    async with KubeCluster(control_plane.connection, limits=Limits(qps=1e4)) as cluster:
        yield cluster


@pytest.fixture
def restless(monkeypatch):
    """Short pauses, so that the faults meet an informer at work."""
    monkeypatch.setattr(limits, "_LONGEST_PAUSE", 0.5)


@pytest.mark.soak
@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("seeds", BATCHES, ids=str)
async def test_the_cache_ends_as_the_server_and_nobody_missed_the_end(control_plane, hasty, seeds):
    async with asyncio.TaskGroup() as stories:
        for seed in seeds:
            stories.create_task(story(control_plane, hasty, seed))


async def story(control_plane, hasty, seed):
    writes = churn.Writes(random.Random(f"writes {seed}"))
    rng = random.Random(f"faults {seed}")
    async with contextlib.AsyncExitStack() as stack:
        namespace = await stack.enter_async_context(churn.new_namespace(hasty))
        proxy = await stack.enter_async_context(FaultProxy(control_plane.connection))
        client = KubeCluster(proxy.connection, limits=churn.IMPATIENT)
        await stack.enter_async_context(client)
        informer = Informer(
            client, CONFIG_MAP, namespace=namespace, indexes=churn.INDEXES, silence=churn.SILENCE
        )
        consumer = Consumer(informer.store)
        await stack.enter_async_context(following(informer))
        reading = asyncio.create_task(consumer.run())
        stack.callback(reading.cancel)
        for act in range(ACTS):
            troubles = list(churn.faults(rng, SECONDS))
            async with asyncio.TaskGroup() as group:
                group.create_task(writes.make(hasty, namespace, SECONDS))
                group.create_task(churn.break_things(proxy, troubles))
            await is_the_server(informer, hasty, namespace, f"seed {seed}, act {act}")
        assert proxy.connections > 3 * ACTS, "the faults hit nothing"
        verdict(consumer, writes.touched, f"seed {seed}")


async def is_the_server(informer, cluster, namespace, when):
    """Wait for it after each act: a later list may make up for what was lost before."""

    async def probe():
        there = await truth(cluster, CONFIG_MAP, namespace)
        assert seen(informer.store) == there, when
        return True

    await eventually(probe)


def verdict(consumer, touched, when):
    consumer.read_all()
    assert consumer.backwards == [], when
    names = zip(itertools.repeat("name"), touched)
    teams = zip(itertools.repeat("team"), ("none", "red", "green", "blue"))
    for key in itertools.chain(names, teams):
        # What came and went within one outage was never there for anybody.
        assert consumer.last.get(key, []) == consumer.now(*key), f"{when}: {key}"
    # However slow the consumer, what waits for it is bounded by what there is.
    assert consumer.most <= len(touched) + 1 + 4
