"""`klutchctl plan` on real clusters with exactly the roles that klutchctl prints for it."""

import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bind.door.authorizer import REVIEW
from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT_REQUEST
from reconciler.blueprints.objects import build
from reconciler.core import keys, names, refs
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import get_bool
from reconciler.core.refs import Kind, Ref
from reconciler.doctor.rights import Side, Task
from reconciler.fleet.load import load
from reconciler.fleet.values import Fleet, Mode
from reconciler.kube.client import KubeCluster
from reconciler.kube.requests import Preconditions, Propagation
from reconciler.source import disk
from tests.support import modes, programs
from tests.support.applying import Fleet as Files
from tests.support.bound_units import ByHand, new_unit
from tests.support.eventually import eventually
from tests.support.observing import BIND, kubeconfig
from tests.support.removal import remove_manifest
from tests.support.role_holders import as_holder, role_holder
from tests.support.role_holders import kubeconfig as kubeconfig_of


@dataclass
class Scene:
    """A fleet, its clusters, and the same clusters as who has only the role of a task."""

    path: Path
    files: Files
    fleet: Fleet
    by_hand: ByHand
    admin: Path
    holder: Path
    plane: KubeCluster
    app: KubeCluster
    unit: Any

    async def run(self, command: str, *arguments: str, kubeconfig: Path | None = None) -> Any:
        done = await programs.klutchctl_beside(
            "--kubeconfig", str(kubeconfig or self.holder), command, str(self.path), *arguments
        )
        return done.returncode, done.stdout, done.stderr


KONNECTOR = "deploy: true, image: registry.example.com/konnector:1"


@pytest.fixture(params=modes.both(Mode.DIRECT))
async def scene(request, namespace, on_plane, in_app, tmp_path):
    unit, name = new_unit(), namespace.removeprefix("test-")
    path = tmp_path / "fleet"
    path.mkdir()
    files = Files(path, name, request.param, unit.group, claims="", konnector=KONNECTOR)
    files.write()
    fleet, problems = load(disk.read_folder(path, check_owner=False))
    assert fleet is not None, problems
    plane, app = on_plane.live, in_app.live
    async with AsyncExitStack() as stack:
        tokens = {
            live: await stack.enter_async_context(role_holder(live, fleet, Task.PLAN, side))
            for live, side in ((plane, Side.CONTROL_PLANE), (app, Side.APP_CLUSTER))
        }
        yield Scene(
            path,
            files,
            fleet,
            ByHand(names.direct_space(name, "shop"), on_plane, in_app),
            plane.kubeconfig,
            kubeconfig_of(tmp_path, tokens),
            await stack.enter_async_context(as_holder(plane, tokens[plane])),
            await stack.enter_async_context(as_holder(app, tokens[app])),
            unit,
        )


async def test_a_plan_with_the_role_sees_all_that_an_administrator_does(scene):
    async def same() -> bool:
        """What other tests left may still be going, between the two."""
        code, out, err = await scene.run("plan", "-o", "json")
        plan = json.loads(out)
        assert (plan["unseen"], err) == ([], "")
        other, admin, _ = await scene.run("plan", "-o", "json", kubeconfig=scene.admin)
        assert (code, plan) == (other, json.loads(admin))
        return True

    await eventually(same)


async def test_so_do_a_snapshot_and_status_and_none_of_them_tries_to_write(scene):
    writers = (scene.by_hand.plane, scene.by_hand.app)
    marks = [(hand.live.audit, hand.live.audit.mark()) for hand in writers]
    for command in ("plan", "doctor"):
        await scene.run(command)
    file = scene.path / "snapshot"
    code, _, err = await scene.run("snapshot", "--out", str(file))
    assert (code, err) == (0, "")
    code, out, err = await scene.run("status", "-o", "json")
    assert (json.loads(out)["unread"], err) == ([], "")
    user = f"system:serviceaccount:klutch-bind:klutchctl-{scene.fleet.name}-plan"
    for audit, mark in marks:
        assert [one for one in audit.writes_since(mark) if one.user == user] == []


@pytest.mark.parametrize("scene", [Mode.DIRECT], indirect=True)
async def test_a_release_counts_instances_with_the_role(scene):
    """The questions that a plan asks beyond the usual reads."""
    hand, unit = scene.by_hand, scene.unit
    labels = {keys.FLEET: scene.fleet.name, keys.CLUSTER: "shop"}
    identity = {keys.IDENTITY: names.direct_identity(scene.fleet.name, "shop")}
    metadata = {"labels": labels, "annotations": identity}
    await hand.plane.create(refs.NAMESPACE, hand.space, metadata=metadata)
    await hand.cluster_binding()
    await hand.export(unit)
    await hand.bind(unit, labels=labels)
    await hand.install(unit)
    kind = Kind(unit.group, "v1", unit.resource.title(), unit.resource)
    await hand.app.create(kind, "orders", namespace=BIND)
    scene.files.bound = False
    scene.files.write()
    code, out, _ = await scene.run("plan", "-o", "json")
    plan = json.loads(out)
    assert plan["unseen"] == []
    (line,) = [one for one in plan["changes"] if one["action"] == "release"]
    assert "1" in line["reason"], (code, line)


REFUSED = {
    "namespaces": (refs.NAMESPACE, "", "somewhere"),
    "Secrets": (refs.SECRET, BIND, "some"),
    "accounts": (refs.SERVICE_ACCOUNT, BIND, "some"),
    "CRDs": (refs.CRD, "", "x.example.com"),
    "rights": (refs.CLUSTER_ROLE, "", "some"),
    "bindings": (API_SERVICE_BINDING, BIND, "x.example.com"),
    "requests": (API_SERVICE_EXPORT_REQUEST, BIND, "x.example.com"),
}


async def test_the_role_may_write_nothing(scene):
    for what, (kind, place, name) in REFUSED.items():
        metadata = {"name": name, "namespace": place} if place else {"name": name}
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        for cluster in (scene.plane, scene.app):
            for verb, write in writes(cluster, Ref(cluster.name, kind, place, name), manifest):
                assert await is_refused(write), f"may {verb} {what} in {cluster.name}"


async def is_refused(call) -> bool:
    try:
        await call
    except Forbidden:
        return True
    return False


def writes(cluster, ref, manifest):
    patch = {"metadata": {"labels": {"a": "b"}}}
    known, keep = Preconditions(uid=None), Propagation.ORPHAN
    yield "create", cluster.create(manifest, ref.kind, manager="tests", dry_run=True)
    yield ("apply", cluster.apply(manifest, ref.kind, manager="tests", force=True, dry_run=True))
    yield "patch", cluster.merge_patch(ref, patch, manager="tests", dry_run=True)
    yield "delete", cluster.delete(ref, preconditions=known, propagation=keep, dry_run=True)


async def test_the_role_reads_no_secret(scene):
    hand = scene.by_hand
    data = {"stringData": {"password": "canary"}}
    await hand.app.create(refs.SECRET, "own", namespace="default", **data)
    await hand.plane.create(refs.SECRET, "own", namespace="default", **data)
    held = kubeconfig(hand.space)
    await hand.plane.create(refs.SECRET, "kubeconfig", namespace="default", stringData={"x": held})
    for cluster in (scene.plane, scene.app):
        with pytest.raises(Forbidden):
            await cluster.list(refs.SECRET)
        with pytest.raises(Forbidden):
            await cluster.list(refs.SECRET, namespace="default")
        with pytest.raises(Forbidden):
            await cluster.get(Ref(cluster.name, refs.SECRET, "default", "own"))
        with pytest.raises(Forbidden):
            await cluster.list(refs.SECRET, namespace=BIND)
        with pytest.raises(Forbidden):
            await cluster.list(refs.SECRET, fields="metadata.name=kubeconfig")


async def test_a_doctor_finds_nothing_missing_for_a_plan_and_much_for_an_apply(scene):
    code, out, err = await scene.run("doctor", "--for", "plan", "-o", "json")
    assert (code, err) == (0, ""), out
    findings = [one for cluster in json.loads(out)["clusters"] for one in cluster["findings"]]
    # No backend runs here, which is a warning.
    assert {one["level"] for one in findings if one["check"] != "agents"} == {"ok"}
    code, out, _ = await scene.run("doctor", "-o", "json")
    assert code == 6
    for one in json.loads(out)["clusters"]:
        (finding,) = [f for f in one["findings"] if f["level"] == "problem"]
        assert finding["check"] == "rights"
        assert re.search(r"create[a-z, ]* namespaces", finding["message"])
        assert "--for apply --print" in finding["command"]
        assert one["user"].endswith(f"klutchctl-{scene.fleet.name}-plan")


async def test_developers_with_the_usual_roles_may_use_the_services(scene, namespace, in_app):
    app, group = in_app.live.cluster, scene.unit.group
    subject = {"kind": "User", "name": "dana", "apiGroup": refs.CLUSTER_ROLE.group}
    role = {"kind": "ClusterRole", "name": "edit", "apiGroup": refs.CLUSTER_ROLE.group}
    given = build(refs.ROLE_BINDING, "dana", namespace="default", subjects=[subject], roleRef=role)
    attributes = {"namespace": "default", "verb": "create", "group": group}
    asked = {"user": "dana", "resourceAttributes": {**attributes, "resource": scene.unit.resource}}
    review = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind, "spec": asked}

    async def may() -> bool:
        return get_bool(await app.create(review, REVIEW, manager="tests"), "status", "allowed")

    _, out, _ = await scene.run("doctor", "--print", "developer-rights")
    await app.create(given, refs.ROLE_BINDING, manager="tests")
    try:
        assert not await may()
        for one in yaml.safe_load_all(out):
            await app.create(one, refs.CLUSTER_ROLE, manager="tests")
        await eventually(may)
    finally:
        await remove_manifest(app, refs.ROLE_BINDING, given)
        for one in yaml.safe_load_all(out):
            await remove_manifest(app, refs.CLUSTER_ROLE, one)
