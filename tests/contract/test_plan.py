"""`klutchctl plan` against real clusters: what is made by hand is found, and nothing is written."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler import api
from reconciler.apply.credential_notes import note_binding, note_kubeconfig
from reconciler.apply.object_writer import ClusterWriter
from reconciler.blueprints import objects as spaces
from reconciler.controller.fence import WriteFence
from reconciler.core import keys, names
from reconciler.core.live import Address, control_plane_ref_name
from reconciler.core.manifest import Manifest, get_text, labels_of, name_of, put, uid_of
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Kind, Ref
from reconciler.core.secret import Secret
from tests.support import document_schemas, fleet_texts, programs, removal
from tests.support.clusters import LiveCluster
from tests.support.deep_objects import nested, post, typed
from tests.support.definitions import definition, spec_of, version_of
from tests.support.eventually import eventually

GROUP = "plan.example"
PLURAL = "databases"
NAME = f"{PLURAL}.{GROUP}"
DATABASE = Kind(GROUP, "v1", "Database", PLURAL)

CREDS = "{resource: secrets, version: v1, owner: Provider, names: [creds], state: Accepted}"
HEAD = fleet_texts.one_file(
    fleet_texts.document("Fleet", "FLEETNAME", "{prune: {allowEmpty: true}}"),
    fleet_texts.control_plane(at="control-plane"),
    fleet_texts.cluster(at="app-1"),
)
BINDING = fleet_texts.binding("orders-db", group=GROUP, plural=PLURAL, more=f", claims: [{CREDS}]")
CLAIM: dict[str, Any] = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "selector": {"owner": "Provider"},
}


@dataclass
class Scene:
    """A fleet repository, and the two clusters that it names."""

    folder: Path
    plane: LiveCluster
    app: LiveCluster
    space: str

    def klutchctl(self, *arguments: str, check: bool = True) -> str:
        done = programs.klutchctl("--kubeconfig", str(self.plane.kubeconfig), *arguments)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def plan(self, *options: str) -> Any:
        done = self.klutchctl("plan", str(self.folder), "-o", "json", *options, check=False)
        plan = json.loads(done)
        assert list(document_schemas.problems("plan", plan)) == []
        return plan

    def lines(self) -> list[tuple[str, str]]:
        """Return what an apply would do, which reads credentials."""
        plan = self.plan("--credentials")
        found = [(change["action"], change["ref"]["kind"]) for change in plan["changes"]]
        return [line for line in found if line[0] != "noop"]

    def write(self, text: str, *, name: str = "fleet.yaml") -> None:
        (self.folder / name).write_text(text)


@pytest.fixture
async def scene(control_plane, app_cluster, namespace, tmp_path):
    """A control plane that offers one resource, and a fleet with a name of its own."""
    fleet = namespace.removeprefix("test-")
    scene = Scene(tmp_path, control_plane, app_cluster, names.direct_space(fleet, "shop"))
    scene.write(fleet_texts.one_file(HEAD.replace("FLEETNAME", fleet), BINDING))
    if await control_plane.cluster.get(Ref(control_plane.name, CRD, "", NAME)) is None:
        await make(control_plane, definition(DATABASE), CRD)
    metadata = {"name": "databases", "namespace": namespace}
    spec = {"APIServiceSelector": {"group": GROUP, "resource": PLURAL}, "permissionClaims": [CLAIM]}
    kind = api.API_SERVICE_EXPORT_TEMPLATE
    typed: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind}
    await make(control_plane, typed | {"metadata": metadata, "spec": spec}, kind)
    yield scene
    await removal.remove(control_plane.cluster, Ref(control_plane.name, NAMESPACE, "", scene.space))
    bind = names.KLUTCH_NAMESPACE
    await removal.remove(
        app_cluster.cluster, Ref(app_cluster.name, api.API_SERVICE_BINDING, bind, NAME)
    )
    for secret in (await app_cluster.cluster.list(SECRET, namespace=bind)).items:
        await removal.remove_manifest(app_cluster.cluster, SECRET, secret)


async def make(live: LiveCluster, manifest: Manifest, kind: Kind, manager: str = "tests") -> None:
    await live.cluster.create(manifest, kind, manager=manager)


async def apply_creates(scene: Scene) -> None:
    """Do what an apply would: POST what a plan creates, and note what the kubeconfig is."""
    plan = scene.plan("--credentials")
    assert plan["unseen"] == []
    assert [one["reason"] for one in plan["changes"] if one["action"] != "create"] in (
        [],
        ["in sync"] * 1,
        ["in sync"] * 2,
    ), "nothing of an earlier test is in the way"
    for change in plan["changes"]:
        if change["action"] != "create":
            continue
        ref = change["ref"]
        kind = Kind(ref["group"], ref["version"], ref["kind"], ref["plural"], ref["namespaced"])
        on_plane = ref["cluster"] == control_plane_ref_name("eu")
        live = scene.plane if on_plane else scene.app
        manifest = change["after"]
        if kind == CRD:
            continue  # the fixture has installed it
        if kind == SECRET and "data" in manifest:
            content = await kubeconfig_text(scene)
            manifest = put(manifest, content, "data", "kubeconfig")
        await make(live, manifest, kind, keys.MANAGER_CLI)
    plane, app = (ClusterWriter(one.cluster, WriteFence()) for one in (scene.plane, scene.app))
    carrier = Ref(scene.plane.name, api.CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
    await note_kubeconfig(plane, carrier)
    for one in (change["ref"] for change in plan["changes"]):
        if one["kind"] == api.API_SERVICE_BINDING.kind:
            ref = Ref(app.cluster.name, api.API_SERVICE_BINDING, one["namespace"], one["name"])
            await note_binding(app, ref, plane, scene.space)


async def kubeconfig_text(scene: Scene) -> str:
    ref = Ref(scene.plane.name, SECRET, scene.space, names.BINDER)

    async def token() -> str:
        live = await scene.plane.cluster.get(ref)
        return "" if live is None else get_text(live, "data", "token")

    text = base64.b64decode(await eventually(token)).decode()
    connection = scene.plane.connection
    to = Address(connection.server, connection.ca or "")
    content = spaces.kubeconfig(to, Secret(text), namespace=scene.space)
    return base64.b64encode(content.encode()).decode()


async def export(scene: Scene) -> None:
    """Play the backend: an export for the request."""
    spec = {
        **spec_of(DATABASE, [version_of()]),
        "informerScope": "Namespaced",
        "permissionClaims": [CLAIM],
    }
    kind = api.API_SERVICE_EXPORT
    metadata = {"name": NAME, "namespace": scene.space}
    typed: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind}
    await make(scene.plane, typed | {"metadata": metadata, "spec": spec}, kind)


async def test_what_a_plan_leads_to_needs_no_further_plan(scene):
    assert ("create", "APIServiceBinding") in scene.lines()
    await apply_creates(scene)
    await export(scene)
    assert scene.lines() == []


async def test_a_plan_writes_to_no_cluster(scene):
    marks = [(live.audit, live.audit.mark()) for live in (scene.plane, scene.app)]
    scene.klutchctl("plan", str(scene.folder))
    scene.klutchctl("snapshot", str(scene.folder), "--out", str(scene.folder / "snapshot"))
    for audit, mark in marks:
        assert audit.writes_since(mark) == []


async def test_a_status_is_printed_again_from_its_file(scene):
    await apply_creates(scene)
    await export(scene)
    file = scene.folder.parent / "status.json"
    shown = scene.klutchctl("status", str(scene.folder), "-o", "text", "-o", f"json={file}")
    document = json.loads(file.read_text())
    assert list(document_schemas.problems("status", document)) == []
    assert document["clusters"][0]["units"][0]["origin"]["path"] == "fleet.yaml"
    assert programs.klutchctl("status", "--from", str(file)).stdout == shown


async def test_a_snapshot_gives_the_same_plan_and_no_secret(scene):
    await apply_creates(scene)
    await export(scene)  # that of a test before may go meanwhile, and shows a backend
    file = scene.folder / "snapshot"
    scene.klutchctl("snapshot", str(scene.folder), "--out", str(file))
    live, again = scene.plan(), scene.plan()
    saved = scene.klutchctl("plan", str(scene.folder), "--snapshot", str(file), "-o", "json")
    assert live == again
    assert json.loads(saved)["id"] == live["id"]
    knowing = scene.plan("--credentials")
    ref = Ref(scene.plane.name, SECRET, scene.space, names.BINDER)
    secret = await scene.plane.cluster.get(ref)
    assert secret is not None
    token = get_text(secret, "data", "token")
    for text in (token, base64.b64decode(token).decode()):
        assert text[:40] not in file.read_text() + saved + json.dumps([live, knowing])


async def test_an_installation_made_by_hand_is_adopted_without_a_change_of_spec(scene):
    """As `kubectl bind` leaves it: other names, no labels of ours."""
    await apply_creates(scene)
    await export(scene)
    ours = {"metadata": {"labels": {keys.FLEET: None, keys.CLUSTER: None, keys.BINDING: None}}}
    for live, kind, namespace, name in (
        (scene.plane, NAMESPACE, "", scene.space),
        (scene.app, api.API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, NAME),
    ):
        ref = Ref(live.name, kind, namespace, name)
        await live.cluster.merge_patch(ref, ours, manager="someone")
    space = Ref(scene.plane.name, NAMESPACE, "", scene.space)
    theirs = {"metadata": {"annotations": {keys.IDENTITY: "alice#85FeR5"}}}
    await scene.plane.cluster.merge_patch(space, theirs, manager="someone")
    assert scene.lines() == [("adopt", "Namespace"), ("adopt", "APIServiceBinding")]


async def test_drift_and_removal_give_their_lines(scene):
    await apply_creates(scene)
    await export(scene)
    bound = Ref(scene.app.name, api.API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, NAME)
    drift: Manifest = {"spec": {"permissionClaims": []}}
    await scene.app.cluster.merge_patch(bound, drift, manager="someone")
    assert scene.lines() == [("update", "APIServiceBinding")]
    request = Ref(scene.plane.name, api.API_SERVICE_EXPORT_REQUEST, scene.space, NAME)
    await removal.remove(scene.plane.cluster, request)
    assert scene.lines() == [("update", "APIServiceBinding")], "the export is there"
    fleet = (scene.folder / "fleet.yaml").read_text()
    scene.write(fleet.removesuffix(f"---\n{BINDING}"))
    assert scene.lines() == [("release", "APIServiceBinding")]
    live = await scene.app.cluster.get(bound)
    assert live is not None
    assert uid_of(live)
    assert labels_of(live)[keys.BINDING] == "orders-db"
    assert name_of(live) == NAME


async def test_a_context_that_does_not_exist_names_it_and_spares_the_others(scene):
    fleet = (scene.folder / "fleet.yaml").read_text()
    scene.write(
        fleet.replace("context: app-1", "context: nowhere").replace(
            "Context: app-1", "Context: nowhere"
        )
    )
    plan = scene.plan()
    (unseen,) = plan["unseen"]
    assert unseen["name"] == "shop"
    assert "nowhere" in unseen["reason"]
    assert {change["action"] for change in plan["changes"]} == {"unknown"}


@pytest.mark.parametrize("levels", [280, 1000, 3000])
async def test_a_request_of_any_depth_hides_nothing(scene, levels):
    await apply_creates(scene)
    await export(scene)
    kind = api.API_SERVICE_EXPORT_REQUEST
    ref = Ref(scene.plane.name, kind, scene.space, NAME)
    resource = f'{{"group":"{GROUP}","resource":"{PLURAL}"}}'
    spec = f'"spec":{{"parameters":{nested(levels)},"resources":[{resource}]}}'
    await removal.remove(scene.plane.cluster, ref)
    await post(scene.plane, kind, scene.space, typed(kind, spec, name=NAME))
    assert scene.lines() == []
    assert "Progressing" in scene.klutchctl("status", str(scene.folder))
