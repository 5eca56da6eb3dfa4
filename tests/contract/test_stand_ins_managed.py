"""The stand-ins serve AppClusterBindings, on real API servers.

What is expected was recorded from the originals: names, labels, annotations, finalizers,
conditions with their order, reasons and severities, field managers.
"""

from collections.abc import AsyncIterator

import pytest

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints import binding as blueprint
from reconciler.blueprints import space as spaces
from reconciler.blueprints.objects import Marks
from reconciler.core import keys
from reconciler.core.manifest import (
    annotations_of,
    finalizers_of,
    labels_of,
    name_of,
    uid_of,
)
from reconciler.core.refs import CRD, NAMESPACE, SECRET, SERVICE_ACCOUNT
from tests.support.clusters import LiveCluster
from tests.support.stand_in_offer import offered
from tests.support.stand_in_scenes import (
    ACCEPTED,
    MANAGER,
    Managed,
    gone,
    managed_scene,
    read,
    remove,
    says,
    served,
    shown,
    until,
)


@pytest.fixture
async def managed(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Managed]:
    async with managed_scene(control_plane, app_cluster, namespace) as managed:
        yield managed


async def test_an_app_cluster_binding_makes_a_space_and_binds(managed: Managed) -> None:
    labels = {
        "klutch.anynines.com/appclusterbinding-name": "shop",
        "klutch.anynines.com/appclusterbinding-namespace": managed.namespace,
    }
    async with managed.backend():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "Ready"))
        request = await until(managed.answered)

    live = await managed.itself()
    assert shown(live) == [
        ("Ready", "True"),
        ("KonnectorDeployed", "True"),
        ("SecretValid", "True"),
    ]
    assert finalizers_of(live) == ["klutch.anynines.com/appclusterbinding-cleanup"]
    space = await managed.read(NAMESPACE, managed.space)
    assert annotations_of(space) == {}
    copied = await managed.read(SECRET, "shop-kubeconfig")
    source = await managed.read(SECRET, "shop-kubeconfig", managed.namespace)
    assert (copied["data"], labels_of(copied)) == (source["data"], labels)
    assert await managed.read(SERVICE_ACCOUNT, "klutch-binder") is not None
    cluster = await managed.read(CLUSTER_BINDING, "cluster")
    assert labels_of(cluster) == labels
    assert cluster["spec"] == {
        "providerPrettyName": "shop",
        "kubeconfigSecretRef": {"name": "shop-kubeconfig", "key": "kubeconfig"},
    }
    binding = await managed.binding()
    assert labels_of(binding) == labels
    reference = {"name": "shop-kubeconfig", "key": "kubeconfig", "namespace": managed.space}
    assert binding["spec"] == {"kubeconfigSecretRef": reference}
    assert labels_of(request) == labels
    assert name_of(request).startswith("appclusterbinding-shop-databases-")
    assert await managed.export() is not None


async def test_bindings_that_are_there_keep_their_claims(managed: Managed) -> None:
    """As klutchctl makes them before the AppClusterBinding."""
    plane = managed.plane.cluster
    await plane.create(spaces.namespace(managed.space), NAMESPACE, manager=MANAGER)
    made = blueprint.service_binding(
        managed.offer.resource,
        namespace=managed.space,
        secret=(managed.space, "shop-kubeconfig"),
        claims=[ACCEPTED],
        marks=Marks(keys.app_cluster_binding_labels(managed.namespace, "shop")),
    )
    before = await plane.create(made, API_SERVICE_BINDING, manager=MANAGER)
    async with managed.backend():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "Ready"))
    after = await managed.binding()
    assert (uid_of(after), after["spec"]) == (uid_of(before), before["spec"])


async def test_what_leaves_api_exports_loses_binding_and_export(
    managed: Managed, namespace: str
) -> None:
    plane, app = managed.plane.cluster, managed.app.cluster
    async with managed.backend(), offered(plane, app, namespace=namespace) as other:
        await managed.make_secret()
        await managed.apply(managed.offer.resource, other.resource)
        await until(managed.export)
        await until(lambda: managed.export(other))
        await managed.apply(managed.offer.resource)
        await until(lambda: gone(managed.binding(other)))
        await until(lambda: gone(managed.export(other)))
        assert await managed.binding() is not None
        assert await managed.export() is not None


async def test_a_konnector_beside_the_control_plane_serves_the_app_cluster(
    managed: Managed,
) -> None:
    app, kind = managed.app.cluster, managed.offer.kind
    async with managed.backend(), managed.konnector():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.binding(), "Ready"))
        cluster = await managed.read(CLUSTER_BINDING, "cluster")
        assert shown(cluster) == [("Ready", "True"), ("ValidVersion", "True")]
        crd = await read(managed.app, CRD, "", managed.offer.name)
        (owner,) = crd["metadata"]["ownerReferences"]
        assert owner["uid"] == uid_of(await managed.binding())
        await until(lambda: served(managed.app, kind))
        made = managed.offer.instance("orders", namespace=managed.app_namespace, spec={})
        await app.create(made, kind, manager="developer")
        await until(lambda: managed.read(kind, "orders", managed.service_namespace))
        await managed.apply()
        await until(lambda: gone(managed.binding()))
        await until(lambda: gone(managed.export()))
        assert await managed.read(kind, "orders", managed.service_namespace) is not None


INVALID = {
    "no Secret": (None, "KubeconfigSecretNotFound"),
    "no kubeconfig": ("nothing", "KubeconfigSecretInvalid"),
}


@pytest.mark.parametrize(("content", "reason"), INVALID.values(), ids=INVALID.keys())
async def test_an_unusable_kubeconfig_is_said_and_makes_no_space(
    managed: Managed, content: str | None, reason: str
) -> None:
    async with managed.backend():
        if content is not None:
            await managed.make_secret(content)
        await managed.apply(managed.offer.resource)
        await until(lambda: says(managed.itself(), "SecretValid", "False", reason))
    assert [one[0] for one in shown(await managed.itself())] == ["Ready", "SecretValid"]
    assert await managed.read(NAMESPACE, managed.space) is None


async def test_an_api_export_without_a_template_leaves_a_space_and_no_status(
    managed: Managed,
) -> None:
    async with managed.backend() as backend:
        await managed.make_secret()
        await managed.apply(managed.offer.resource, blueprint.Resource("nowhere.example", "things"))
        await until(lambda: managed.read(CLUSTER_BINDING, "cluster"))
        await backend.looked()
    assert "status" not in await managed.itself()
    assert await managed.binding() is None


async def test_an_app_cluster_binding_that_is_deleted_takes_its_space_along(
    managed: Managed,
) -> None:
    async with managed.backend():
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(managed.export)
        await remove(managed.plane, APP_CLUSTER_BINDING, managed.namespace, "shop")
        await until(lambda: gone(managed.itself()), within=90)
    assert await managed.read(NAMESPACE, managed.space) is None
