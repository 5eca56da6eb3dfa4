"""T9: one tenant cannot spend what others need, on a real kube-apiserver.

The numbers of trust.md are those of `make soak`. `tests/model/test_backend_app_cluster_bindings.py`
has the turns of tenants in less time.
"""

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.blueprints.objects import build
from reconciler.core import keys, names
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import get, get_text, labels_of
from reconciler.core.refs import NAMESPACE, RESOURCE_QUOTA, SECRET, Ref
from tests.support.backend import USUAL, backend, idle
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.forward_clock import ForwardClock
from tests.support.offers import CREDENTIALS, offered
from tests.support.replicas import Replica, replicas
from tests.support.served_spaces import Space, a_space, flood

HUGE = [15, *(pytest.param(n, marks=pytest.mark.soak) for n in (60, 400))]
MANY = 4000
MEBIBYTES = 2**20
PARAMETERS = {f"p{n}": "x" * 1000 for n in range(1300)}


async def settled(replica: Replica) -> None:
    """Wait until a process has nothing to do."""

    async def at_rest():
        _, text = await replica.ask("/metrics")
        busy = ("workqueue_depth{", "klutch_active_workers{")
        return all(line.endswith(" 0.0") for line in text.splitlines() if line.startswith(busy))

    await eventually(at_rest, within=120)


@pytest.mark.parametrize("huge", HUGE)
@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_large_requests_cost_no_memory(
    control_plane: LiveCluster, namespace: str, tmp_path: Path, huge: int
) -> None:
    cluster = control_plane.cluster
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as space,
        replicas(control_plane, namespace, tmp_path) as processes,
    ):
        first = await processes.start()
        await processes.leader(first)
        await space.served()
        await settled(first)
        before = first.memory()
        await flood(space, huge, parameters=PARAMETERS)
        await settled(first)
        # 400 cost as much; untrimmed, 60 cost 158.
        assert first.memory() - before < 20 * MEBIBYTES
        # A start lists all of them.
        second = await processes.start()
        await processes.stands_by(second)
        assert second.memory() - before < 60 * MEBIBYTES


@pytest.mark.soak
async def test_many_requests_of_one_tenant_delay_no_other(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as flooding,
    ):
        await flood(flooding, MANY)
        async with backend(control_plane.connection):
            began = time.monotonic()
            async with a_space(cluster, offer) as other:
                await other.has(other.export)
                took = time.monotonic() - began
                listing = await cluster.list(API_SERVICE_EXPORT_REQUEST, namespace=flooding.name)
    phases = [get_text(request, "status", "phase") for request in listing.items]
    # First come first served, none would be waiting by now.
    assert phases.count("Pending") > MANY / 10
    assert took < 2


async def refused(space: Space, manifest: Any, kind: Any) -> None:
    """Wait until the API server lets no more of a kind in."""

    async def full() -> bool:
        made = {**manifest, "metadata": {**manifest["metadata"], "name": f"f{time.time_ns()}"}}
        try:
            await space.cluster.create(made, kind, manager="tenant")
        except Forbidden as error:
            return "exceeded quota: klutch-bind" in str(error)
        return False

    await eventually(full)


async def test_spaces_hold_so_many_objects_and_no_more(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    clock = ForwardClock()
    clock.put_forward(timedelta(minutes=5))  # a CRD is not counted while it is new
    settings = replace(USUAL, space_quota=5, service_namespace_quota=7)
    async with (
        offered(cluster, namespace=namespace, claims=[CREDENTIALS]) as offer,
        a_space(cluster, offer) as space,
        backend(control_plane.connection, settings, clock=clock) as made,
    ):
        await space.served()
        await space.has(Ref(cluster.name, RESOURCE_QUOTA, space.home, names.QUOTA))
        await idle(made)
        quota = await space.at(space.ref(RESOURCE_QUOTA, names.QUOTA))
        assert get(quota, "spec", "hard") == {
            "count/apiserviceexportrequests.klutch.anynines.com": "5",
            "count/apiservicenamespaces.klutch.anynines.com": "5",
            "count/apiservicebindings.klutch.anynines.com": "5",
            "count/leases.coordination.k8s.io": "5",
            "count/secrets": "5",
        }
        of_home = await space.at(Ref(cluster.name, RESOURCE_QUOTA, space.home, names.QUOTA))
        assert get(of_home, "spec", "hard") == {f"count/{offer.name}": "7", "count/secrets": "7"}
        for full in (space.name, space.home):
            await refused(space, build(SECRET, "x", namespace=full), SECRET)
        labels = labels_of(await space.at(space.everywhere(NAMESPACE, space.name)))
        assert labels[keys.POD_SECURITY_ENFORCE] == "restricted"
