"""The real Flux drives this project: by the Job of fleet-example, and around the controller."""

import hashlib
from typing import Any

import pygit2
import pytest
import yaml

from klutchctl.entry import ExitCode
from klutchctl.sandbox import manifests
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.api.osb import SERVICE_BROKER
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, get_map, get_maps, get_text
from reconciler.core.refs import Ref
from reconciler.kube import crds
from tests.pipelines import flux as real_flux
from tests.pipelines.flux import FAILED, SOURCE
from tests.pipelines.jobs import EXAMPLE, JOBS, runner, space, with_job
from tests.support import programs
from tests.support.apply_runs import mode, scene
from tests.support.checkouts import commit_work_tree, write_files
from tests.support.controllers import HOME, controller, deeds, files
from tests.support.eventually import eventually

__all__ = ["files", "mode", "runner", "scene", "space"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

HELD = "allowEmpty: false"  # what `bound = False` runs into
MERGED = {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}


@pytest.fixture
async def flux(control_plane, files, tmp_path):
    async with real_flux.running(control_plane, tmp_path, tmp_path / "ca.crt") as running:
        yield running


def flux_objects(files, namespace, path):
    """Return the objects of flux.yaml for our server, which are to look often."""
    source, kustomization = yaml.safe_load_all((EXAMPLE / "flux.yaml").read_text())
    for one in (source, kustomization):
        one["metadata"]["namespace"] = namespace
    source["spec"] |= {"interval": "1s", "url": files.options[1]}
    kustomization["spec"] |= {"retryInterval": "1s", "path": path}
    return source, kustomization


def pushed(files, *others, annotations=MERGED):
    """Push the fleet in a folder, and beside it a FleetStatus that asks for the tree of that.

    `others` are applied with it. Returns the ids of the commit and of the tree.
    """
    fleet = files.scene.fleet
    fleet.write()
    repository: Any = pygit2.init_repository(str(fleet.folder.parent), initial_head="main")
    repository.index.add_all(["fleet"])
    tree = str(repository[repository.index.write_tree()]["fleet"].id)
    marks, spec = Marks(annotations=annotations), {"files": tree}
    status = build(FLEET_STATUS, fleet.name, namespace=HOME, marks=marks, spec=spec)
    text = yaml.safe_dump_all([status, *others])
    write_files(fleet.folder.parent, {"shown/objects.yaml": text})
    commit_work_tree(repository)
    return files.send(repository), tree


@pytest.fixture
def beside(files):
    """The repository, with the fleet in a folder of it, for a FleetStatus beside that."""
    files.scene.fleet.folder = files.folder / "top" / "fleet"
    files.scene.fleet.folder.mkdir(parents=True)
    return files


async def test_a_job_applies_each_push_and_what_a_guard_holds_keeps_flux_from_ready(
    scene, files, flux, runner, namespace
):
    with_job(files)
    async with scene.peers():
        commit = files.push()
        await flux.apply(*flux_objects(files, namespace, "./pipelines"))
        await flux.applied(namespace, commit)
        (first,) = runner.ended
        assert first.code == 0
        assert await scene.at(scene.binding) is not None

        scene.fleet.bound, scene.fleet.prune = False, HELD
        await runner.expire()
        commit = files.push()
        message = await flux.applied(namespace, commit, end=FAILED)
        assert f"Job/{JOBS}/fleet status: 'Failed'" in message
        assert runner.ended[-1].code == ExitCode.HELD_BACK
        assert "prune.allowEmpty" in runner.ended[-1].output
        assert await scene.at(scene.binding) is not None

        scene.fleet.bound = True
        await runner.expire()
        commit = files.push()
        await flux.applied(namespace, commit)
        assert runner.ended[-1].code == 0


async def test_a_kustomization_is_ready_for_a_commit_once_the_fleet_is_ready_for_it(
    scene, beside, flux, namespace
):
    """The controller looks seldom: without our rules and the tree Flux would be Ready before."""
    seldom = ("--poll", "30", "--interval", "2")
    async with scene.peers(), controller(scene, beside, "fleet", *seldom) as running:

        async def ready_for(commit: str, tree: str) -> None:
            await flux.applied(namespace, commit)
            looked = {"revision": commit, "files": tree}
            assert get_map(await running.status(), "status", "source", "looked") == looked
            assert (await running.condition("Ready"))["status"] == "True"

        source, kustomization = flux_objects(beside, namespace, "./shown")
        rules = await programs.klutchctl_beside("schema", "health", "--for", "flux")
        kustomization["spec"] |= yaml.safe_load(rules.stdout)["spec"]
        commit, tree = pushed(beside)
        await flux.apply(source, kustomization)
        await ready_for(commit, tree)
        assert await scene.at(scene.binding) is not None

        scene.fleet.claims = ", claims: []"
        await ready_for(*pushed(beside))
        binding = await scene.at(scene.binding)
        assert get_maps(binding, "spec", "permissionClaims") == []

        scene.fleet.bound, scene.fleet.prune = False, HELD
        commit, _ = pushed(beside)
        failed = f"FleetStatus/{HOME}/{scene.fleet.name} status: 'Failed'"
        assert failed in await flux.applied(namespace, commit, end=FAILED)
        held = await running.condition("Ready")
        assert held["reason"] == "GuardHeld"
        assert "prune.allowEmpty" in held["message"]
        assert await scene.at(scene.binding) is not None

        scene.fleet.bound, scene.fleet.extra = True, "kind: ["
        commit, _ = pushed(beside)
        assert failed in await flux.applied(namespace, commit, end=FAILED)
        assert (await running.condition("Ready"))["reason"] == "SourceInvalid"
        assert get_text(await running.status(), "status", "source", "refused") == commit


@pytest.mark.parametrize("annotations", [MERGED, {}], ids=["merged", "not merged"])
async def test_the_brake_and_a_confirmation_survive_flux_where_it_merges(
    scene, beside, flux, namespace, annotations
):
    """Without the annotation of Flux, it takes away what `kubectl annotate` wrote."""
    await manifests.install_all(scene.plane.cluster, crds.load(*crds.BROKERS))
    spec = {"group": scene.offer.group, "secretRef": {"name": "broker"}}
    marks = Marks(annotations=annotations)
    broker = build(SERVICE_BROKER, "db", namespace=namespace, marks=marks, spec=spec)
    commit, _ = pushed(beside, broker, annotations=annotations)
    await flux.apply(*flux_objects(beside, namespace, "./shown"))
    await flux.applied(namespace, commit)
    marked = {
        Ref(scene.plane.name, FLEET_STATUS, HOME, scene.fleet.name): keys.SUSPEND,
        Ref(scene.plane.name, SERVICE_BROKER, namespace, "db"): keys.CONFIRM_MASS_DELETE,
    }
    for ref, key in marked.items():
        patch = {"metadata": {"annotations": {key: "a test"}}}
        await scene.plane.cluster.merge_patch(ref, patch, manager="kubectl-annotate")
    await flux.reconciled(namespace, "1")
    scene.fleet.claims = ", claims: []"
    commit, _ = pushed(beside, broker, annotations=annotations)
    await flux.applied(namespace, commit)
    for ref, key in marked.items():
        kept = annotations_of(await scene.at(ref)).get(key)
        assert kept == ("a test" if annotations else None), ref


async def test_an_artifact_of_flux_is_planned_and_applied_by_its_digest_alone(
    scene, files, flux, namespace
):
    commit = files.push()
    source, _ = flux_objects(files, namespace, "./")
    await flux.apply(source)

    async def artifact() -> Any:
        found = get_map(await flux.state(SOURCE, namespace), "status", "artifact")
        return found.get("revision") == f"main@sha1:{commit}" and found

    found = await eventually(artifact)
    place = ("--artifact", f"{found['url']}@{found['digest']}")
    planned = await scene.klutchctl("plan", *place)
    assert planned.code == 0, planned.stderr
    assert scene.offer.name in planned.stdout
    await flux.patch(SOURCE, namespace, {"spec": {"suspend": True}})
    stored = flux.storage / found["path"]
    original = stored.read_bytes()
    stored.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    marks = scene.marks()
    apply = ("apply", *place, "--auto-approve", "--wait")
    async with scene.peers():
        refused = await scene.klutchctl(*apply)
        assert refused.code == ExitCode.FAILED, refused.stdout
        assert f"and not {found['digest']}" in refused.stderr
        assert hashlib.sha256(stored.read_bytes()).hexdigest() in refused.stderr
        assert deeds(scene, marks) == []
        stored.write_bytes(original)
        done = await scene.klutchctl(*apply)
        assert done.code == 0, done.stdout + done.stderr
        assert await scene.at(scene.binding) is not None
