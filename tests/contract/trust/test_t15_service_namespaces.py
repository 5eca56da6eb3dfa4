"""T15: what a restore brings before its APIServiceNamespace is not swept away, live."""

from datetime import timedelta

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import Marks
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, is_deleting
from reconciler.core.refs import NAMESPACE
from tests.support import removal
from tests.support.backend import backend, idle
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.forward_clock import ForwardClock
from tests.support.offers import offered
from tests.support.served_spaces import APP, a_space, gone


async def test_a_namespace_of_the_original_outlives_a_restore_in_parts(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster, clock = control_plane.cluster, ForwardClock()
    async with offered(cluster, namespace=namespace) as offer, a_space(cluster, offer) as space:
        left = names.service_namespace(space.name, "left")
        mark = {keys.API_SERVICE_NAMESPACE: f"{space.name}/left"}
        made = spaces.namespace(left, marks=Marks(annotations=mark))
        try:
            async with backend(control_plane.connection, clock=clock) as running:
                await space.served()
                await cluster.create(made, NAMESPACE, manager="restore")
                for later in (timedelta(), timedelta(hours=2), timedelta(hours=2)):
                    clock.put_forward(later)
                    await idle(running)
                    live = await cluster.get(space.everywhere(NAMESPACE, left))
                    assert live is not None
                    assert not is_deleting(live)
        finally:
            await removal.remove(cluster, space.everywhere(NAMESPACE, left))


async def test_a_service_namespace_of_the_original_is_marked(
    control_plane: LiveCluster, namespace: str
) -> None:
    cluster = control_plane.cluster
    async with offered(cluster, namespace=namespace) as offer, a_space(cluster, offer) as space:
        mark = {keys.API_SERVICE_NAMESPACE: f"{space.name}/{APP}"}
        made = spaces.namespace(space.home, marks=Marks(annotations=mark))
        live = await cluster.create(made, NAMESPACE, manager="example-backend")
        mapping, status = space.ref(API_SERVICE_NAMESPACE, APP), {"namespace": space.home}
        await space.patch(mapping, {"status": status}, subresource="status")
        async with backend(control_plane.connection):
            await space.served()

            async def marked() -> bool:
                found = await cluster.get(space.everywhere(NAMESPACE, space.home))
                metadata = live["metadata"]
                assert isinstance(metadata, dict)
                said = annotations_of(found or {}).get(keys.MADE_AT)
                return bool(said == metadata["creationTimestamp"])

            await eventually(marked)
            # Seen beside its APIServiceNamespace, it goes with that.
            await removal.remove(cluster, mapping)
            await gone(cluster, space.everywhere(NAMESPACE, space.home))
