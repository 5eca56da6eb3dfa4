"""T2: whoever may plan reads no Secret, and still sees what became of a kubeconfig of ours."""

import base64
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from klutchctl import repository
from reconciler.api import API_SERVICE_BINDING, CLUSTER_BINDING
from reconciler.blueprints.objects import build
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import SECRET, Ref
from reconciler.core.times import format_time
from reconciler.doctor import rights
from reconciler.doctor.rights import Side, Task
from reconciler.fleet.values import Mode
from tests.support import modes, removal
from tests.support.apply_runs import inhabit, staged
from tests.support.role_holders import kubeconfig, role_holder


@pytest.fixture(params=modes.both(Mode.APP_CLUSTER_BINDING))
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    folder = tmp_path / "fleet"
    folder.mkdir()
    made = staged(
        control_plane, app_cluster, namespace=namespace, mode=request.param, folder=folder
    )
    async with made as scene:
        async with scene.peers():
            await scene.apply("--wait")
        yield scene


@asynccontextmanager
async def planner(scene, folder):
    """Let klutchctl run with the printed roles of a plan, and nothing else."""
    scene.fleet.write()
    fleet = repository.fleet_in(scene.fleet.folder, check_owner=False)
    admin = scene.kubeconfig
    async with AsyncExitStack() as stack:
        tokens = {
            live: await stack.enter_async_context(role_holder(live, fleet, Task.PLAN, side))
            for live, side in ((scene.plane, Side.CONTROL_PLANE), (scene.app, Side.APP_CLUSTER))
        }
        scene.kubeconfig = kubeconfig(folder, tokens)
        account = rights.account(fleet.name, Task.PLAN)
        yield f"system:serviceaccount:{names.KLUTCH_NAMESPACE}:{account}"
        scene.kubeconfig = admin


def of_secrets(marks, user):
    return [
        event["requestURI"]
        for audit, mark in marks
        for event in audit.events_since(mark)
        if event["user"]["username"] == user and event["objectRef"].get("resource") == "secrets"
    ]


def carrier(scene):
    if scene.fleet.mode is not Mode.DIRECT:
        return scene.whole
    return Ref(scene.plane.name, CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)


def binding(scene):
    """Return what notes in Direct mode what its Secret in the app cluster is."""
    return Ref(scene.app.name, API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, scene.offer.name)


async def unnoted(scene):
    """Leave things as version 0.1.0 did."""
    gone = {"metadata": {"annotations": {keys.CREDENTIAL: None}}}
    await scene.plane.cluster.merge_patch(carrier(scene), gone, manager="tests")
    if scene.fleet.mode is Mode.DIRECT:
        await scene.app.cluster.merge_patch(binding(scene), gone, manager="tests")


async def test_a_plan_with_the_printed_roles_asks_for_no_secret_and_finds_all_in_sync(
    scene, tmp_path
):
    async with planner(scene, tmp_path) as user:
        marks = scene.marks()
        assert await scene.lines() == []
        for command in ("drift", "status"):
            run = await scene.klutchctl(command, str(scene.fleet.folder))
            assert run.code in (0, 9), run.stderr
        out = str(tmp_path / "live.json")
        run = await scene.klutchctl("snapshot", str(scene.fleet.folder), "--out", out)
        assert run.code == 0, run.stderr
        run = await scene.klutchctl("why", f"shop/{scene.offer.name}", str(scene.fleet.folder))
        assert run.code in (0, 9), run.stdout + run.stderr
        assert of_secrets(marks, user) == []


ELSEWHERE = "https://db.example:6443"


async def planned_and_applied(scene, folder, lines):
    """Let a plan without rights on Secrets find what to change, and an administrator apply it."""
    saved, admin = str(folder / "saved.plan"), scene.kubeconfig
    async with planner(scene, folder):
        assert await scene.lines() == lines
        run = await scene.klutchctl("plan", str(scene.fleet.folder), "--out", saved)
        assert run.code == 0, run.stderr
    scene.kubeconfig = admin
    done = await scene.klutchctl("apply", saved, "-o", "json", "--auto-approve")
    assert done.code == 0, done.stdout + done.stderr
    async with planner(scene, folder):
        return await scene.lines()


async def test_a_plan_sees_another_endpoint_and_its_saved_plan_is_applied(scene, tmp_path):
    target = "mode: " if scene.fleet.mode is Mode.DIRECT else "controlPlane: eu"
    write = type(scene.fleet).write

    def elsewhere():
        write(scene.fleet)
        file = scene.fleet.folder / "fleet.yaml"
        text = file.read_text()
        file.write_text(text.replace(target, f"endpoint: '{ELSEWHERE}', {target}", 1))

    scene.fleet.write = elsewhere
    if scene.fleet.mode is not Mode.DIRECT:
        assert await planned_and_applied(scene, tmp_path, [("update", "Secret")]) == []
        assert ELSEWHERE in annotations_of(await scene.at(carrier(scene)))[keys.CREDENTIAL]
        return  # the backend brings it to the space, and the konnector reads it there
    # Somebody else's binding, which leads by the same Secret, is left alone.
    ours, theirs = binding(scene), replace(binding(scene), name="others.example.com")
    spec = (await scene.at(ours))["spec"]
    bare = build(API_SERVICE_BINDING, theirs.name, namespace=theirs.namespace, spec=spec)
    await scene.app.cluster.create(bare, API_SERVICE_BINDING, manager="kubectl")
    # No konnector is there that could try it.
    beat = {"lastHeartbeatTime": format_time(SystemClock().now() - timedelta(minutes=11))}
    await scene.plane.cluster.merge_patch(
        carrier(scene), {"status": beat}, manager="tests", subresource="status"
    )
    assert await planned_and_applied(scene, tmp_path, 2 * [("update", "Secret")]) == []
    source = annotations_of(await scene.at(carrier(scene)))[keys.CREDENTIAL]
    assert ELSEWHERE in source
    assert annotations_of(await scene.at(ours))[keys.CREDENTIAL] == source
    assert keys.CREDENTIAL not in annotations_of(await scene.at(theirs))
    secret = Ref(
        scene.app.name, SECRET, names.KLUTCH_NAMESPACE, names.kubeconfig_secret(scene.space)
    )
    kubeconfig = base64.b64decode((await scene.at(secret))["data"]["kubeconfig"])
    assert ELSEWHERE.encode() in kubeconfig


async def test_what_was_not_noted_is_looked_at_by_an_apply_which_writes_the_note_once(
    scene, tmp_path
):
    await unnoted(scene)
    saved = str(tmp_path / "saved.plan")
    admin = scene.kubeconfig
    async with planner(scene, tmp_path):
        run = await scene.klutchctl("plan", str(scene.fleet.folder), "--out", saved, "-o", "json")
        reasons = {one["reason"] for one in run.report["changes"] if one["subject"] != "space"}
        assert any("apply compares its credentials" in one for one in reasons), reasons
    scene.kubeconfig = admin
    marks = scene.marks()
    done = await scene.klutchctl("apply", saved, "-o", "json", "--auto-approve")
    assert done.code == 0, done.stdout + done.stderr
    written = {
        one.resource
        for audit, mark in marks
        for one in audit.writes_since(mark)
        if one.agent == "klutchctl"
    }
    direct = scene.fleet.mode is Mode.DIRECT
    notes = {"clusterbindings", "apiservicebindings"} if direct else {"appclusterbindings"}
    assert written == {"leases", *notes}
    assert keys.CREDENTIAL in annotations_of(await scene.at(carrier(scene)))
    if direct:
        assert keys.CREDENTIAL in annotations_of(await scene.at(binding(scene)))
    marks = scene.marks()
    await scene.apply()
    assert [w for a, m in marks for w in a.writes_since(m) if w.agent == "klutchctl"] == []


async def test_no_token_stands_in_a_note(scene):
    note = annotations_of(await scene.at(carrier(scene)))[keys.CREDENTIAL]
    found = await scene.plane.cluster.list(SECRET)
    for one in found.items:
        for value in (one.get("data") or {}).values():
            text = base64.b64decode(value).decode("latin-1")
            assert len(text) < 20 or text not in note


@pytest.mark.parametrize("scene", [Mode.DIRECT], ids=["direct"], indirect=True)  # the same code
async def test_what_an_apply_finds_different_is_not_done(scene, tmp_path):
    """The Secret leads elsewhere, and no note says so: exit 7, and the Secret stays as it is."""
    saved = str(tmp_path / "saved.plan")
    await unnoted(scene)
    run = await scene.klutchctl("plan", str(scene.fleet.folder), "--out", saved)
    assert run.code == 0, run.stderr
    ref = Ref(scene.plane.name, SECRET, scene.space, names.KUBECONFIG)
    broken = {"stringData": {"kubeconfig": "nothing"}}
    await scene.plane.cluster.merge_patch(ref, broken, manager="tests")
    before = await scene.at(ref)
    done = await scene.klutchctl("apply", saved, "-o", "json", "--auto-approve")
    assert done.code == 7, done.stdout + done.stderr
    assert await scene.at(ref) == before


@pytest.mark.parametrize("scene", [Mode.DIRECT], ids=["direct"], indirect=True)
async def test_one_apply_brings_a_new_address_and_a_new_token_to_a_konnector_at_work(scene):
    secret = Ref(
        scene.app.name, SECRET, names.KLUTCH_NAMESPACE, names.kubeconfig_secret(scene.space)
    )
    moved = scene.plane.connection.server.replace("127.0.0.1", "localhost")
    assert moved != scene.plane.connection.server
    token = Ref(scene.plane.name, SECRET, scene.space, names.BINDER)
    async with scene.peers():
        scene.fleet.plane = f", endpoint: {moved!r}"
        first = await scene.apply("--wait")
        assert [(status, action) for status, action, _ in first.statuses] == 2 * [
            ("done", "update")
        ]
        kubeconfig = base64.b64decode((await scene.at(secret))["data"]["kubeconfig"])
        assert moved.encode() in kubeconfig
        old = base64.b64decode((await scene.at(token))["data"]["token"])
        await removal.remove(scene.plane.cluster, token)
        second = await scene.apply("--wait")
        assert [kind for _, _, kind in second.statuses] == 3 * ["Secret"]
        kubeconfig = base64.b64decode((await scene.at(secret))["data"]["kubeconfig"])
        assert old not in kubeconfig
        assert await scene.lines() == []
        await inhabit(scene)
