"""The real Flux drives this project: by the Job of fleet-example, and around the controller."""

import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pygit2
import pytest
import yaml

from klutchctl.entry import ExitCode
from klutchctl.render import health
from klutchctl.sandbox import manifests
from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.api.osb import SERVICE_BROKER
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, get_map, get_maps, get_text, uid_of
from reconciler.core.refs import CONFIG_MAP, EVENT, SECRET, Ref
from reconciler.kube import crds
from tests.pipelines import flux as real_flux
from tests.pipelines.example import HELD, annotate, beside, documents, pushed, with_example
from tests.pipelines.flux import FAILED, KUSTOMIZATION, SOURCE
from tests.pipelines.jobs import JOB, JOBS, runner, space
from tests.support import removal
from tests.support.apply_runs import mode, scene
from tests.support.applying import CLAIMS
from tests.support.controllers import HOME, OFTEN, bound_with, controller, deeds, files
from tests.support.eventually import eventually
from tests.support.signing import ed25519, signed_commit
from tests.support.sink_server import SinkServer, notify
from tests.unit.render.test_health import CLAIMED, TABLE, named

__all__ = ["beside", "files", "mode", "runner", "scene", "space"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ATTEMPTED = ("status", "lastAttemptedRevision")
APPLIED = ("status", "lastAppliedRevision")
AROUND = "flux-controller.yaml"
SIGNER = ed25519(1)
MARKS = {
    value: "a test"
    for name, value in vars(keys).items()
    if name.startswith(("CONFIRM_", "SUSPEND", "RECREATE", "OSB_RETRY", "OSB_MOVED"))
    and value.startswith(keys.OWN_PREFIX)
}
MERGED = {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}


@pytest.fixture
async def flux(control_plane, files, tmp_path):
    async with real_flux.running(control_plane, tmp_path, tmp_path / "ca.crt") as running:
        yield running


def flux_objects(files, namespace, name="flux.yaml"):
    """Return source and Kustomization of the example for our server, which are to look often."""
    source, *_, kustomization = documents(files, name)
    for one in (source, kustomization):
        one["metadata"]["namespace"] = namespace
    source["spec"]["interval"] = kustomization["spec"]["retryInterval"] = "1s"
    kustomization["spec"].pop("dependsOn", None)  # the Deployment: no node is here
    return source, kustomization


async def test_a_job_applies_each_push_and_what_a_guard_holds_keeps_flux_from_ready(
    scene, files, flux, runner, namespace
):
    with_example(files)
    async with scene.peers():
        commit = files.push()
        await flux.apply(*flux_objects(files, namespace))
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
    scene, beside, flux, namespace, tmp_path
):
    """The controller looks seldom: without our rules and the tree Flux would be Ready before."""
    seldom = ("fleet", "--poll", "30", "--interval", "2")
    status = Ref(scene.plane.name, FLEET_STATUS, HOME, scene.fleet.name)
    async with (
        scene.peers(),
        SinkServer() as host,
        controller(scene, beside, *seldom, *notify(tmp_path, host)) as running,
    ):

        async def ready_for(commit: str, tree: str) -> None:
            await flux.applied(namespace, commit)
            looked = {"revision": commit, "files": tree}
            assert get_map(await running.status(), "status", "source", "looked") == looked
            assert (await running.condition("Ready"))["status"] == "True"

        commit, tree = pushed(beside)
        await flux.apply(*flux_objects(beside, namespace, AROUND))
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
        await is_reported(scene, host, commit)

        scene.fleet.bound, scene.fleet.extra = True, "kind: ["
        commit, _ = pushed(beside)
        assert failed in await flux.applied(namespace, commit, end=FAILED)
        assert (await running.condition("Ready"))["reason"] == "SourceInvalid"
        assert get_text(await running.status(), "status", "source", "refused") == commit

        await annotate(scene, status, {keys.SUSPEND: "a test"})
        scene.fleet.claims, scene.fleet.extra = CLAIMS, ""
        commit, tree = pushed(beside)

        async def is_suspended():
            looked = get_text(await running.status(), "status", "source", "looked", "files")
            return looked == tree and (await running.condition("Ready"))["reason"] == "Suspended"

        await eventually(is_suspended, within=120)
        await annotate(scene, status, {keys.SUSPEND: None})
        await ready_for(commit, tree)
        assert len(get_maps(await scene.at(scene.binding), "spec", "permissionClaims")) == 1


async def test_what_depends_on_the_fleet_begins_with_a_commit_once_that_is_in_place(
    scene, beside, flux, namespace
):
    source, fleet = flux_objects(beside, namespace, AROUND)
    spec = fleet["spec"] | {"path": "./claims", "dependsOn": [{"name": "fleet"}]}
    claims = fleet | {"metadata": fleet["metadata"] | {"name": "claims"}, "spec": spec}
    (beside.folder / "top" / "claims").mkdir()
    claim = build(CONFIG_MAP, "claims", namespace=namespace)
    (beside.folder / "top" / "claims" / "claim.yaml").write_text(yaml.safe_dump(claim))
    async with scene.peers(), controller(scene, beside, "fleet", *OFTEN) as running:
        commit, _ = pushed(beside)
        await flux.apply(source, fleet, claims)
        await flux.applied(namespace, commit, name="claims")
        assert (await running.condition("Ready"))["status"] == "True"

        scene.fleet.bound, scene.fleet.prune = False, HELD
        held, _ = pushed(beside)
        await flux.applied(namespace, held, end=FAILED)

        async def waits():
            said = ("False", f"dependency '{namespace}/fleet' is not ready")
            assert await flux.ready(KUSTOMIZATION, namespace, "claims") == said
            return True

        await eventually(waits)
        last = get_text(await flux.state(KUSTOMIZATION, namespace, "claims"), *APPLIED)
        assert last.endswith(commit)

        scene.fleet.bound = True
        commit, tree = pushed(beside)
        await flux.applied(namespace, commit, name="claims")
        looked = get_map(await running.status(), "status", "source", "looked")
        assert looked == {"revision": commit, "files": tree}


async def is_reported(scene, host, commit):
    """See the sentence of the guard in an Event, and in the commit status."""

    async def probe():
        said = [one.json["description"] for one in host.received if one.path.endswith(commit)]
        events = await scene.plane.cluster.list(EVENT, namespace=HOME)
        notes = [get_text(one, "note") for one in events.items if one["reason"] == "GuardTripped"]
        assert said[-1:], commit
        assert said[-1].startswith("held back by a guard: the files have no unit left"), said
        assert any("prune.allowEmpty" in one for one in notes), notes
        return True

    await eventually(probe)


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "not merged"])
async def test_the_brake_and_every_confirmation_survive_flux_where_it_merges(
    scene, beside, flux, namespace, merged
):
    """Without the annotation of Flux, it takes away what `kubectl annotate` wrote."""
    await manifests.install_all(scene.plane.cluster, crds.load(*crds.BROKERS))
    spec = {"group": scene.offer.group, "secretRef": {"name": "broker"}}
    marks = Marks(annotations=MERGED if merged else {})
    broker = build(SERVICE_BROKER, "db", namespace=namespace, marks=marks, spec=spec)
    commit, _ = pushed(beside, broker, merged=merged)
    source, kustomization = flux_objects(beside, namespace, AROUND)
    kustomization["spec"]["wait"] = False
    await flux.apply(source, kustomization)
    await flux.applied(namespace, commit)
    marked = (
        Ref(scene.plane.name, FLEET_STATUS, HOME, scene.fleet.name),
        Ref(scene.plane.name, SERVICE_BROKER, namespace, "db"),
    )
    for ref in marked:
        await annotate(scene, ref, MARKS)
    await flux.reconciled(namespace, "1")
    scene.fleet.claims = ", claims: []"
    commit, _ = pushed(beside, broker, merged=merged)
    await flux.applied(namespace, commit)
    for ref in marked:
        kept = annotations_of(await scene.at(ref)).items() & MARKS.items()
        assert kept == (MARKS.items() if merged else set()), ref


async def test_a_merge_that_changes_the_job_lets_one_that_runs_end(
    scene, files, flux, runner, namespace
):
    job = with_example(files) / "job.yaml"
    source, kustomization = flux_objects(files, namespace)
    kustomization["spec"]["timeout"] = "5s"  # a fix waits so long for the Job
    running = Ref(scene.plane.name, JOB, JOBS, "fleet")
    runner.works.clear()
    async with scene.peers():
        await flux.apply(source, kustomization)
        commit = files.push()
        await flux.applied(namespace, commit, end=FAILED)
        begun = uid_of(await scene.at(running))
        job.write_text(job.read_text().replace("klutchctl:0.1.0", "klutchctl:0.1.1"))
        commit = files.push()

        async def is_refused():
            _, message = await flux.ready(KUSTOMIZATION, namespace)
            attempted = get_text(await flux.state(KUSTOMIZATION, namespace), *ATTEMPTED)
            return attempted.endswith(commit) and "field is immutable" in message

        await eventually(is_refused)
        assert uid_of(await scene.at(running)) == begun
        runner.works.set()
        await eventually(lambda: runner.ended)
        await runner.expire()
        await flux.applied(namespace, commit)
        assert [one.code for one in runner.ended] == [0, 0]


async def test_a_kustomization_that_is_deleted_leaves_its_namespace_and_what_is_in_it(
    scene, files, flux, runner, namespace
):
    with_example(files)
    commit = files.push()
    async with scene.peers():
        await flux.apply(*flux_objects(files, namespace))
        await flux.applied(namespace, commit)
    kept = await runner.fill()
    gone = flux.ref(KUSTOMIZATION, namespace)
    await removal.remove(scene.plane.cluster, gone)
    await eventually(lambda: scene.is_gone(gone))
    await runner.is_left(kept)


async def test_an_artifact_of_flux_is_planned_and_applied_by_its_digest_alone(
    scene, files, flux, namespace
):
    commit = files.push()
    source, _ = flux_objects(files, namespace)
    await flux.apply(source)

    async def artifact() -> Any:
        found = get_map(await flux.state(SOURCE, namespace), "status", "artifact")
        return found.get("revision") == f"main@sha1:{commit}" and found

    found = await eventually(artifact)
    place = ("--artifact", f"{found['url']}@{found['digest']}")
    async with scene.peers():
        for command in (("plan",), ("apply", "--auto-approve", "--wait")):
            done = await scene.klutchctl(*command, *place)
            assert (done.code, scene.offer.name in done.stdout) == (0, True), done.stderr
    assert await scene.at(scene.binding) is not None


def tampered(stored):
    """Change a byte of an archive; return what was there."""
    original = stored.read_bytes()
    stored.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    return original


@pytest.fixture
async def commit(scene, files, flux, namespace):
    """A source that Flux verifies, and a function that commits what a signer has signed."""
    cluster, git = scene.plane.cluster, pygit2.Repository(str(files.bare))
    secret = build(SECRET, "keys", namespace=namespace)
    secret = {**secret, "stringData": {"alice.sshpub": SIGNER.line}}
    await cluster.create(secret, SECRET, manager="tests")
    source, _ = flux_objects(files, namespace)
    source["spec"]["verify"] = {"mode": "HEAD", "secretRef": {"name": "keys"}}
    await flux.apply(source)

    def made(signer):
        scene.fleet.write()
        content = (scene.fleet.folder / "fleet.yaml").read_bytes()
        return signed_commit(git, {"fleet.yaml": content}, signer)

    return made


async def test_the_controller_applies_what_flux_has_verified_and_nothing_else(
    scene, files, flux, namespace, commit
):
    options = ("--flux-source", f"{namespace}/fleet", "--fleet", scene.fleet.name, *OFTEN)
    followed: Any = SimpleNamespace(options=options, environ={}, folder=files.folder)

    async def refuses(running, marks, reason, *texts):
        async def probe():
            found = await running.condition("Ready")
            assert found.get("reason") == reason, found
            return all(one in found["message"] for one in texts)

        await eventually(probe)
        assert deeds(scene, marks) == []

    async with scene.peers():
        async with controller(scene, followed, "--require-verified") as running:
            marks = scene.marks()
            commit(None)
            await refuses(running, marks, "SourceUnverified")
            commit(SIGNER)
            await bound_with(scene, 1)
            await scene.meddle(scene.binding, {"spec": {"permissionClaims": []}})
            await bound_with(scene, 1)  # a repair: the round before is over
            await flux.suspend(namespace)  # what was verified is no more the newest form
            marks = scene.marks()
            await refuses(running, marks, "SourceUnverified", "newest form")
        artifact = get_map(await flux.state(SOURCE, namespace), "status", "artifact")
        stored = flux.storage / artifact["path"]
        original = tampered(stored)
        await scene.meddle(scene.binding, {"spec": {"permissionClaims": []}})
        async with controller(scene, followed) as running:
            marks = scene.marks()
            await refuses(running, marks, "SourceUnreadable", f"and not {artifact['digest']}")
            stored.unlink()
            await refuses(running, marks, "SourceUnreadable", "HTTP 404")
            stored.write_bytes(original)
            await bound_with(scene, 1)


def test_health_of_each_kind_in_each_state_by_the_real_evaluator():
    """An expression that cannot be evaluated would fail this: Flux takes it for "not yet"."""
    objects = [named(rule, live) for rule, live, *_ in TABLE.values()]
    exprs = yaml.safe_load(health.text("flux", CLAIMED))["spec"]["healthCheckExprs"]
    done = subprocess.run(
        [real_flux.programs() / "evaluate"],
        input=json.dumps({"healthCheckExprs": exprs, "objects": objects}),
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {name: status for name, (_, _, status, _) in TABLE.items()}
    assert dict(zip(TABLE, json.loads(done.stdout), strict=True)) == wanted
