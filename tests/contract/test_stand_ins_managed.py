"""The konnector's stand-in serves an AppClusterBinding, beside the backend."""

from bind.app_cluster.draining import PATIENCE
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.core.manifest import uid_of
from reconciler.core.refs import CRD
from tests.support.forward_clock import ForwardClock
from tests.support.stand_in_scenes import (
    Managed,
    gone,
    read,
    says,
    served,
    shown,
    until,
)


async def test_a_konnector_beside_the_control_plane_serves_the_app_cluster(
    managed: Managed,
) -> None:
    app, kind = managed.app.cluster, managed.offer.kind
    clock = ForwardClock()
    async with managed.backend(clock=clock), managed.konnector():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.binding(), "Ready"))
        await until(lambda: says(managed.read(CLUSTER_BINDING, "cluster"), "Healthy"))
        cluster = await managed.read(CLUSTER_BINDING, "cluster")
        assert shown(cluster) == [("Ready", "True"), ("Healthy", "True"), ("ValidVersion", "True")]
        crd = await read(managed.app, CRD, "", managed.offer.name)
        (owner,) = crd["metadata"]["ownerReferences"]
        assert owner["uid"] == uid_of(await managed.binding())
        await until(lambda: served(managed.app, kind))
        made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
        await app.create(made, kind, manager="developer")
        await until(lambda: managed.read(kind, "orders", managed.service_namespace))
        await managed.apply()
        await until(managed.drains)
        clock.put_forward(PATIENCE)
        await until(lambda: gone(managed.binding()))
        await until(lambda: gone(managed.export()))
        assert await managed.read(kind, "orders", managed.service_namespace) is not None
