"""One look at a control plane for many, held against what the cluster says itself."""

import asyncio

import pytest

from reconciler.apply.waits import SharedListReader
from reconciler.core.errors import NotServed
from reconciler.core.manifest import name_of, namespace_of
from reconciler.core.refs import LEASE, NAMESPACE, Kind, Ref
from tests.support.faults import FaultyCluster

SPACES = ("list-a", "list-b")


@pytest.fixture
async def counted(control_plane, on_plane):
    """Count what a cluster is asked for, which has two namespaces with two Leases each."""
    for space in SPACES:
        await on_plane.create(NAMESPACE, space)
        for name in ("a", "b"):
            await on_plane.create(LEASE, name, namespace=space)
    return FaultyCluster(control_plane.cluster)


def lists(counted):
    return [(call.ref.kind, call.ref.namespace) for call in counted.faults.calls]


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_it_says_what_the_cluster_says(counted, metadata_only):
    reader = SharedListReader(counted)
    for namespace in (*SPACES, "no-such-namespace"):
        seen, said = [
            await one.list(LEASE, namespace=namespace, metadata_only=metadata_only)
            for one in (reader, counted)
        ]
        assert list(seen.items) == list(said.items)
    for name in ("a", "absent"):
        ref = Ref(counted.name, LEASE, SPACES[0], name)
        seen = await reader.get(ref, metadata_only=metadata_only)
        assert seen == await counted.get(ref, metadata_only=metadata_only)


async def test_all_who_ask_cost_one_list_and_see_one_moment(counted, on_plane):
    reader = SharedListReader(counted)
    found = await asyncio.gather(*(reader.list(LEASE, namespace=one) for one in SPACES * 10))
    assert {(namespace_of(one), name_of(one)) for listing in found for one in listing.items} == {
        (space, item) for space in SPACES for item in ("a", "b")
    }
    await on_plane.create(LEASE, "late", namespace=SPACES[0])
    assert await reader.get(Ref(counted.name, LEASE, SPACES[0], "late")) is None
    assert lists(counted) == [(LEASE, "")]


async def test_other_lists_are_the_clusters_own(counted):
    reader = SharedListReader(counted)
    found = await reader.list(
        LEASE, namespace=SPACES[0], fields="metadata.name=a", metadata_only=True
    )
    assert list(map(name_of, found.items)) == ["a"]
    assert lists(counted) == [(LEASE, SPACES[0])]


async def test_a_list_that_fails_fails_for_all_who_asked(counted):
    reader, basket = SharedListReader(counted), Kind("shop.example", "v1", "Basket", "baskets")
    asked = (reader.list(basket, namespace=one) for one in SPACES)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in answers] == [NotServed, NotServed]
