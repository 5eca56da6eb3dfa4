"""A wrapped cluster and the real one behind it: what happened there is what the faults say."""

import pytest

from reconciler.core.errors import Unreachable
from reconciler.core.manifest import name_of
from reconciler.core.refs import CONFIG_MAP, Ref
from tests.support.cues import AFTER, BEFORE
from tests.support.faults import Events, lost, on, survives
from tests.support.faulty import FaultyCluster

MANAGER = "tests"


@pytest.fixture
def cluster(control_plane):
    return FaultyCluster(control_plane.cluster)


async def apply(cluster, namespace, name):
    metadata = {"name": name, "namespace": namespace}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await cluster.apply(manifest, CONFIG_MAP, manager=MANAGER, force=True)


async def apply_all(cluster, namespace):
    for name in "abc":
        await apply(cluster, namespace, name)


async def stored(control_plane, namespace):
    listing = await control_plane.cluster.list(CONFIG_MAP, namespace=namespace)
    return {name_of(item) for item in listing.items} - {"kube-root-ca.crt"}


@pytest.mark.parametrize(("at", "names"), [(BEFORE, set()), (AFTER, {"x"})])
async def test_what_was_lost_tells_whether_it_happened(
    at, names, cluster, control_plane, namespace
):
    cluster.faults.add(on("apply", name="x"), lost(), at=at)
    with pytest.raises(Unreachable) as caught:
        await apply(cluster, namespace, "x")
    assert caught.value.outcome_unknown
    assert await stored(control_plane, namespace) == names


@pytest.mark.parametrize(
    ("write", "at", "names"),
    [
        (1, BEFORE, ""),
        (1, AFTER, "a"),
        (2, BEFORE, "a"),
        (2, AFTER, "ab"),
        (3, BEFORE, "ab"),
        (3, AFTER, "abc"),
    ],
)
async def test_a_crash_can_be_had_at_every_write(
    write, at, names, cluster, control_plane, namespace
):
    cluster.faults.crash_at(write, at)
    assert not await survives(apply_all(cluster, namespace))
    assert await stored(control_plane, namespace) == set(names)


async def test_a_real_watch_is_cut_after_so_many_events(cluster, namespace):
    await apply_all(cluster, namespace)
    cluster.faults.add(on("watch"), lost(), at=Events(2))
    seen: list[str] = []
    with pytest.raises(Unreachable) as caught:
        await follow(cluster, namespace, seen.append)
    assert len(seen) == 2
    assert not caught.value.outcome_unknown


async def follow(cluster, namespace, seen):
    everything = Ref(cluster.name, CONFIG_MAP, namespace, "")
    async with cluster.watch(everything, resource_version="0") as events:
        async for event in events:
            seen(name_of(event.object))
