"""T9: one tenant cannot spend what others need, on a real kube-apiserver.

`test_s04_wide_objects.py` has memory, `tests/model/test_backend_app_cluster_bindings.py` turns.
"""

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from reconciler.blueprints.objects import build
from reconciler.core import keys, names
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import get, labels_of
from reconciler.core.refs import NAMESPACE, RESOURCE_QUOTA, SECRET, Ref
from tests.support.backend import USUAL, backend, idle
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.forward_clock import ForwardClock
from tests.support.offers import CREDENTIALS, offered
from tests.support.served_spaces import Space, a_space


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
