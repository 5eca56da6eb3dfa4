"""The real Argo CD drives this project: by the Job of fleet-example, and around the controller."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from klutchctl.entry import ExitCode
from klutchctl.render import health
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.manifest import get_maps, get_text
from reconciler.core.refs import CONFIG_MAP, Ref
from tests.pipelines import argocd as real_argocd
from tests.pipelines.argocd import FAILED
from tests.pipelines.example import HELD, annotate, beside, documents, pushed, with_example
from tests.pipelines.jobs import runner, space
from tests.support import removal
from tests.support.apply_runs import mode, scene
from tests.support.controllers import HOME, bound_with, controller, files
from tests.support.eventually import eventually
from tests.unit.render.test_health import CLAIMED, TABLE, named

__all__ = ["beside", "files", "mode", "runner", "scene", "space"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
async def argocd(control_plane, files, tmp_path):
    rules = yaml.safe_load(health.text("argocd", []))
    async with real_argocd.running(control_plane, tmp_path, tmp_path / "ca.crt", rules) as made:
        yield made


async def test_each_sync_applies_its_commit_and_what_a_guard_holds_fails_it_with_the_reason(
    scene, files, argocd, runner
):
    """No commit but the first changes what Argo CD applies, and each is a sync all the same."""
    with_example(files)
    async with scene.peers():
        first = files.push()
        await argocd.apply(*documents(files, "argocd.yaml"))
        await argocd.synced("fleet", first)
        await bound_with(scene, 1)
        await scene.meddle(scene.binding, {"spec": {"permissionClaims": []}})
        await runner.start("fleet-drift")
        await bound_with(scene, 1)

        scene.fleet.bound, scene.fleet.prune = False, HELD
        held = files.push()
        operation = await argocd.synced("fleet", held, end=FAILED)
        said = [get_text(one, "message") for one in get_maps(operation, "syncResult", "resources")]
        assert any("failed with exit code 6" in one for one in said), operation
        assert "prune.allowEmpty" in runner.ended[-1].output
        assert await scene.at(scene.binding) is not None

        scene.fleet.bound = True
        mended = files.push()
        await argocd.synced("fleet", mended)
        ran = [(one.arguments[one.arguments.index("--ref") + 1], one.code) for one in runner.ended]
        assert ran == [(first, 0), (first, 0), (held, ExitCode.HELD_BACK), (mended, 0)]


async def test_an_application_of_hooks_alone_is_healthy_and_never_run(files, argocd, runner):
    """What the ServiceAccount of the example is for: Argo CD compares no hooks."""
    job = with_example(files) / "job.yaml"
    job.write_text(job.read_text().rpartition("\n---\n")[2])
    commit = files.push()
    (application,) = documents(files, "argocd.yaml")
    del application["spec"]["source"]["kustomize"]["components"]
    await argocd.apply(application)
    await argocd.at("fleet", commit, "Healthy")
    assert "operationState" not in (await argocd.state("fleet"))["status"]
    assert runner.ended == []


async def test_an_application_that_is_deleted_leaves_its_namespace_and_what_is_in_it(
    scene, files, argocd, runner
):
    with_example(files)
    commit = files.push()
    (application,) = documents(files, "argocd.yaml")
    application["metadata"]["finalizers"] = ["resources-finalizer.argocd.argoproj.io"]
    async with scene.peers():
        await argocd.apply(application)
        await argocd.synced("fleet", commit)
    kept = await runner.fill()
    await removal.remove(scene.plane.cluster, argocd.ref("fleet"))
    await eventually(lambda: scene.is_gone(argocd.ref("fleet")))
    await runner.is_left(kept)


async def test_an_application_is_healthy_for_a_commit_once_the_fleet_is_ready_for_it(
    scene, beside, argocd
):
    """The controller looks seldom: without our rules Argo CD would call it healthy before."""
    seldom = ("--poll", "30", "--interval", "2")
    (application,) = documents(beside, "argocd-controller.yaml")
    application["spec"]["sources"].pop(0)  # the Deployment: no node is here
    status = Ref(scene.plane.name, FLEET_STATUS, HOME, scene.fleet.name)

    async def ready_for(commit):
        await argocd.at("fleet", commit, "Healthy")
        found = await running.status()
        assert get_text(found, "status", "source", "looked", "revision") == commit
        assert (await running.condition("Ready"))["status"] == "True"

    async with scene.peers(), controller(scene, beside, "fleet", *seldom) as running:
        commit, _ = pushed(beside)
        await argocd.apply(application)
        await ready_for(commit)
        assert await scene.at(scene.binding) is not None

        scene.fleet.claims = ", claims: []"
        commit, _ = pushed(beside)
        await ready_for(commit)
        binding = await scene.at(scene.binding)
        assert get_maps(binding, "spec", "permissionClaims") == []

        scene.fleet.bound, scene.fleet.prune = False, HELD
        commit, _ = pushed(beside)
        await argocd.at("fleet", commit, "Degraded")
        assert "prune.allowEmpty" in (await running.condition("Ready"))["message"]

        scene.fleet.bound, scene.fleet.extra = True, "kind: ["
        commit, _ = pushed(beside)
        await argocd.at("fleet", commit, "Degraded")
        assert get_text(await running.status(), "status", "source", "refused") == commit

        await annotate(scene, status, {keys.SUSPEND: "a test"})
        scene.fleet.extra = ""
        commit, _ = pushed(beside)
        await argocd.at("fleet", commit, "Suspended")
        await annotate(scene, status, {keys.SUSPEND: None})
        await ready_for(commit)


def test_health_of_each_kind_in_each_state_by_the_real_evaluator(tmp_path):
    rules, settings = yaml.safe_load(health.text("argocd", CLAIMED)), tmp_path / "cm.yaml"
    settings.write_text(json.dumps({**build(CONFIG_MAP, "argocd-cm"), **rules}))
    ask = (real_argocd.programs() / "argocd", "admin", "settings", "resource-overrides", "health")

    def of(name):
        file = tmp_path / f"{list(TABLE).index(name)}.yaml"
        file.write_text(json.dumps(named(*TABLE[name][:2])))
        command = [*ask, file, "--argocd-cm-path", settings]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(2) as threads:
        found = dict(zip(TABLE, threads.map(of, TABLE), strict=True))
    for name, (*_, wanted) in TABLE.items():
        assert found[name].startswith(f"STATUS: {wanted}\n"), name
