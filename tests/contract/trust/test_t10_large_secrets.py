"""T10: Secrets that anybody may call `kubeconfig` cost neither a plan nor an apply anything."""

import time
import uuid
from collections.abc import AsyncIterator

import pytest

from reconciler.api import CLUSTER_BINDING
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.live import ClusterState
from reconciler.core.manifest import JSON
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.fleet.values import Fleet
from reconciler.kube import registry
from reconciler.observe import observe
from tests.support.bound_scenes import remove
from tests.support.clusters import LiveCluster
from tests.support.observing import around, b64

# 700 kB of what takes a second to parse each.
LARGE = "current-context: x\nclusters:\n" + "- {a: [b, {c: d}]}\n" * 36_000


@pytest.fixture
async def flooded(control_plane: LiveCluster) -> AsyncIterator[LiveCluster]:
    """Twelve namespaces with such a Secret, of which one passes for a binding space."""
    cluster, run = control_plane.cluster, uuid.uuid4().hex[:8]
    places = [f"t10-{run}-{one}" for one in range(12)]
    for place in places:
        await cluster.create(spaces.namespace(place), NAMESPACE, manager="anybody")
        data = {"kubeconfig": b64(LARGE)}
        made = build(SECRET, names.KUBECONFIG, namespace=place, data=data)
        await cluster.create(made, SECRET, manager="anybody")
    reference: JSON = {"name": names.KUBECONFIG, "key": "kubeconfig", "namespace": places[0]}
    spec: JSON = {"kubeconfigSecretRef": reference, "providerPrettyName": "anybody"}
    binding = build(CLUSTER_BINDING, names.CLUSTER_BINDING, namespace=places[0], spec=spec)
    await cluster.create(binding, CLUSTER_BINDING, manager="anybody")
    yield control_plane
    for place in places:
        await remove(control_plane, NAMESPACE, "", place)


async def look(fleet: Fleet, live: LiveCluster, *, credentials: bool) -> float:
    """Return what a look costs, in seconds of the processor."""
    planes = {plane.name: plane.access for plane in fleet.control_planes.values()}
    began = time.process_time()
    async with registry.Registry(planes, around(live.kubeconfig)) as clusters:
        seen = await observe(fleet, clusters, credentials=credentials)
    assert all(isinstance(one, ClusterState) for one in seen.clusters.values()), seen.clusters
    return time.process_time() - began


@pytest.mark.parametrize("credentials", [False, True], ids=["plan", "apply"])
async def test_a_look_does_not_parse_them(
    fleet: Fleet, flooded: LiveCluster, credentials: bool
) -> None:
    assert len(LARGE) > 600_000
    await look(fleet, flooded, credentials=credentials)  # what is loaded once is loaded
    assert await look(fleet, flooded, credentials=credentials) < 1  # parsed, they take 12
