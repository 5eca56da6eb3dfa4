"""Take-over: what a plan says of installations that the original made (mapping.md 0, 2 to 9).

Each is a capture that is made again in real clusters, with the fleet that an operator would write
to take it over. What other fleets, and changes by hand, lead to: tests/model/test_captures.py.
"""

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.manifest import covers, drop, get_int, get_map, get_maps, get_text
from reconciler.core.refs import SECRET, Kind, Ref
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection, Token
from tests.support import captures, programs
from tests.support.captures import APP_CLUSTER, CONTROL_PLANE, SECOND_APP_CLUSTER
from tests.support.clusters import LiveCluster, Write
from tests.support.role_holders import Operator, operator

# The Cluster documents of the fleets in tests/captures.
_PLACES: Final = {
    "shop": captures.APP_CLUSTER,
    "geo": captures.APP_CLUSTER,
    "billing": captures.SECOND_APP_CLUSTER,
}
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
# What cannot be taken over stands beside what can.
BESIDE: Final = {CONTROL_PLANE_MODE: ("invalid-app-cluster-bindings",)}


@dataclass
class Scene:
    """An installation, and a fleet repository that means to take it over."""

    name: str
    folder: Path
    installation: captures.Installation
    before: Mapping[Ref, captures.State]  # of all objects, as they were recorded
    operator: Operator
    applied: Any = None  # what the take-over reported

    @property
    def places(self) -> Mapping[str, LiveCluster]:
        return self.installation.places

    def klutchctl(self, *arguments: str) -> str:
        done = programs.klutchctl("--kubeconfig", str(self.operator.kubeconfig), *arguments)
        assert done.returncode in (0, 6), done.stdout + done.stderr
        return done.stdout

    def plan(self) -> Any:
        """Plan the fleet of the capture, as an apply sees it, which decides about a take-over."""
        (self.folder / "fleet.yaml").write_text(captures.fleet(self.name, self.places))
        return json.loads(self.klutchctl("plan", str(self.folder), "--credentials", "-o", "json"))

    def ref(self, place: str, kind: Kind, path: str) -> Ref:
        return self.installation.ref(place, kind, path)

    def marks(self) -> dict[str, int]:
        return {place: live.audit.mark() for place, live in self.places.items()}

    def writes_since(self, marks: Mapping[str, int]) -> list[Write]:
        return [
            write
            for place, live in self.places.items()
            for write in live.audit.writes_since(marks[place])
            if write.user == self.operator.user
        ]

    def apply(self) -> Any:
        """Apply the fleet of the capture. What that creates is taken away with the capture."""
        for change in self.plan()["changes"]:
            if change["action"] == "create":
                ref = change["ref"]
                names_of = ("group", "version", "kind", "plural", "namespaced")
                live = self.places[_PLACES.get(ref["cluster"], captures.CONTROL_PLANE)]
                made = Ref(live.name, Kind(*map(ref.get, names_of)), ref["namespace"], ref["name"])
                self.installation.beside.append(made)
        return self.apply_as_planned()

    def apply_as_planned(self) -> Any:
        return json.loads(self.klutchctl("apply", str(self.folder), "--auto-approve", "-o", "json"))


def lines(plan: Any) -> list[str]:
    return [
        f"{change['action']} {change['ref']['cluster']}: {change['ref']['kind']} "
        + "/".join(part for part in (change["ref"]["namespace"], change["ref"]["name"]) if part)
        for change in plan["changes"]
        if change["action"] != "noop"
    ]


def fields(plan: Any) -> set[str]:
    """Return the paths that adoptions and updates of a plan write."""
    return {field["path"] for change in plan["changes"] for field in change.get("fields", ())}


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
    control_plane, app_cluster, second_app_cluster
) -> AsyncIterator[Mapping[str, LiveCluster]]:
    """The clusters of all tests, with what every installation stands on."""
    async with captures.provided(control_plane):
        yield {
            CONTROL_PLANE: control_plane,
            APP_CLUSTER: app_cluster,
            SECOND_APP_CLUSTER: second_app_cluster,
        }


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


# Further cases of AppClusterBindings.
FURTHER: Final = {CLUSTER_SCOPED, TWO_APP_CLUSTERS, DEFECTS}


def every(*names: str) -> pytest.MarkDecorator:
    cases = [
        pytest.param(name, marks=pytest.mark.soak) if name in FURTHER else name for name in names
    ]
    return pytest.mark.parametrize("scene", cases, indirect=True, scope="module")


def taken_over(*names: str) -> Callable[[Test], Test]:
    def both(test: Test) -> Test:
        return every(*names)(pytest.mark.usefixtures("taking_over")(test))

    return both


@every(*LINES)
async def test_an_installation_is_as_it_was_recorded(scene):
    installation = scene.installation
    for ref, recorded in installation.recorded.items():
        live = await installation.live(ref).cluster.get(ref)
        assert live is not None, ref
        assert covers(live, drop(drop(recorded, "metadata"), "data")), ref
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
async def test_an_installation_is_adopted_as_it_is_and_a_plan_writes_nothing(scene):
    marks, versions = scene.marks(), await scene.installation.versions()
    plan = scene.plan()
    # Whoever plans without a right on Secrets leaves all of it to an apply.
    blind = json.loads(scene.klutchctl("plan", str(scene.folder), "-o", "json"))
    said = ["apply compares its credentials" in one["reason"] for one in blind["changes"]]
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

    file = str(scene.folder / "snapshot")
    scene.klutchctl("snapshot", str(scene.folder), "--out", file)
    saved = scene.klutchctl("plan", str(scene.folder), "--snapshot", file, "-o", "json")
    assert json.loads(saved)["id"] == blind["id"]
    assert json.loads(saved)["changes"] == blind["changes"]
    assert await scene.installation.versions() == versions
    assert scene.writes_since(marks) == []


@taken_over(*LINES)
async def test_a_take_over_changes_no_object_and_needs_no_second_run(scene):
    assert {one["status"] for one in scene.applied["outcomes"]} == {"done"}
    assert await scene.installation.states() == scene.before
    assert lines(scene.plan()) == []
    marks = scene.marks()
    assert scene.apply_as_planned()["outcomes"] == []
    assert scene.writes_since(marks) == []
