"""The table of rights: nothing that a plan reads is missing in it, and nothing is in it idly."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from klutchctl import main
from reconciler.api import API_SERVICE_EXPORT, APP_CLUSTER_BINDING
from reconciler.core.live import Address, Questions, control_plane_ref_name, instances
from reconciler.core.manifest import get_maps, get_texts
from reconciler.core.refs import CRD, NAMESPACE, SERVICE_ACCOUNT, Kind, Ref
from reconciler.doctor import rights
from reconciler.doctor.diagnosis import Question, questions
from reconciler.doctor.rights import Right, Scope, Side, Task
from reconciler.fleet.values import Access, DeletionPolicy, Guards, Konnector, Mode
from reconciler.health.survey import survey
from reconciler.kube.cluster import Connectivity, Listing
from reconciler.kube.registry import Reached
from reconciler.observe import answer, observe
from tests.support import fleets

EXAMPLE = Path(__file__).parents[3] / "fleet-example"
READING = {"get", "list"}
PLANE = control_plane_ref_name("eu")
SERVICE = instances("shop.example", "databases")


class Recorder:
    """An API server in which nothing is but what a plan needs to go on; notes what is read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: set[Question] = set()
        self.connectivity = Connectivity()

    def _note(self, verb: str, kind: Kind, namespace: str = "", name: str = "") -> None:
        self.asked.add(Question(namespace, kind.group, kind.plural, verb, name))

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Any:
        self._note("get", ref.kind, ref.namespace, ref.name)
        if ref.kind == NAMESPACE:
            return {"metadata": {"name": ref.name, "uid": f"uid-{self.name}"}}
        if ref.kind == CRD:
            version = {"name": "v1", "served": True, "storage": True}
            return {"metadata": {"name": ref.name}, "spec": {"versions": [version]}}
        return None

    async def list(self, kind: Kind, *, namespace: str = "", fields: str = "", **more: Any) -> Any:
        self._note("list", kind, namespace, fields.removeprefix("metadata.name="))
        system = {"metadata": {"name": "kube-system", "uid": f"uid-{self.name}"}}
        return Listing([system] if kind == NAMESPACE else [], "1")

    async def count(self, kind: Kind) -> int:
        self._note("list", kind)
        return 0


class Recorders:
    """The clusters of a fleet; a Secret with a kubeconfig is read as `Registry` does."""

    def __init__(self) -> None:
        self.plane, self.apps = Recorder(PLANE), Recorder("shop")

    def _reached(self, recorder: Recorder) -> Any:
        return Reached(recorder, Address("https://x", ""))  # type: ignore[arg-type]

    async def control_plane(self, name: str) -> Any:
        return self._reached(self.plane)

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Any:
        if access.secret is not None:
            ref = Ref(PLANE, Kind("", "v1", "Secret", "secrets"), "klutch-bind", access.secret[0])
            await self.plane.get(ref)
        return self._reached(self.apps)

    async def close(self, name: str) -> None:
        return None


def a_fleet(mode=Mode.DIRECT, *, deploy=False, access=None, policy=DeletionPolicy.RELEASE):
    cluster = fleets.app_cluster(konnector=Konnector(deploy=deploy))
    cluster = replace(cluster, access=access or cluster.access)
    return fleets.fleet(
        control_planes=[fleets.control_plane(mode=mode)],
        clusters=[cluster],
        units=[fleets.unit(deletion_policy=policy)],
    )


FLEETS = {
    "Direct": a_fleet(),
    "Direct with a konnector": a_fleet(deploy=True),
    "AppClusterBinding": a_fleet(Mode.APP_CLUSTER_BINDING),
    "a kubeconfig in a Secret": a_fleet(access=Access(secret=("shop-admin", "value"))),
}


@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS.keys())
async def test_a_plan_reads_what_the_table_says_and_nothing_else(fleet):
    clusters = Recorders()
    live = await observe(fleet, clusters)
    export = Ref(PLANE, API_SERVICE_EXPORT, "cluster-x", "databases.shop.example")
    account = Ref(PLANE, SERVICE_ACCOUNT, "cluster-x", "klutch-binder")
    is_direct = Mode.DIRECT in {one.mode for one in fleet.control_planes.values()}
    bodies = frozenset({export, account} if is_direct else {export})
    more = Questions(in_use=frozenset({("shop", SERVICE)}), bodies=bodies)
    await answer(fleet, live, clusters, more)
    await survey(fleet, clusters, now=lambda: datetime.now(UTC))  # as `klutchctl status` does
    for recorder, side in ((clusters.plane, Side.CONTROL_PLANE), (clusters.apps, Side.APP_CLUSTER)):
        table = rights.needed(Task.PLAN, side, rights.scope_of_fleet(fleet))
        asked = {as_granted(one, table) for one in recorder.asked}
        # Who may plan gets no right on Secrets: an access by one is for the operator to give.
        asked -= {one for one in asked if one.name == "shop-admin"}
        idle = {*questions(table)} - asked
        assert asked - {*questions(table)} == set()
        # What a konnector once needed is looked at in a cluster that left.
        assert {one for one in idle if "konnector" not in one.name} == set()


def as_granted(one: Question, table: Sequence[Right]) -> Question:
    """A right to objects everywhere, or to all of a kind, is also one to each of them."""
    for row in table:
        if (row.group, row.resource, row.namespace) == (one.group, one.resource, ""):
            if not row.only:
                return replace(one, namespace="", name="")
            if one.name in row.only:
                return replace(one, namespace="")
    return one


def test_the_konnectors_objects_of_a_cluster_that_left_are_in_the_table():
    table = {*questions(rights.needed(Task.PLAN, Side.APP_CLUSTER, Scope(fleet="acme")))}
    for group, resource, namespace, name in (
        ("", "serviceaccounts", "klutch-bind", "konnector"),
        ("", "serviceaccounts", "klutch-bind", "klutch-konnector"),
        ("rbac.authorization.k8s.io", "clusterroles", "", "klutch-bind-konnector"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "", "klutch-konnector"),
    ):
        assert Question(namespace, group, resource, "get", name) in table


ALL = [
    pytest.param(task, side, fleet, id=f"{task}, {side}, {name}")
    for name, fleet in FLEETS.items()
    for task in Task
    for side in Side
]


@pytest.mark.parametrize(("task", "side", "fleet"), ALL)
def test_no_secret_is_read_that_is_not_named_or_in_klutch_bind(task, side, fleet):
    for row in rights.needed(task, side, rights.scope_of_fleet(fleet)):
        assert "*" not in (row.group, row.resource, *row.verbs)
        if (row.group, row.resource) == ("", "secrets") and READING & {*row.verbs}:
            in_app = side is Side.APP_CLUSTER and row.namespace == "klutch-bind"
            assert row.only or in_app, row


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS.keys())
def test_no_printed_role_of_a_plan_has_a_rule_on_secrets(side, fleet):
    """trust.md T2."""
    made = rights.manifests(Task.PLAN, side, rights.scope_of_fleet(fleet))
    resources = [get_texts(rule, "resources") for one in made for rule in get_maps(one, "rules")]
    assert resources
    assert not {"secrets", "*"} & {name for names in resources for name in names}


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS.keys())
def test_a_plan_only_reads_and_an_apply_may_all_of_that(side, fleet):
    plan, apply = (rights.needed(task, side, rights.scope_of_fleet(fleet)) for task in Task)
    assert {verb for row in plan for verb in row.verbs} <= READING
    assert {*questions(plan)} <= {*questions(apply)}
    assert {verb for row in apply for verb in row.verbs} - READING


def granted(task, side, fleet) -> set[Question]:
    return {*questions(rights.needed(task, side, rights.scope_of_fleet(fleet)))}


def test_only_who_deletes_may_delete_services_and_spaces():
    keeps, deletes = a_fleet(), a_fleet(policy=DeletionPolicy.DELETE)
    leaves = replace(a_fleet(), guards=Guards(on_cluster_leave=DeletionPolicy.DELETE))
    instances_of = Question("", "shop.example", "databases", "delete")
    space = Question("", "", "namespaces", "delete")
    definition = Question("", CRD.group, CRD.plural, "delete", "databases.shop.example")
    for fleet, allowed in ((keeps, False), (deletes, True), (leaves, True)):
        app = granted(Task.APPLY, Side.APP_CLUSTER, fleet)
        assert ({instances_of, definition} <= app) is allowed
        assert (space in granted(Task.APPLY, Side.CONTROL_PLANE, fleet)) is allowed


def test_only_who_deploys_may_give_rights():
    for fleet, allowed in ((a_fleet(), False), (a_fleet(deploy=True), True)):
        app = granted(Task.APPLY, Side.APP_CLUSTER, fleet)
        assert any(one.verb in ("escalate", "bind") for one in app) is allowed


def test_app_cluster_bindings_are_written_in_that_mode_only():
    for fleet, allowed in ((a_fleet(), False), (a_fleet(Mode.APP_CLUSTER_BINDING), True)):
        plane = granted(Task.APPLY, Side.CONTROL_PLANE, fleet)
        writes = {one for one in plane if one.resource == APP_CLUSTER_BINDING.plural}
        assert any(one.verb == "create" for one in writes) is allowed


def rights_in(documents) -> set[Question]:
    found: list[Right] = []
    for one in documents:
        for rule in one.get("rules", ()):
            place = one["metadata"].get("namespace", "")
            found += (
                Right(
                    group,
                    resource,
                    tuple(rule["verbs"]),
                    place,
                    tuple(rule.get("resourceNames", ())),
                )
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            )
    return {*questions(found)}


@pytest.mark.parametrize(("task", "side", "fleet"), ALL)
def test_the_roles_are_the_table(task, side, fleet):
    made: Any = rights.manifests(task, side, rights.scope_of_fleet(fleet))
    assert rights_in(made) == granted(task, side, fleet) | {*questions(rights.optional(side))}
    given = {
        (one["metadata"]["name"], one["metadata"].get("namespace", ""))
        for one in made
        if str(one["kind"]).endswith("RoleBinding")
    }
    roles = {
        (one["metadata"]["name"], one["metadata"].get("namespace", ""))
        for one in made
        if one["kind"] in ("Role", "ClusterRole")
    }
    assert given == roles
    namespaces = {one["metadata"]["name"] for one in made if one["kind"] == "Namespace"}
    assert {namespace for _, namespace in roles} <= {*namespaces, ""}


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("side", Side)
def test_the_example_has_just_these_roles(task, side, capsys):
    asked = ["doctor", str(EXAMPLE), "--for", task, "--print", f"{side}-rights"]
    assert main.run(asked) == 0
    text = (EXAMPLE / "rights" / f"{side}-{task}.yaml").read_text()
    assert capsys.readouterr().out == text, "make it anew with `klutchctl doctor --print`"
    assert len(list(yaml.safe_load_all(text))) >= 4
