"""Secrets that came down with a service: those go with it that no other binding claims."""

import pytest

from reconciler.api.bindings import API_SERVICE_BINDING
from reconciler.api.exports import API_SERVICE_NAMESPACE
from reconciler.apply import WriteFence, copied_secrets
from reconciler.apply.cluster_writer import ClusterWriter
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.fleet.wanted import Placement
from tests.support.apply_runs import remove

MANAGER = "tests"


@pytest.fixture
async def app_namespace(app_cluster, namespace):
    await app_cluster.cluster.create(build(NAMESPACE, namespace), NAMESPACE, manager=MANAGER)
    yield namespace
    await remove(app_cluster, Ref(app_cluster.name, NAMESPACE, "", namespace))


def claim(name):
    return {
        "group": "",
        "resource": "secrets",
        "version": "v1",
        "state": "Accepted",
        "selector": {"owner": "Provider", "names": [name]},
    }


@pytest.mark.parametrize("mode", ["Direct", "AppClusterBinding"])
async def test_only_copies_that_no_live_binding_claims_go(
    mode, control_plane, app_cluster, app_namespace, in_app
):
    space = app_namespace
    secret = {"name": "kubeconfig", "key": "kubeconfig", "namespace": names.KLUTCH_NAMESPACE}
    spec: Manifest = {"kubeconfigSecretRef": secret, "permissionClaims": [claim("claimed")]}
    if mode == "Direct":
        await in_app.create(
            API_SERVICE_BINDING, f"x.{space}.example", namespace=names.KLUTCH_NAMESPACE, spec=spec
        )
    else:
        bound = build(API_SERVICE_BINDING, "x.example", namespace=space, spec=spec)
        await control_plane.cluster.create(bound, API_SERVICE_BINDING, manager=MANAGER)
    mapped = build(API_SERVICE_NAMESPACE, app_namespace, namespace=space, spec={})
    await control_plane.cluster.create(mapped, API_SERVICE_NAMESPACE, manager=MANAGER)
    await control_plane.cluster.merge_patch(
        Ref(control_plane.name, API_SERVICE_NAMESPACE, space, app_namespace),
        {"status": {"namespace": f"{space}-{app_namespace}"}},
        manager=MANAGER,
        subresource="status",
    )
    for name, owner in (
        ("claimed", keys.OWNER_PROVIDER),
        ("left", keys.OWNER_PROVIDER),
        ("of-the-app", keys.OWNER_CONSUMER),
    ):
        marks = Marks(annotations={keys.RESOURCE_OWNER: owner})
        made = build(SECRET, name, namespace=app_namespace, marks=marks)
        await app_cluster.cluster.create(made, SECRET, manager=MANAGER)
    placement = Placement(
        space=space, kubeconfig_namespace="", kubeconfig_name="", consumer_secret="", identity=""
    )
    fence = WriteFence()
    told = await copied_secrets.delete(
        ClusterWriter(app_cluster.cluster, fence),
        ClusterWriter(control_plane.cluster, fence),
        placement,
    )
    rest = await app_cluster.cluster.list(SECRET, namespace=app_namespace)
    assert (told, sorted(map(name_of, rest.items))) == ("", ["claimed", "of-the-app"])
