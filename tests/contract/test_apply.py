"""`klutchctl apply` on real clusters, with stand-ins for backend and konnector."""

import pytest

from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, get, get_list, labels_of, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.fleet.values import Mode
from reconciler.kube.cluster import Preconditions, Propagation
from tests.support.applying import Fleet, Scene
from tests.support.stand_in_offer import offered

pytestmark = pytest.mark.usefixtures("klutch_bind")
WHATEVER = Preconditions(uid=None)


@pytest.fixture(params=[Mode.DIRECT, Mode.APP_CLUSTER_BINDING], ids=["direct", "acb"])
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    async with offered(control_plane.cluster, app_cluster.cluster, namespace=namespace) as offer:
        name = namespace.removeprefix("test-")
        fleet = Fleet(tmp_path, name, request.param, offer.group)
        scene = Scene(fleet, control_plane, app_cluster, offer, namespace, control_plane.kubeconfig)
        yield scene
        await tidy(scene)


async def tidy(scene: Scene) -> None:
    """Remove what a fleet leaves in namespaces that tests share."""
    for ref in (scene.whole, scene.home, Ref(scene.plane.name, NAMESPACE, "", scene.fleet.name)):
        await remove(scene.plane, ref)
    bind = names.KLUTCH_NAMESPACE
    if scene.fleet.mode is Mode.DIRECT:
        await remove(scene.app, scene.binding)
    for secret in (await scene.app.cluster.list(SECRET, namespace=bind)).items:
        if labels_of(secret).get(keys.FLEET) == scene.fleet.name:
            await remove(scene.app, Ref(scene.app.name, SECRET, bind, secret["metadata"]["name"]))


async def remove(live, ref):
    await live.cluster.delete(ref, preconditions=WHATEVER, propagation=Propagation.BACKGROUND)


async def test_a_fleet_becomes_bindings_and_a_second_apply_writes_nothing(scene):
    async with scene.peers():
        first = await scene.apply("--wait")
        assert {status for status, _, _ in first.statuses} == {"done"}, first.stdout
        assert first.report["ready"] == 1
        bound = await scene.at(scene.binding)
        assert bound is not None
        (claim,) = get_list(bound, "spec", "permissionClaims")
        assert get(claim, "state") == "Accepted"
        marks = scene.marks()
        second = await scene.apply("--wait")
        assert second.statuses == []
        ours = [
            write
            for audit, mark in marks
            for write in audit.writes_since(mark)
            if write.resource not in ("clusterbindings", "apiservicebindings", "apiserviceexports")
        ]
        assert ours == []
    assert await scene.lines() == []
