"""A cluster that leaves the files, and what the rules make of it (mapping.md 9)."""

import pytest

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import keys, names
from reconciler.core.manifest import drop, get_text, put
from reconciler.core.refs import NAMESPACE
from reconciler.planning.changes import Action
from tests.support.worlds import POSTGRES, World, fleet_of, offering

FLEET = """
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Fleet
metadata: {name: acme}
spec: {prune: {maxDeletePercent: 100, allowEmpty: true, onClusterLeave: %s}}
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: ControlPlane
metadata: {name: eu}
spec: {access: {kubeconfigContext: eu}, mode: %s}
"""
CLUSTER = """
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {name: %s}
spec: {access: {kubeconfigContext: shop}, controlPlane: eu}
"""
BINDING = """
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Binding
metadata: {name: orders-db}
spec:
  resources: [{group: anynines.com, resource: postgresqlinstances}]
  clusters: {names: [shop]}
"""
MODES = ["Direct", "AppClusterBinding"]


def applied(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    here.apply(here.plan(fleet_of(fleet=FLEET % ("Release", mode) + CLUSTER % "shop" + BINDING)))
    return here


def without_cluster(rule, mode):
    return fleet_of(fleet=FLEET % (rule, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("rule", "action"),
    [("Release", Action.RELEASE), ("Delete", Action.DELETE), ("Block", Action.BLOCKED)],
)
def test_the_rule_for_clusters_decides_for_units_and_cluster(mode, rule, action):
    plan = applied(mode).plan(without_cluster(rule, mode))
    found = [(change.action, change.subject) for change in plan.changes]
    names = {"orders-db", POSTGRES} & {subject for _, subject in found}
    assert found == [(action, names.pop()), (action, "cluster")]
    assert plan.sections == {"shop": "eu"}


def test_a_release_never_deletes_the_space_and_takes_the_access_away():
    plan = applied("Direct").plan(without_cluster("Release", "Direct"))
    cluster = plan.changes[-1]
    deleted = {(s.ref.kind.kind, s.ref.name) for s in cluster.steps if s.verb == "delete"}
    assert ("Secret", "klutch-binder") in deleted
    assert ("Secret", "kubeconfig") in deleted
    assert all(kind != "Namespace" for kind, _ in deleted)
    assert cluster.steps[-1].verb == "retire", "the space is marked as released"


def test_a_released_cluster_is_not_released_again():
    here = applied("Direct")
    space = next(
        one
        for one in here.control_plane
        if one["kind"] == "Namespace" and get_text(one, "metadata", "labels", keys.CLUSTER)
    )
    here.remove("control-plane/eu", NAMESPACE, get_text(space, "metadata", "name"))
    annotated = put(space, "2026-11-21T00:00:00Z", "metadata", "annotations", keys.RELEASED)
    here.control_plane.append(annotated)
    assert here.plan(without_cluster("Release", "Direct")).changes == ()


def test_a_cluster_that_left_and_cannot_be_read_is_unseen_and_nothing_is_planned():
    here = applied("Direct")
    here.unseen.add("shop")
    plan = here.plan(without_cluster("Release", "Direct"))
    assert plan.changes == ()
    assert [one.name for one in plan.unseen] == ["shop"]


def test_a_renamed_cluster_keeps_its_space():
    here = applied("Direct")
    here.clusters["store"] = here.clusters.pop("shop")
    here.uids["store"] = "uid-shop"
    renamed = BINDING.replace("[shop]", "[store]")
    fleet = fleet_of(fleet=FLEET % ("Release", "Direct") + CLUSTER % "store" + renamed)
    plan = here.plan(fleet)
    assert {change.action for change in plan.changes} <= {Action.UPDATE, Action.NOOP}
    changed = [change.reason for change in plan.changes if change.action is Action.UPDATE]
    assert all(reason == "labels only; its cluster was called shop" for reason in changed), changed
    assert changed


@pytest.mark.parametrize("mode", MODES)
def test_the_first_plan_of_a_mode_creates_and_the_second_finds_it(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    fleet = fleet_of(fleet=FLEET % ("Release", mode) + CLUSTER % "shop" + BINDING)
    first = here.plan(fleet)
    assert {change.action for change in first.changes} == {Action.CREATE}
    here.apply(first)
    assert {change.action for change in here.plan(fleet).changes} <= {Action.NOOP}


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_that_is_not_the_one_that_left_is_not_touched(mode):
    here = applied(mode)
    here.uids["shop"] = "another"
    plan = here.plan(without_cluster("Release", mode))
    assert [change.action for change in plan.changes] == [Action.BLOCKED]


def test_a_request_of_ours_under_a_binding_that_is_not_ours_takes_nothing_away():
    here = applied("Direct")
    binding = here.remove("shop", API_SERVICE_BINDING, POSTGRES)
    here.clusters["shop"].append(drop(binding, "metadata", "labels"))
    head = FLEET % ("Release", "Direct") + CLUSTER % "shop"
    plan = here.plan(fleet_of(fleet=head))
    assert [one for one in plan.changes if one.action is not Action.NOOP] == []
    assert any("unmanaged" in warning for warning in plan.warnings)


def test_an_export_that_only_we_can_have_asked_for_is_released_without_its_binding():
    here = applied("Direct")
    here.remove("shop", API_SERVICE_BINDING, POSTGRES)
    here.remove("control-plane/eu", API_SERVICE_EXPORT_REQUEST, POSTGRES)
    head = FLEET % ("Release", "Direct") + CLUSTER % "shop"
    (line,) = [one for one in here.plan(fleet_of(fleet=head)).changes if one.acts]
    assert (line.action, line.unit.name) == (Action.RELEASE, POSTGRES)


def test_a_release_that_was_cut_short_goes_on_and_ends():
    here = applied("Direct")
    for kind, cluster in (
        (API_SERVICE_BINDING, "shop"),
        (API_SERVICE_EXPORT_REQUEST, "control-plane/eu"),
        (API_SERVICE_EXPORT, "control-plane/eu"),
    ):
        here.remove(cluster, kind, POSTGRES)
    space = names.direct_space("acme", "shop")
    home = here.remove("control-plane/eu", NAMESPACE, space)
    noted = put(home, f"{POSTGRES}=Delete", "metadata", "annotations", keys.LEAVING)
    here.control_plane.append(noted)
    here.in_use["shop"] = {POSTGRES: 0}
    head = FLEET % ("Release", "Direct") + CLUSTER % "shop"
    (line,) = [one for one in here.plan(fleet_of(fleet=head)).changes if one.acts]
    assert (line.action, line.unit.name) == (Action.DELETE, POSTGRES)
    assert line.steps[-1].verb == "forget"
    (again, *rest) = [one for one in here.plan(fleet_of(fleet=head + BINDING)).changes if one.acts]
    assert again.action is Action.UPDATE, "what the files want again is not deleted"
    assert [step.verb for step in again.steps] == ["release-copies", "free-instances", "forget"]
    assert {one.action for one in rest} == {Action.CREATE}
    report = head.replace("{prune: {", "{prune: {mode: report, ")
    assert [one for one in here.plan(fleet_of(fleet=report + BINDING)).changes if one.held] == []
