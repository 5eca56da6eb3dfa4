"""`klutchctl release` on real clusters, with backend and konnector at work."""

import pytest

from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of, finalizers_of, uid_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.fleet.values import Mode
from tests.support import modes, removal
from tests.support.apply_runs import wipe
from tests.support.applying import Fleet, Scene
from tests.support.bound_scenes import new
from tests.support.eventually import eventually
from tests.support.offers import offered


@pytest.fixture(params=modes.both(Mode.APP_CLUSTER_BINDING))
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    async with offered(control_plane.cluster, app_cluster.cluster, namespace=namespace) as offer:
        name = namespace.replace("test-", "f")
        fleet = Fleet(tmp_path, name, request.param, offer.group)
        made = Scene(fleet, control_plane, app_cluster, offer, namespace, control_plane.kubeconfig)
        await app_cluster.cluster.create(build(NAMESPACE, namespace), NAMESPACE, manager="tests")
        yield made
        await removal.remove(app_cluster.cluster, Ref(app_cluster.name, NAMESPACE, "", namespace))
        await wipe(made)


async def release(scene, *arguments, target="", approve=True):
    return await scene.klutchctl(
        "release",
        f"shop/{target or scene.offer.name}",
        "--fleet",
        str(scene.fleet.folder),
        *(["--auto-approve"] if approve else []),
        *scene.options,
        *arguments,
    )


def written(marks):
    return [
        write
        for audit, mark in marks
        for write in audit.writes_since(mark)
        if write.agent == "klutchctl"
    ]


async def instance(scene):
    """Make an instance of the service, and wait until it has come up."""
    made = scene.offer.instance("db", namespace=scene.app_namespace, spec={"size": 1})
    await new(scene.app, made, scene.offer.kind, manager="developer")
    copy = Ref(scene.plane.name, scene.offer.kind, scene.service_namespace, "db")
    await eventually(lambda: scene.plane.cluster.get(copy))
    return Ref(scene.app.name, scene.offer.kind, scene.app_namespace, "db"), copy


async def test_what_pruning_leaves_is_let_go_and_its_data_stays(scene):
    async with scene.peers():
        await scene.apply("--wait")
        claim, copy = await instance(scene)
        before = [uid_of(await scene.at(ref)) for ref in (claim, copy)]
        scene.fleet.bound = False
        scene.fleet.prune += ", mode: off"
        await scene.apply()
        assert await scene.at(scene.binding) is not None
        done = await release(scene, "-o", "json")
        assert done.code == 0, done.stdout + done.stderr
        assert [one[:2] for one in done.statuses] == [("done", "release")]
        assert await scene.at(scene.binding) is None
        assert await scene.at(scene.export) is None
        assert keys.RELEASED in annotations_of(await scene.at(copy))
        assert finalizers_of(await scene.at(claim)) == []
        assert await scene.at(scene.crd) is not None
        assert [uid_of(await scene.at(ref)) for ref in (claim, copy)] == before
        marks = scene.marks()
        again = await release(scene)
        assert again.code == 3
        assert "neither in the files nor live in shop" in again.stderr
        assert written(marks) == []


async def test_only_what_may_be_let_go_is_let_go(scene):
    usual = scene.fleet.prune
    async with scene.peers():
        scene.fleet.policy = "Delete"
        scene.fleet.prune = f"{usual}, onClusterLeave: Delete"
        await scene.apply()
        await what_would_be_deleted_is_not_for_releasing(scene)
        scene.fleet.policy, scene.fleet.bound, scene.fleet.prune = "Release", True, usual
        await scene.apply()
        await what_a_guard_holds_or_nobody_approves_stays(scene)
        scene.fleet.prune = f"{usual}, mode: report, onClusterLeave: Block"
        await a_unit_of_a_cluster_that_left_is_let_go_alone(scene)


async def what_would_be_deleted_is_not_for_releasing(scene):
    scene.fleet.bound = False
    marks = scene.marks()
    refused = await release(scene)
    assert refused.code == 3, refused.stdout + refused.stderr
    assert "deletionPolicy: Release" in refused.stderr
    assert written(marks) == []


async def what_a_guard_holds_or_nobody_approves_stays(scene):
    scene.fleet.bound = False
    scene.fleet.prune = "allowEmpty: false"
    marks = scene.marks()
    held = await release(scene)
    assert held.code == 6, held.stdout + held.stderr
    assert "prune.allowEmpty" in held.stdout
    scene.fleet.prune = "maxDeletes: 0, allowEmpty: true"
    asked = await release(scene, approve=False)
    assert asked.code == 6
    assert "nobody approved it" in asked.stderr
    assert written(marks) == []
    assert await scene.at(scene.binding) is not None


async def a_unit_of_a_cluster_that_left_is_let_go_alone(scene):
    scene.fleet.listed = False
    done = await release(scene, "-o", "json")
    assert done.code == 0, done.stdout + done.stderr
    assert [one[:2] for one in done.statuses] == [("done", "release")]
    assert await scene.at(scene.binding) is None
    assert keys.RELEASED not in annotations_of(await scene.at(scene.home_of_units))


async def test_what_the_files_name_is_refused_before_any_cluster_is_asked(scene):
    scene.kubeconfig = scene.fleet.folder / "nowhere"
    for target in (scene.offer.name, "orders-db"):
        refused = await release(scene, target=target)
        assert refused.code == 3
        assert "fleet.yaml" in refused.stderr
        assert "the next apply would bind it again" in refused.stderr


async def test_what_is_not_ours_is_refused_with_what_to_do(scene):
    async with scene.peers():
        await scene.apply()
        strip: Manifest = {"metadata": {"labels": None, "managedFields": [{}]}}
        if scene.fleet.mode is Mode.DIRECT:
            # Nothing that carries the unit says that it is ours.
            await scene.app.cluster.merge_patch(scene.binding, strip, manager="someone")
            await scene.plane.cluster.merge_patch(scene.request, strip, manager="someone")
        else:
            await scene.plane.cluster.merge_patch(scene.whole, strip, manager="someone")
        scene.fleet.bound = False
        marks = scene.marks()
        refused = await release(scene)
        assert refused.code == 3, refused.stdout + refused.stderr
        assert "klutchctl import" in refused.stderr
        assert written(marks) == []
