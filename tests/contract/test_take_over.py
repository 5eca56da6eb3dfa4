"""Take-over: what a plan says of installations that the original made (mapping.md 0, 2 to 9).

Each is a capture that is made again in real clusters, with the fleet that an operator would write
to take it over.
"""

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pytest
import yaml

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.manifest import covers, drop, get_int, get_map, get_maps, get_text
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection, Token
from tests.support import captures
from tests.support.captures import APP_CLUSTER, CONTROL_PLANE, SECOND_APP_CLUSTER
from tests.support.clusters import LiveCluster
from tests.support.role_holders import operator
from tests.support.take_overs import Scene, change_of, fields, guards, lines

Test: TypeAlias = Callable[..., Any]
BIND: Final = names.KLUTCH_NAMESPACE
SPACE: Final = "cluster-q7x2d"
DATABASES: Final = "databases.shop.example"
QUEUES: Final = "queues.shop.example"

DEFAULT_MODE: Final = "default-mode"
CONTROL_PLANE_MODE: Final = "control-plane-mode"
CLUSTER_SCOPED: Final = "cluster-scoped"
TWO_APP_CLUSTERS: Final = "two-app-clusters"
DEFECTS: Final = "defects"
BROKEN: Final = "broken-kubeconfig"
# What cannot be taken over stands beside what can.
BESIDE: Final = {CONTROL_PLANE_MODE: ("invalid-app-cluster-bindings",)}


def of_app_cluster_binding(cluster: str, place: str) -> list[str]:
    """What a cluster in AppClusterBinding mode gets: an identity of its own, and our marks."""
    return [
        f"create {cluster}: Namespace klutch-bind",
        f"create {cluster}: ServiceAccount klutch-bind/klutch-konnector",
        f"create {cluster}: ClusterRole klutch-konnector",
        f"create {cluster}: ClusterRoleBinding klutch-konnector",
        f"create {cluster}: Secret klutch-bind/klutch-konnector",
        f"adopt control-plane/eu: AppClusterBinding {place}",
        f"update control-plane/eu: AppClusterBinding {place}",
        # What its kubeconfig is, for plans that may not read it.
        f"update control-plane/eu: AppClusterBinding {place}",
    ]


LINES: Final[Mapping[str, Sequence[str]]] = {
    DEFAULT_MODE: [
        f"adopt control-plane/eu: Namespace {SPACE}",
        f"adopt control-plane/eu: ServiceAccount {SPACE}/klutch-binder",
        f"adopt control-plane/eu: Secret {SPACE}/klutch-binder",
        f"adopt control-plane/eu: ClusterBinding {SPACE}/cluster",
        f"update control-plane/eu: ClusterBinding {SPACE}/cluster",
        f"adopt shop: APIServiceBinding klutch-bind/{DATABASES}",
        f"update shop: APIServiceBinding klutch-bind/{DATABASES}",
        f"adopt shop: APIServiceBinding klutch-bind/{QUEUES}",
        f"update shop: APIServiceBinding klutch-bind/{QUEUES}",
    ],
    CONTROL_PLANE_MODE: of_app_cluster_binding("shop", "team-a/shop"),
    CLUSTER_SCOPED: of_app_cluster_binding("geo", "team-a/geo"),
    TWO_APP_CLUSTERS: [
        *of_app_cluster_binding("billing", "team-b/billing"),
        *of_app_cluster_binding("shop", "team-a/shop"),
    ],
    DEFECTS: of_app_cluster_binding("shop", "team-a/shop"),
}
# An adoption writes these, and nothing else; an update of what agrees writes the last one.
MARKS: Final = {keys.FLEET, keys.CLUSTER, keys.BINDING, keys.APP_CLUSTER_UID, keys.ACCESS}


@pytest.fixture(scope="module")
async def places(
    control_plane, app_cluster, programs, tmp_path_factory
) -> AsyncIterator[Mapping[str, LiveCluster]]:
    """The clusters of all tests, and a second app cluster."""
    home = tmp_path_factory.mktemp("captures")
    async with (
        captures.provided(control_plane),
        captures.app_clusters(home, programs, "second-app") as (second,),
    ):
        yield {CONTROL_PLANE: control_plane, APP_CLUSTER: app_cluster, SECOND_APP_CLUSTER: second}


@pytest.fixture(scope="module")
async def scene(request, places, tmp_path_factory) -> AsyncIterator[Scene]:
    """An installation as it was recorded. Tests leave it as it was."""
    name = request.param
    folder = tmp_path_factory.mktemp("operator")
    async with (
        captures.installed(places, name, *BESIDE.get(name, ())) as installation,
        operator(tuple(places.values()), folder) as somebody,
    ):
        before = await installation.states()
        yield Scene(name, tmp_path_factory.mktemp(name), installation, before, somebody)


@pytest.fixture(scope="module")
async def taking_over(scene) -> None:
    """Take the installation over. Tests of it as it was recorded stand above, and come before."""
    scene.before = await scene.installation.states()
    scene.applied = scene.apply()


def every(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", names, indirect=True, scope="module")


def taken_over(*names: str) -> Callable[[Test], Test]:
    def both(test: Test) -> Test:
        return every(*names)(pytest.mark.usefixtures("taking_over")(test))

    return both


@every(*LINES, BROKEN)
async def test_an_installation_is_as_it_was_recorded(scene):
    installation = scene.installation
    for ref, recorded in installation.recorded.items():
        live = await installation.live(ref).cluster.get(ref)
        assert live is not None, ref
        content = drop(drop(recorded, "metadata"), "data")
        assert covers(live, content), ref
        generation = get_int(recorded, "metadata", "generation")
        assert generation in (None, get_int(live, "metadata", "generation")), ref
        held = get_map(recorded, "metadata")
        for field in ("labels", "annotations", "finalizers"):
            assert covers(get_map(live, "metadata").get(field), held.get(field, {})), ref
        assert "<" not in json.dumps(drop(recorded, "data")), ref
        writers = {
            (entry["manager"], entry["operation"])
            for entry in get_maps(live, "metadata", "managedFields")
        }
        # An object with nothing but a name has none, as in the captures.
        assert not writers or installation.writers[ref] <= writers, ref


@every(DEFAULT_MODE)
async def test_the_kubeconfig_of_an_installation_leads_to_its_space(scene):
    secret = scene.ref(APP_CLUSTER, SECRET, f"{BIND}/kubeconfig-9hk4v")
    live = await scene.installation.live(secret).cluster.get(secret)
    found = yaml.safe_load(base64.b64decode(get_text(live, "data", "kubeconfig")))
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    way = Connection(
        name="the space",
        server=cluster["server"],
        credential=Token(Secret(user["token"])),
        ca=base64.b64decode(cluster["certificate-authority-data"]).decode(),
    )
    space = found["contexts"][0]["context"]["namespace"]
    async with KubeCluster(way) as reached:
        assert (
            await reached.get(Ref(reached.name, api.CLUSTER_BINDING, space, "cluster")) is not None
        )


@every(*LINES)
async def test_an_installation_is_adopted_as_it_is(scene):
    plan = scene.plan()
    # Whoever plans without a right on Secrets leaves all of it to an apply.
    blind = json.loads(scene.klutchctl("plan", str(scene.folder), "-o", "json"))
    said = ["looked at by apply" in one["reason"] for one in blind["changes"]]
    assert all(said) if scene.name == DEFAULT_MODE else any(said)
    assert lines(plan) == LINES[scene.name]
    for nothing in ("held", "unseen", "widened", "warnings"):
        assert plan[nothing] == [], nothing
    for change in plan["changes"]:
        written = {field["path"].rpartition("/")[2] for field in change.get("fields", ())}
        known = {key.replace("/", "~1") for key in MARKS}
        if change["action"] == "adopt":
            assert written <= known, change
            assert set(change["after"]) == {"apiVersion", "kind", "metadata"}, change
        elif change["action"] == "update" and change.get("fields"):
            assert written == {keys.DELETION_POLICY.replace("/", "~1")}, change
    assert {path.split("/")[1] for path in fields(plan)} == {"metadata"}, "no spec, no data"


@every(*LINES)
async def test_a_plan_writes_nothing_and_is_the_same_from_a_snapshot(scene):
    marks, versions = scene.marks(), await scene.installation.versions()
    assert scene.plan() == scene.plan()
    plan = json.loads(scene.klutchctl("plan", str(scene.folder), "-o", "json"))
    file = str(scene.folder / "snapshot")
    scene.klutchctl("snapshot", str(scene.folder), "--out", file)
    saved = scene.klutchctl("plan", str(scene.folder), "--snapshot", file, "-o", "json")
    assert json.loads(saved)["id"] == plan["id"]
    assert await scene.installation.versions() == versions
    assert scene.writes_since(marks) == []


@every(BROKEN)
async def test_a_binding_that_leads_nobody_knows_where_gets_no_second_space(scene):
    plan = scene.plan()
    assert guards(plan) == ["unreadable-kubeconfig"]
    assert {change["action"] for change in plan["changes"]} == {"blocked"}
    (held,) = plan["held"]
    assert "its Secret klutch-bind/kubeconfig-a holds no kubeconfig" in held["message"]
    repaired = scene.ref(CONTROL_PLANE, SECRET, "cluster-space/kubeconfig")
    good = await scene.installation.live(repaired).cluster.get(repaired)
    assert good is not None
    broken = scene.ref(APP_CLUSTER, SECRET, f"{BIND}/kubeconfig-a")
    async with scene.installation.altered(broken, {"data": good["data"]}):
        assert f"adopt shop: APIServiceBinding klutch-bind/{DATABASES}" in lines(scene.plan())
    async with scene.installation.without(broken):
        (held,) = scene.plan()["held"]
        assert "its Secret klutch-bind/kubeconfig-a does not exist" in held["message"]


@every(DEFAULT_MODE)
async def test_what_the_files_do_not_name_is_named_and_left_alone(scene):
    plan = scene.plan(fleet=without_binding(scene.text, "jobs"))
    assert lines(plan) == [line for line in LINES[DEFAULT_MODE] if QUEUES not in line]
    assert plan["warnings"] == [f"shop: unmanaged, and left alone: {QUEUES}"]


@every(DEFAULT_MODE)
async def test_a_drift_from_before_is_a_line_of_its_own(scene):
    bound = scene.ref(APP_CLUSTER, api.API_SERVICE_BINDING, f"{BIND}/{DATABASES}")
    async with scene.installation.altered(bound, {"spec": {"permissionClaims": None}}):
        plan = scene.plan()
    assert lines(plan) == LINES[DEFAULT_MODE]
    assert "/spec/permissionClaims" in fields(plan)
    assert [claim["claim"] for claim in plan["widened"]] == ["configmaps", "secrets"]


@every(CONTROL_PLANE_MODE)
async def test_a_unit_that_the_app_cluster_binding_does_not_list_is_added_to_it(scene):
    fleet = scene.text.replace("resource: databases", "resource: queues").partition("  claims:")[0]
    plan = scene.plan(fleet=fleet + "  claims: []\n")
    space = "klutch-bind-team-a-shop"
    assert lines(plan) == [
        *LINES[CONTROL_PLANE_MODE],
        f"create control-plane/eu: APIServiceBinding {space}/{QUEUES}",
    ]
    update = change_of(plan, "update", api.APP_CLUSTER_BINDING)
    listed = [one["resource"] for one in update["after"]["spec"]["apiExports"]]
    assert listed == ["databases", "queues"]
    assert f"shop: unmanaged, and left alone: {DATABASES}" in plan["warnings"]


@taken_over(*LINES)
async def test_a_take_over_changes_no_object_and_needs_no_second_run(scene):
    assert {one["status"] for one in scene.applied["outcomes"]} == {"done"}
    assert await scene.installation.states() == scene.before
    assert lines(scene.plan()) == []
    marks = scene.marks()
    assert scene.apply()["outcomes"] == []
    assert scene.writes_since(marks) == []


@taken_over(DEFAULT_MODE)
async def test_a_moved_file_changes_nothing(scene):
    documents = scene.text.split("---\n")
    head, bindings = "---\n".join(documents[:-2]), "---\n".join(documents[-2:])
    included = head.replace("spec: {}", "spec: {include: [elsewhere.yaml]}", 1)
    assert lines(scene.plan(fleet=included, elsewhere=bindings)) == []


@taken_over(DEFAULT_MODE)
async def test_a_renamed_binding_is_a_change_of_labels(scene):
    plan = scene.plan(fleet=scene.text.replace("name: jobs", "name: tasks"))
    assert lines(plan) == [f"update shop: APIServiceBinding {BIND}/{QUEUES}"]
    assert fields(plan) == {"/metadata/labels/klutchctl.dev~1binding"}


@taken_over(DEFAULT_MODE)
async def test_a_renamed_cluster_keeps_what_it_has(scene):
    text = scene.text.replace("metadata: {name: shop}", "metadata: {name: store}")
    plan = scene.plan(fleet=text.replace("names: [shop]", "names: [store]"))
    assert lines(plan) == [
        f"update control-plane/eu: Namespace {SPACE}",
        f"update control-plane/eu: ServiceAccount {SPACE}/klutch-binder",
        f"update control-plane/eu: Secret {SPACE}/klutch-binder",
        f"update control-plane/eu: ClusterBinding {SPACE}/cluster",
        f"update store: APIServiceBinding {BIND}/{DATABASES}",
        f"update store: APIServiceBinding {BIND}/{QUEUES}",
    ]
    assert fields(plan) == {"/metadata/labels/klutchctl.dev~1cluster"}


@taken_over(DEFAULT_MODE)
async def test_a_removed_binding_is_released(scene):
    plan = scene.plan(fleet=without_binding(scene.text, "jobs"))
    assert lines(plan) == [f"release shop: APIServiceBinding {BIND}/{QUEUES}"]
    assert plan["held"] == []
    assert plan["warnings"] == [
        f"shop/{QUEUES}: its released copies stay beside those of other units; the original "
        "konnector and backend delete them with their app namespace"
    ]
    (release,) = [change for change in plan["changes"] if change["action"] == "release"]
    assert "0 instances stay" in release["reason"]
    assert [(step["verb"], step["ref"]["kind"]) for step in release["steps"]] == [
        ("remember", "Namespace"),
        ("set-deletion-policy", "APIServiceBinding"),
        ("delete-orphaning", "APIServiceBinding"),
        ("await-stop", "APIServiceExport"),
        ("delete", "APIServiceExportRequest"),
        ("delete", "APIServiceExport"),
        ("release-copies", QUEUES),
        ("free-instances", QUEUES),
        ("forget", "Namespace"),
    ]


@taken_over(DEFAULT_MODE)
async def test_a_drift_by_hand_is_repaired(scene):
    bound = scene.ref(APP_CLUSTER, api.API_SERVICE_BINDING, f"{BIND}/{DATABASES}")
    claims = scene.before[bound].content["spec"]["permissionClaims"]
    narrow = [claim | {"selector": {"owner": "Provider", "names": ["a"]}} for claim in claims[:1]]
    async with scene.installation.altered(bound, {"spec": {"permissionClaims": narrow}}):
        plan = scene.plan()
    assert lines(plan) == [f"update shop: APIServiceBinding {BIND}/{DATABASES}"]
    assert all(path.startswith("/spec/permissionClaims") for path in fields(plan))
    widened = [(one["claim"], one["before"], one["after"]) for one in plan["widened"]]
    assert widened == [
        ("configmaps", "nothing", "names [backup-settings]"),
        ("secrets", "names [a]", "all"),
    ]
    assert lines(scene.plan()) == []


@taken_over(DEFAULT_MODE)
async def test_a_claim_narrowed_in_the_files_is_an_update_that_widens_nothing(scene):
    plan = scene.plan(fleet=scene.text.replace('names: ["*"]', "names: [orders-creds]"))
    assert lines(plan) == [f"update shop: APIServiceBinding {BIND}/{DATABASES}"]
    assert plan["widened"] == []


@taken_over(DEFAULT_MODE)
async def test_a_claim_wider_than_offered_blocks_its_unit(scene):
    plan = scene.plan(fleet=scene.text.replace("names: [backup-settings]", 'names: ["*"]'))
    assert lines(plan) == [f"blocked shop: APIServiceBinding {BIND}/{DATABASES}"]
    (reason,) = [one["reason"] for one in plan["changes"] if one["action"] == "blocked"]
    assert "reaches further than the control plane offers" in reason


@taken_over(DEFAULT_MODE)
async def test_a_request_that_was_pruned_away_is_not_missed(scene):
    request = scene.ref(CONTROL_PLANE, api.API_SERVICE_EXPORT_REQUEST, f"{SPACE}/{QUEUES}")
    export = scene.ref(CONTROL_PLANE, api.API_SERVICE_EXPORT, f"{SPACE}/{QUEUES}")
    async with scene.installation.without(request):
        assert lines(scene.plan()) == []
        async with scene.installation.without(export):
            plan = scene.plan()
    asked = f"control-plane/eu: APIServiceExportRequest {SPACE}/{QUEUES}"
    assert lines(plan) == [f"create {asked}"]


@taken_over(DEFAULT_MODE)
@pytest.mark.parametrize(
    ("phase", "line"), [("Failed", "replace"), ("Succeeded", "replace"), ("Pending", "")]
)
async def test_a_request_without_an_export_is_made_again_once_it_has_ended(scene, phase, line):
    request = scene.ref(CONTROL_PLANE, api.API_SERVICE_EXPORT_REQUEST, f"{SPACE}/{QUEUES}")
    export = scene.ref(CONTROL_PLANE, api.API_SERVICE_EXPORT, f"{SPACE}/{QUEUES}")
    status = {"status": {"phase": phase, "terminalMessage": "no luck"}}
    async with scene.installation.altered(request, status, subresource="status"):
        assert lines(scene.plan()) == [], "the export is there"
        async with scene.installation.without(export):
            plan = scene.plan()
    asked = f"control-plane/eu: APIServiceExportRequest {SPACE}/{QUEUES}"
    assert lines(plan) == ([f"{line} {asked}"] if line else [])
    assert plan["held"] == []
    steps = [step["verb"] for change in plan["changes"] for step in change.get("steps", ())]
    assert steps == (["delete", "create"] if line else [])


@taken_over(DEFAULT_MODE)
async def test_a_request_of_what_is_in_use_is_not_replaced(scene):
    request = scene.ref(CONTROL_PLANE, api.API_SERVICE_EXPORT_REQUEST, f"{SPACE}/{DATABASES}")
    export = scene.ref(CONTROL_PLANE, api.API_SERVICE_EXPORT, f"{SPACE}/{DATABASES}")
    failed = {"status": {"phase": "Failed"}}
    async with (
        scene.installation.altered(request, failed, subresource="status"),
        scene.installation.without(export),
    ):
        plan = scene.plan()
    asked = f"control-plane/eu: APIServiceExportRequest {SPACE}/{DATABASES}"
    assert lines(plan) == [f"replace {asked}"]
    (held,) = plan["held"]
    assert held["guard"] == "in-use"
    assert "1 instances exist" in held["message"]


@taken_over(DEFAULT_MODE)
async def test_a_space_of_another_app_cluster_blocks_everything(scene):
    space = scene.ref(CONTROL_PLANE, NAMESPACE, SPACE)
    other = {"metadata": {"annotations": {keys.APP_CLUSTER_UID: "another"}}}
    async with scene.installation.altered(space, other):
        plan = scene.plan()
    assert guards(plan) == ["identity"]
    assert {change["action"] for change in plan["changes"]} == {"blocked"}


def without_binding(fleet: str, name: str) -> str:
    """Return a fleet without one of its Bindings."""
    documents = fleet.split("---\n")
    kept = [one for one in documents if f"kind: Binding\nmetadata: {{name: {name}}}" not in one]
    assert len(kept) == len(documents) - 1
    return "---\n".join(kept)
