"""Clusters in which the same would happen are shown once, and no other thing hides behind them."""

from dataclasses import replace

import pytest

from klutchctl.render import plan_formats, plan_rows, terminal
from reconciler import api
from reconciler.core import manifest
from reconciler.core.decision import FieldChange
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET
from reconciler.planning.changes import Action
from reconciler.reports import alike
from tests.support import fleet_texts
from tests.support.scenes import cluster, fleet, plane
from tests.support.worlds import POSTGRES, World, offering

CLAIM: Manifest = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "selector": {"names": ["*"], "namespaces": ["*"], "owner": "Provider"},
}
CLAIMS = ', claims: [{group: "", resource: secrets, version: v1, owner: Provider%s}]'
EDGES = [f"edge-{number}" for number in range(6)]


def bound(claims=CLAIMS % ""):
    return "---\n" + fleet_texts.binding(
        "orders", group="anynines.com", plural="postgresqlinstances", clusters="%s", more=claims
    ).replace("[%s]", f"[{', '.join(EDGES)}]").replace("%s", ", ".join(EDGES))


def fleet_with(claims=CLAIMS % "", more=None):
    extra = more or {}
    documents = [cluster(name, more=extra.get(name, "")) for name in EDGES]
    return fleet(plane(), *documents, bound(claims))


@pytest.fixture
def here():
    return World(
        control_plane=offering(POSTGRES, claims=[CLAIM]), clusters={name: [] for name in EDGES}
    )


def found(plan):
    return [list(some.clusters) for some in alike.groups(plan)]


def edited(plan, edit):
    """Return the plan with each change as `edit` makes it."""
    return replace(plan, changes=tuple(edit(change) for change in plan.changes))


def test_the_first_plan_of_many_clusters_is_one_group(here):
    assert found(here.plan(fleet_with())) == [EDGES]


def test_a_cluster_with_a_konnector_of_its_own_is_apart(here):
    more = dict.fromkeys(EDGES, ", konnector: {deploy: true, image: k}")
    more["edge-3"] = ", konnector: {deploy: true, image: other}"
    rest = [name for name in EDGES if name != "edge-3"]
    assert found(here.plan(fleet_with(more=more))) == [rest, ["edge-3"]]


def test_changed_claims_of_many_clusters_are_one_group(here):
    here.apply(here.plan(fleet_with()))
    assert found(here.plan(fleet_with(CLAIMS % ", names: [a]"))) == [EDGES]


def one(change, name):
    return change.cluster == name and change.ref.kind == api.API_SERVICE_BINDING


def claims_on(resource, change):
    after = manifest.put(
        change.after, [{**CLAIM, "resource": resource}], "spec", "permissionClaims"
    )
    return replace(change, after=after)


APART = {
    "another reason": lambda change: replace(change, reason="because"),
    "another action": lambda change: replace(change, action=Action.UPDATE),
    "another subject": lambda change: replace(change, subject="edge-3"),
    "a claim on something else": lambda change: claims_on("configmaps", change),
    "a guard that holds it": lambda change: replace(change, held=("in-use",)),
    "instances that go along": lambda change: replace(change, instances=3),
    "a field that differs": lambda change: replace(
        change, fields=(FieldChange("/spec/x", None, "edge-3"),)
    ),
}


@pytest.mark.parametrize("edit", APART.values(), ids=APART.keys())
def test_what_is_shown_apart(here, edit):
    plan = here.plan(fleet_with())
    changed = edited(plan, lambda change: edit(change) if one(change, "edge-3") else change)
    assert ["edge-3"] in found(changed)


def test_a_claim_on_what_the_cluster_is_called_is_shown_apart(here):
    plan = here.plan(fleet_with())
    changed = edited(
        plan,
        lambda change: claims_on(change.cluster, change) if one(change, change.cluster) else change,
    )
    assert found(changed) == [[name] for name in EDGES]


OWN = {
    "its label": (api.API_SERVICE_BINDING, "/metadata/labels/klutchctl.dev~1cluster", None),
    "its way": (
        api.API_SERVICE_BINDING,
        "/metadata/annotations/klutchctl.dev~1access",
        "context/%s",
    ),
    "a digest of its Secret": (SECRET, "/data/token", "0123456789abcde%d"),
}


@pytest.mark.parametrize(("kind", "path", "value"), OWN.values(), ids=OWN.keys())
def test_what_each_cluster_has_of_its_own_sets_none_apart(here, kind, path, value):
    def edit(change):
        if change.ref.kind != kind:
            return change
        number = EDGES.index(change.cluster)
        text = change.cluster if value is None else value.replace("%d", str(number))
        before = text.replace("%s", change.cluster)
        return replace(change, fields=(FieldChange(path, before, None),))

    assert found(edited(here.plan(fleet_with()), edit)) == [EDGES]


RANGES = {
    "all": ("abcdef", "a ... f"),
    "without one inside": ("abcdf", "a ... d, f"),
    "a few": ("abf", "a, b, f"),
    "two ranges": ("abcdghij", "a ... d, g ... j"),
    "none": ("", ""),
}


@pytest.mark.parametrize(("names", "said"), RANGES.values(), ids=RANGES.keys())
def test_ranges_name_no_cluster_that_is_not_meant(names, said):
    assert terminal.ranges(names, terminal.in_order({*"abcdef", *names})) == said


def test_many_ranges_are_counted():
    places = terminal.in_order("abcdefghijkl")
    assert terminal.ranges("acegik", places, most=2) == "a, c and 4 more"


def test_text_and_comment_show_one_example_and_count_all(here):
    plan = here.plan(fleet_with())
    text, comment = plan_formats.text(plan), plan_formats.comment(plan)
    assert "\nThe same in 6 clusters: edge-0 ... edge-5  (control plane eu)\n    10 create" in text
    assert text.count("APIServiceBinding postgresqlinstances") == 1
    assert f"Plan: {len(plan.changes)} create" in text
    assert "10 create in each&#59; this is edge-0</summary>" in comment
    assert comment.count("APIServiceBinding postgresqlinstances") == 1


def test_a_comment_that_is_cut_has_a_table_of_the_bindings(here):
    plan = here.plan(fleet_with())
    fields = tuple(FieldChange(f"/spec/{n}", None, "x" * 50) for n in range(200))

    def long(change):
        return replace(change, action=Action.UPDATE, reason=change.cluster, fields=fields)

    cut = plan_formats.comment(edited(plan, long))
    assert "|  | update | clusters |\n| --- | --- | --- |\n" in cut
    assert "| <code>orders</code> | 12 | 6 |" in cut
    assert "| <code>" not in plan_formats.comment(plan)


def test_reading_notes_and_guards_that_say_the_same_share_a_line(here):
    here.unseen = set(EDGES[:4])
    plan = here.plan(fleet_with())
    (said,) = [line for line in plan_formats.text(plan).splitlines() if "  ! edge" in line]
    assert said.startswith("  ! edge-0 ... edge-3  ")
    noted = replace(plan, warnings=tuple(f"{name}/x: y is offered" for name in EDGES))
    assert plan_rows.notes(noted) == ("edge-0 ... edge-5/x: y is offered",)
    others = replace(plan, warnings=("edge-0", "a/b", "edge-1/x", "edge-3/x"))
    assert plan_rows.notes(others) == ("edge-0", "a/b", "edge-1, edge-3/x")
