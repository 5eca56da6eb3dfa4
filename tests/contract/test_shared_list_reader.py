"""One look at a control plane for many, held against what the cluster says itself."""

import asyncio
import uuid

import pytest
from reconciler.apply.shared_list_reader import SharedListReader

from reconciler.core.errors import NotServed
from reconciler.core.manifest import name_of, namespace_of
from reconciler.core.refs import LEASE, NAMESPACE, Kind, Ref
from reconciler.kube.cluster import ClusterWrapper
from reconciler.kube.requests import Preconditions, Propagation

MANAGER = "tests"
BASKET = Kind("shop.example", "v1", "Basket", "baskets")


class Counted(ClusterWrapper):
    """A cluster that counts the lists it is asked for."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.lists = []

    def pages(self, ref, query):
        self.lists.append((ref.kind, ref.namespace))
        return self.inner.pages(ref, query)


@pytest.fixture
async def spaces(control_plane):
    """Two namespaces with two Leases each; Kubernetes makes none of its own there."""
    cluster, names = (
        control_plane.cluster,
        [f"list-{uuid.uuid4().hex[:8]}" for _ in range(2)],
    )
    for name in names:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await cluster.create(made, NAMESPACE, manager=MANAGER)
        for item in ("a", "b"):
            await cluster.create(lease(name, item), LEASE, manager=MANAGER)
    yield names
    for name in names:
        await cluster.delete(
            Ref(cluster.name, NAMESPACE, "", name),
            preconditions=Preconditions(None),
            propagation=Propagation.BACKGROUND,
        )


def lease(namespace, name):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_a_glance_says_what_the_cluster_says(control_plane, spaces, metadata_only):
    cluster = control_plane.cluster
    shared_reader = SharedListReader(cluster)
    for namespace in (*spaces, "no-such-namespace"):
        how = {"namespace": namespace, "metadata_only": metadata_only}
        seen, said = await shared_reader.list(LEASE, **how), await cluster.list(LEASE, **how)
        assert list(seen.items) == list(said.items)
    for name in ("a", "absent"):
        ref = Ref(cluster.name, LEASE, spaces[0], name)
        one = await shared_reader.get(ref, metadata_only=metadata_only)
        assert one == await cluster.get(ref, metadata_only=metadata_only)


async def test_all_who_ask_cost_one_list_and_see_one_moment(control_plane, spaces):
    counted = Counted(control_plane.cluster)
    shared_reader = SharedListReader(counted)
    asked = [shared_reader.list(LEASE, namespace=one) for one in spaces * 10]
    found = await asyncio.gather(*asked)
    assert {(namespace_of(one), name_of(one)) for listing in found for one in listing.items} == {
        (space, item) for space in spaces for item in ("a", "b")
    }
    late = lease(spaces[0], "late")
    await control_plane.cluster.create(late, LEASE, manager=MANAGER)
    assert await shared_reader.get(Ref(counted.name, LEASE, spaces[0], "late")) is None
    assert counted.lists == [(LEASE, "")]


async def test_other_lists_are_the_clusters_own(control_plane, spaces):
    counted = Counted(control_plane.cluster)
    found = await SharedListReader(counted).list(
        LEASE, namespace=spaces[0], fields="metadata.name=a", metadata_only=True
    )
    assert list(map(name_of, found.items)) == ["a"]
    assert counted.lists == [(LEASE, spaces[0])]


async def test_a_list_that_fails_fails_for_all_who_asked(control_plane, spaces):
    shared_reader = SharedListReader(control_plane.cluster)
    answers = await asyncio.gather(
        *(shared_reader.list(BASKET, namespace=one) for one in spaces), return_exceptions=True
    )
    assert [type(one) for one in answers] == [NotServed, NotServed]
