"""The backend serves AppClusterBindings, on a real kube-apiserver.

Names, labels, annotations, conditions with their order, reasons and severities are as recorded
from the original, but for what protocol-bind.md F mends.
"""

import pytest

from bind.app_cluster_binding.release import PATIENCE
from reconciler.api.bindings import APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.core import keys
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
)
from reconciler.core.refs import NAMESPACE, Ref
from tests.support.backend_stories import StandingClock
from tests.support.bound_scenes import (
    MANAGER,
    Managed,
    conditions,
    gone,
    new,
    remove,
    says,
    served,
    until,
)


@pytest.mark.parametrize("policy", ["Release", "Delete"])
async def test_an_app_cluster_binding_that_is_deleted_lets_go_in_order(
    managed: Managed, policy: str
) -> None:
    clock = StandingClock()
    kind = managed.offer.kind
    async with managed.backend(clock=clock), managed.konnector(clock=clock):
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.export(), "Connected"))
        await until(lambda: served(managed.app, kind))
        made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
        await new(managed.app, made, kind, manager="developer")
        await until(lambda: managed.read(kind, "orders", managed.service_namespace))
        await until(lambda: says(managed.read(CLUSTER_BINDING, "cluster"), "Healthy"))

        marks: Manifest = {"metadata": {"annotations": {keys.DELETION_POLICY: policy}}}
        ref = Ref(managed.plane.name, APP_CLUSTER_BINDING, managed.namespace, "shop")
        await managed.plane.cluster.merge_patch(ref, marks, manager=MANAGER)
        await remove(managed.plane, APP_CLUSTER_BINDING, managed.namespace, "shop")
        await until(managed.drains)
        await until(lambda: says(managed.itself(), "CleanedUp", "False", "Waiting"))
        message = conditions(await managed.itself())["CleanedUp"]["message"]
        assert f"APIServiceBinding {managed.offer.name}" in message
        marks = annotations_of(await managed.binding())
        assert marks[keys.DELETION_POLICY] == policy
        clock.put_forward(PATIENCE)
        if policy == "Delete":
            # Its data goes when it has gone itself; nobody deletes it on the developer's behalf.
            await until(lambda: says(managed.binding(), "Drained", "False", "DrainWaiting"))
            assert await managed.read(kind, "orders", managed.service_namespace) is not None
            await remove(managed.app, kind, managed.app_namespace, "orders")
        await until(lambda: gone(managed.itself()), within=180)

    assert await managed.binding() is None
    space = await managed.read(NAMESPACE, managed.space)
    if policy == "Delete":
        assert space is None
        return
    assert keys.RELEASED in annotations_of(space)
    assert await managed.export() is None
    assert await managed.read(kind, "orders", managed.service_namespace) is not None
