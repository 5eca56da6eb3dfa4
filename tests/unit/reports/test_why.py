"""What `klutchctl why` knows: the lines of the files, those of the plan, and the guards."""

import pytest

from klutchctl.render.why import facts
from reconciler.core.errors import ConfigError, Problem
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load_valid_part
from reconciler.planning import planner
from reconciler.planning.changes import Action
from reconciler.reports.partial_plans import parse_target
from reconciler.reports.why import explained, provenance, watching
from tests.support.fleet_texts import TEMPLATE, document, tree
from tests.support.scenes import (
    SEARCH,
    applied,
    binding,
    cluster,
    fleet_head,
    foreign_binding,
    plane,
    secret_leading_to,
)
from tests.support.worlds import POSTGRES


def loaded(files):
    problems: list[Problem] = []
    found = load_valid_part(files, problems)
    assert found is not None
    assert not problems
    return found


def of_text(*documents, prune="allowEmpty: true"):
    return loaded(Snapshot({"fleet.yaml": (fleet_head(prune) + "".join(documents)).encode()}, ""))


def said(files, target):
    """(clause, holds) of each part of the selector, and what they come to."""
    found = provenance(loaded(files), parse_target(target))
    assert found is not None
    return [(one.text, one.holds) for one in found.clauses], found.selected


def test_a_claim_is_shown_with_the_namespaces_that_it_names():
    template = TEMPLATE.replace("names: [a, b]", "names: ['*'], namespaces: [shop, kube-system]")
    found = provenance(loaded(tree({"templates/pg.yaml": template})), parse_target("shop/db"))
    assert found is not None
    (claim,) = [which for what, which, _ in facts(found) if what == "claim"]
    assert claim == (
        "secrets of the Provider, accepted: * in namespaces [kube-system (RESERVED), shop]"
    )


SELECTORS = {
    "labels": ("clusters: {matchLabels: {env: prod}}", [("env=prod", True)], True),
    "other labels": (
        "clusters: {matchLabels: {env: prod, region: eu}, optional: true}",
        [("env=prod", True), ("region=eu", False)],
        False,
    ),
    "an expression": (
        "clusters: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}],"
        " optional: true}",
        [("env NotIn (prod)", False)],
        False,
    ),
    "a name": ("clusters: {names: [shop]}", [("names shop", True)], True),
    "excluded": (
        "clusters: {matchLabels: {env: prod}, exclude: [shop], optional: true}",
        [("env=prod", True), ("exclude shop", True)],
        False,
    ),
    "nothing about it": ("clusters: {optional: true}", [], False),
}


@pytest.mark.parametrize(("text", "clauses", "selected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_each_part_of_a_selector(text, clauses, selected):
    binding = document("Binding", "db", f"{{template: pg, {text}}}")
    assert said(tree({"bindings/db.yaml": binding}), "shop/db") == (clauses, selected)


@pytest.mark.parametrize("name", ["db", "pgs.gi.o"])
def test_every_fact_has_its_place(name):
    policy = document(
        "Policy",
        "team",
        "{paths: ['bindings/*'], allow: [{templates: [pg], clusters: {names: [shop]}}]}",
    )
    other = policy.replace("bindings/*", "other/*").replace("team", "other")
    found = provenance(
        loaded(tree({"policies/p.yaml": policy, "policies/q.yaml": other})),
        parse_target(f"shop/{name}"),
    )
    assert found is not None
    assert found.template is not None
    assert str(found.binding.origin).startswith("bindings/db.yaml:3")
    assert str(found.cluster.origin).startswith("clusters/shop.yaml:3")
    assert str(found.template.origin).startswith("templates/pg.yaml:3")
    assert str(found.clauses[0].origin) == "bindings/db.yaml:4:52"
    assert [str(one.origin) for one in found.claims] == ["templates/pg.yaml:4:60"]
    assert [(one.name, one.allows, str(one.origin)) for one in found.verdicts] == [
        ("team", True, "policies/p.yaml:4:39")
    ]
    assert [one.name for one in found.units] == ["pgs.gi.o"]


def why(here, files, target, *, is_read=True):
    if not is_read:
        here.unseen.add("shop")
    fleet = watching(files.fleet)
    live = here.live(fleet)
    return explained(files, live, planner.plan(fleet, live), parse_target(target))


HELD = {
    # prune, why the released unit is held
    "nothing": ("allowEmpty: true", []),
    "pruning is off": ("mode: off, allowEmpty: true", ["off"]),
    "pruning is for show": ("mode: report, allowEmpty: true", ["report"]),
    "an empty state": ("allowEmpty: false", ["allow-empty"]),
}


@pytest.mark.parametrize(("prune", "guards"), HELD.values(), ids=HELD.keys())
def test_why_what_left_is_pruned_or_not(prune, guards):
    found = why(applied(), of_text(plane(), cluster(), prune=prune), f"shop/{POSTGRES}")
    assert found.source is None
    assert [one.action for one in found.plan.changes] == [Action.RELEASE]
    assert [one.guard for one in found.plan.held] == guards
    assert found.prunes


def test_a_binding_that_no_longer_selects_the_cluster_tells_what_becomes_of_its_units():
    nobody = binding().replace("names: [shop]", "names: [shop], exclude: [shop], optional: true")
    found = why(applied(), of_text(plane(), cluster(), nobody), "shop/postgresqlinstances")
    assert found.source is not None
    assert not found.source.selected
    assert [one.action for one in found.plan.changes] == [Action.RELEASE]


def test_only_its_own_lines_are_reported():
    here = applied(binding(), binding("searches"))
    files = of_text(plane(), cluster(), binding(), binding("searches"))
    found = why(here, files, "shop/postgresqlinstances")
    assert {str(one.unit) for one in found.plan.changes} == {f"shop/{POSTGRES}"}
    assert not found.prunes


def test_what_holds_the_whole_cluster_is_reported():
    here = applied()
    here.uids["shop"] = "another"
    found = why(here, of_text(plane(), cluster(), binding()), "shop/postgresqlinstances")
    assert {one.action for one in found.plan.changes} == {Action.BLOCKED}
    assert [one.guard for one in found.plan.held] == ["identity"]


def test_what_was_not_read_is_reported():
    files = of_text(plane(), cluster(), binding())
    found = why(applied(), files, "shop/postgresqlinstances", is_read=False)
    assert [one.name for one in found.plan.unseen] == ["shop"]
    assert [one.action for one in found.plan.changes] == [Action.UNKNOWN]


def test_a_live_binding_of_nobody_is_unmanaged():
    here = applied()
    here.clusters["shop"] += [foreign_binding(SEARCH), secret_leading_to("s", "them", "theirs")]
    found = why(here, of_text(plane(), cluster(), binding()), f"shop/{SEARCH}")
    assert [str(one) for one in found.unmanaged] == [f"shop/{SEARCH}"]
    assert found.plan.changes == ()


UNKNOWN = {
    "shop/orders": "'orders' is neither in the files nor live in shop. Known: postgresqlinstances,",
    "shop/postgresqlinstance": "Did you mean postgresqlinstances?",
    "shopp/orders": "shopp/orders: there is no such cluster. Did you mean shop?",
    f"shop/{SEARCH.replace('searches', 'searchs')}": f"Did you mean {SEARCH}?",
}


@pytest.mark.parametrize(("target", "hint"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_a_name_that_is_nowhere_has_the_nearest_known_one(target, hint):
    here = applied()
    here.clusters["shop"] += [foreign_binding(SEARCH), secret_leading_to("s", "them", "theirs")]
    with pytest.raises(ConfigError) as caught:
        why(here, of_text(plane(), cluster(), binding()), target)
    assert hint in str(caught.value)


@pytest.mark.parametrize("text", ["", "shop", "shop/", "/db", "a/b/c"])
def test_a_target_of_another_form_is_refused(text):
    with pytest.raises(ConfigError, match="is not CLUSTER/BINDING"):
        parse_target(text)
