"""`klutchctl apply` on real clusters, with backend and konnector at work."""

import asyncio
import os
import signal

import pytest

from reconciler.api.exports import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import build
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import (
    NAMESPACE,
    Ref,
)
from reconciler.fleet.values import Mode
from tests.support.apply_runs import remove, wipe
from tests.support.applying import KLUTCHCTL, Fleet, Scene
from tests.support.bound_scenes import new
from tests.support.eventually import eventually
from tests.support.offers import offered
from tests.support.operators import operator

# In the other mode it differs in what `test_apply_crashes` and `test_release` show.
in_one_mode = pytest.mark.parametrize(
    "scene",
    [
        pytest.param(Mode.DIRECT, id="direct"),
        pytest.param(Mode.APP_CLUSTER_BINDING, id="acb", marks=pytest.mark.soak),
    ],
    indirect=True,
)


@pytest.fixture(params=[Mode.DIRECT, Mode.APP_CLUSTER_BINDING], ids=["direct", "acb"])
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    async with (
        offered(control_plane.cluster, app_cluster.cluster, namespace=namespace) as offer,
        operator((control_plane, app_cluster), tmp_path) as somebody,
    ):
        name = f"f{namespace.removeprefix('test-')}"
        fleet = Fleet(tmp_path, name, request.param, offer.group)
        scene = Scene(fleet, control_plane, app_cluster, offer, namespace, *somebody)
        own = build(NAMESPACE, namespace)
        await app_cluster.cluster.create(own, NAMESPACE, manager="tests")
        yield scene
        await remove(app_cluster, Ref(app_cluster.name, NAMESPACE, "", namespace))
        await wipe(scene)


async def instance(scene, name="db"):
    """Make an instance of the service, and wait until it has come up."""
    made = scene.offer.instance(name, namespace=scene.app_namespace, spec={"size": 1})
    await new(scene.app, made, scene.offer.kind, manager="developer")
    copy = Ref(scene.plane.name, scene.offer.kind, scene.service_namespace, name)
    await eventually(lambda: scene.plane.cluster.get(copy))
    return Ref(scene.app.name, scene.offer.kind, scene.app_namespace, name), copy


async def test_a_fleet_becomes_bindings_and_a_second_apply_writes_nothing(scene):
    async with scene.peers():
        first = await scene.apply("--wait")
        assert {status for status, _, _ in first.statuses} == {"done"}, first.stdout
        assert first.report["ready"] == 1
        bound = await scene.at(scene.binding)
        assert bound is not None
        (claim,) = manifest.get_list(bound, "spec", "permissionClaims")
        assert manifest.get(claim, "state") == "Accepted"
        marks = scene.marks()
        second = await scene.apply("--wait")
        assert second.statuses == []
        assert scene.writes(marks) == []
    assert await scene.lines() == []


@in_one_mode
async def test_drift_is_repaired_and_a_field_that_left_the_files_goes(scene):
    async with scene.peers():
        await scene.apply()
        drift: Manifest = {"spec": {"permissionClaims": []}}
        live = scene.app if scene.fleet.mode is Mode.DIRECT else scene.plane
        await live.cluster.merge_patch(scene.binding, drift, manager="someone")
        run = await scene.apply()
        assert run.statuses == [("done", "update", "APIServiceBinding")]
        bound = await scene.at(scene.binding)
        assert len(manifest.get_list(bound, "spec", "permissionClaims")) == 1
        scene.fleet.claims = "  claims: []\n"
        await scene.apply()
        bound = await scene.at(scene.binding)
        assert manifest.get_list(bound, "spec", "permissionClaims") == []
        assert await scene.lines() == []


async def test_a_removed_binding_is_released_and_bound_again_without_a_delete(scene):
    async with scene.peers():
        await scene.apply("--wait")
        claim, copy = await instance(scene)
        before = {manifest.uid_of(await scene.at(ref)) for ref in (claim, copy)}
        scene.fleet.bound = False
        run = await scene.apply()
        assert [one[:2] for one in run.statuses if one[1] == "release"] == [("done", "release")]
        assert await scene.at(scene.binding) is None
        assert await scene.at(scene.export) is None
        assert keys.BOUND not in manifest.annotations_of(await scene.at(copy))
        assert keys.RELEASED in manifest.annotations_of(await scene.at(copy))
        assert manifest.finalizers_of(await scene.at(claim)) == []
        assert keys.LEAVING not in manifest.annotations_of(await scene.at(scene.home_of_units))
        assert await scene.at(scene.crd) is not None
        assert await scene.lines() == []
        scene.fleet.bound = True
        await scene.apply("--wait")

        async def held_again():
            return keys.SYNCER in manifest.finalizers_of(await scene.at(claim))

        await eventually(held_again)
        assert {manifest.uid_of(await scene.at(ref)) for ref in (claim, copy)} == before
        assert await scene.lines() == []


@in_one_mode
async def test_deleting_happens_only_within_the_guards(scene):
    scene.fleet.policy = "Delete"
    async with scene.peers():
        await scene.apply("--wait")
        claim, copy = await instance(scene)
        scene.fleet.bound = False
        held = await scene.apply(code=6)
        assert ("held", "delete") in [one[:2] for one in held.statuses]
        assert not [one for one in held.statuses if one[0] == "done"]
        assert await scene.at(claim) is not None
        scene.fleet.prune += ", keepIfInUse: false"
        approved = scene.fleet.folder / "approved.plan"
        await scene.klutchctl("plan", str(scene.fleet.folder), "--out", str(approved))
        another, _ = await instance(scene, "made-since")
        stale = await scene.klutchctl("apply", str(approved))
        assert stale.code == 7
        assert "instances to delete: 1 when it was approved, 2 now" in stale.stdout + stale.stderr
        for ref in (claim, another):
            assert manifest.get(await scene.at(ref), "metadata", "deletionTimestamp") is None
        run = await scene.apply()
        assert ("done", "delete") in [one[:2] for one in run.statuses]
        for ref in (scene.binding, scene.export, scene.crd):
            assert await scene.at(ref) is None
        assert await scene.plane.cluster.get(copy) is None
        assert await scene.lines() == []


@in_one_mode
async def test_a_cluster_that_leaves_the_fleet_is_released(scene):
    async with scene.peers():
        await scene.apply("--wait")
        claim, copy = await instance(scene)
        scene.fleet.listed = False
        run = await scene.apply()
        assert {one[:2] for one in run.statuses} == {("done", "release")}
        home = await scene.at(scene.home_of_units)
        assert keys.RELEASED in manifest.annotations_of(home)
        assert await scene.at(claim) is not None
        assert keys.BOUND not in manifest.annotations_of(await scene.at(copy))
        assert await scene.lines() == []


@in_one_mode
async def test_a_space_stays_with_what_was_released_of_a_service_that_nobody_offers(scene):
    scene.fleet.prune += ", onClusterLeave: Delete"
    clusters = scene.plane.cluster, scene.app.cluster
    async with (
        offered(*clusters, namespace=scene.app_namespace, template=False) as other,
        scene.peers(),
    ):
        await scene.apply("--wait")
        claim, copy = await instance(scene)
        kept = other.instance("kept", namespace=scene.service_namespace, spec={})
        await scene.plane.cluster.create(kept, other.kind, manager="provider")
        mapping = Ref(scene.plane.name, API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)
        noted = {"metadata": {"annotations": {keys.RELEASED_KINDS: other.name}}}
        await scene.plane.cluster.merge_patch(mapping, noted, manager="konnector")
        await remove(scene.app, claim)
        await eventually(lambda: is_gone(scene, copy))
        scene.fleet.listed = False
        run = await scene.apply(code=9)
        (line,) = [one for one in run.report["outcomes"] if one["status"] != "done"]
        assert f"1 {other.name} are left on the control plane" in line["message"]
        assert await scene.at(scene.home_of_units) is not None


async def is_gone(scene, ref):
    return await scene.at(ref) is None


@in_one_mode
async def test_a_tripped_budget_holds_what_leaves_and_lets_the_rest_go_on(scene):
    async with scene.peers():
        await scene.apply()
        scene.fleet.prune = "maxDeletes: 0, allowEmpty: true"
        scene.fleet.bound = False
        run = await scene.apply(code=6)
        assert ("held", "release") in [one[:2] for one in run.statuses]
        assert not [one for one in run.statuses if one[0] == "done"]
        assert await scene.at(scene.binding) is not None


@in_one_mode
async def test_a_saved_plan_is_applied_exactly_or_refused(scene):
    async with scene.peers():
        await scene.apply()
        scene.fleet.claims = "  claims: []\n"
        file = scene.fleet.folder / "saved.plan"
        await scene.klutchctl("plan", str(scene.fleet.folder), "--out", str(file))
        drift: Manifest = {"metadata": {"annotations": {"someone": "was here"}}}
        live = scene.app if scene.fleet.mode is Mode.DIRECT else scene.plane
        await live.cluster.merge_patch(scene.binding, drift, manager="someone")
        changed: Manifest = {"spec": {"permissionClaims": []}}
        before = await scene.at(scene.binding)
        await live.cluster.merge_patch(scene.binding, changed, manager="someone")
        claim = manifest.get_maps(before or {}, "spec", "permissionClaims")[0]
        narrowed: Manifest = {
            "spec": {"permissionClaims": [manifest.put(claim, ["one"], "selector", "names")]}
        }
        await live.cluster.merge_patch(scene.binding, narrowed, manager="someone")
        marks = scene.marks()
        run = await scene.klutchctl("apply", str(file), "-o", "json", *scene.options)
        assert run.code == 7, run.stdout + run.stderr
        assert ("stale", "update", "APIServiceBinding") in run.statuses
        assert not [w for w in scene.writes(marks) if w.resource == "apiservicebindings"]
        await scene.klutchctl("plan", str(scene.fleet.folder), "--out", str(file))
        run = await scene.klutchctl("apply", str(file), "-o", "json", *scene.options)
        assert run.code == 0, run.stdout + run.stderr
        assert await scene.lines() == []


@in_one_mode
async def test_nothing_is_applied_that_nobody_approved(scene):
    marks = scene.marks()
    run = await scene.klutchctl("apply", str(scene.fleet.folder))
    assert run.code == 6
    assert scene.writes(marks) == []


@pytest.mark.parametrize("scene", [Mode.DIRECT], ids=["direct"], indirect=True)
async def test_one_interrupt_ends_the_question_and_nothing_is_written(scene):
    scene.fleet.write()
    marks = scene.marks()
    terminal, end = os.openpty()
    program = await asyncio.create_subprocess_exec(
        KLUTCHCTL, "--kubeconfig", str(scene.kubeconfig), "apply", str(scene.fleet.folder),
        stdin=end, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(end)
    try:
        assert program.stdout is not None
        await program.stdout.readuntil(b"Only `yes` does. ")
        program.send_signal(signal.SIGINT)
        _, told = await asyncio.wait_for(program.communicate(), 60)
    finally:
        os.close(terminal)
    assert program.returncode == 130, told.decode()
    assert b"Traceback" not in told
    assert scene.writes(marks) == []


@pytest.mark.parametrize("scene", [Mode.DIRECT], ids=["direct"], indirect=True)
async def test_an_apply_goes_on_though_nobody_reads_its_progress(scene):
    scene.fleet.write()
    asked = ("apply", str(scene.fleet.folder), "--auto-approve", *scene.options)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        async with scene.peers():
            program = await asyncio.create_subprocess_exec(
                KLUTCHCTL, "--kubeconfig", str(scene.kubeconfig), *asked,
                stdout=asyncio.subprocess.PIPE, stderr=writing,
            )  # fmt: skip
            told, _ = await program.communicate()
    finally:
        os.close(writing)
    assert program.returncode == 0, told.decode()
    assert await scene.lines() == []
