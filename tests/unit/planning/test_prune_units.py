"""A cluster that leaves the files, and what the rules make of it (mapping.md 9)."""

import pytest

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.refs import NAMESPACE
from reconciler.planning.changes import Action
from tests.support.scenes import (
    GONE,
    MODES,
    PLANE,
    SEARCH,
    acting,
    actions,
    applied,
    binding,
    change,
    cluster,
    fleet,
    plane,
    shop,
    space_of,
)
from tests.support.worlds import POSTGRES, World, offering

EMPTY = fleet(plane(), cluster())


def left(mode="Direct", rule="Release"):
    """Return the fleet without its cluster."""
    return fleet(plane(mode=mode), prune=f"allowEmpty: true, onClusterLeave: {rule}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("rule", "action"),
    [("Release", Action.RELEASE), ("Delete", Action.DELETE), ("Block", Action.BLOCKED)],
)
def test_the_rule_for_clusters_decides_for_units_and_cluster(mode, rule, action):
    plan = applied(mode=mode).plan(left(mode, rule))
    subject = "postgresqlinstances" if mode == "Direct" else POSTGRES
    found = [(change.action, change.subject) for change in plan.changes]
    assert found == [(action, subject), (action, "cluster")]
    assert plan.sections == {"shop": "eu"}


def test_a_release_never_deletes_the_space_and_takes_the_access_away():
    whole = applied().plan(left()).changes[-1]
    deleted = {(s.ref.kind.kind, s.ref.name) for s in whole.steps if s.verb == "delete"}
    assert deleted >= {("Secret", "klutch-binder"), ("Secret", "kubeconfig")}
    assert all(kind != "Namespace" for kind, _ in deleted)
    assert whole.steps[-1].verb == "retire", "the space is marked as released"


def test_a_released_cluster_is_not_released_again():
    here = applied()
    mark = ("metadata", "annotations", keys.RELEASED)
    change(here, PLANE, NAMESPACE, space_of(here), GONE, *mark)
    assert here.plan(left()).changes == ()


def test_a_cluster_that_left_and_cannot_be_read_is_unseen_and_nothing_is_planned():
    here = applied()
    here.unseen.add("shop")
    plan = here.plan(left())
    assert plan.changes == ()
    assert [one.name for one in plan.unseen] == ["shop"]


def test_a_renamed_cluster_keeps_its_space():
    here = applied()
    here.clusters["store"] = here.clusters.pop("shop")
    here.uids["store"] = "uid-shop"
    same_way = cluster("store").replace("Context: store", "Context: shop")
    plan = here.plan(fleet(plane(), same_way, binding(clusters="store")))
    assert actions(plan) == {Action.UPDATE, Action.NOOP}
    reasons = {change.reason for change in plan.changes if change.action is Action.UPDATE}
    assert reasons == {"labels only; its cluster was called shop"}


@pytest.mark.parametrize("mode", MODES)
def test_the_first_plan_of_a_mode_creates_and_the_second_finds_it(mode):
    here, wanted = World(control_plane=offering(POSTGRES), clusters={"shop": []}), shop(mode=mode)
    first = here.plan(wanted)
    assert actions(first) == {Action.CREATE}
    here.apply(first)
    assert actions(here.plan(wanted)) == {Action.NOOP}


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_that_is_not_the_one_that_left_is_not_touched(mode):
    here = applied(mode=mode)
    here.uids["shop"] = "another"
    assert [change.action for change in here.plan(left(mode)).changes] == [Action.BLOCKED]


def test_a_request_of_ours_under_a_binding_that_is_not_ours_takes_nothing_away():
    here = applied()
    change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, None, "metadata", "labels")
    plan = here.plan(EMPTY)
    assert actions(plan) == {Action.NOOP}
    assert any("unmanaged" in warning for warning in plan.warnings)


def test_an_export_that_only_we_can_have_asked_for_is_released_without_its_binding():
    here = applied()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    (line,) = acting(here.plan(EMPTY))
    assert (line.action, str(line.unit)) == (Action.RELEASE, f"shop/{POSTGRES}")


def test_a_release_that_was_cut_short_goes_on_and_ends():
    here = applied()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    space, note = names.direct_space("acme", "shop"), ("metadata", "annotations", keys.LEAVING)
    change(here, PLANE, NAMESPACE, space, f"{POSTGRES}=Delete", *note)
    here.in_use["shop"] = {POSTGRES: 0}
    (line,) = acting(here.plan(EMPTY))
    assert (line.action, str(line.unit)) == (Action.DELETE, f"shop/{POSTGRES}")
    assert line.steps[-1].verb == "forget"
    (again, *rest) = acting(here.plan(shop()))
    assert again.action is Action.UPDATE, "what the files want again is not deleted"
    assert [step.verb for step in again.steps] == ["release-copies", "free-instances", "forget"]
    assert {one.action for one in rest} == {Action.CREATE}
    report = here.plan(shop(prune="mode: report, allowEmpty: true"))
    assert [one for one in report.changes if one.held] == []


def test_what_left_our_own_app_cluster_binding_is_released():
    mode = "AppClusterBinding"
    plan = applied(binding(), binding("searches"), mode=mode).plan(shop(mode=mode))
    released = [str(one.unit) for one in acting(plan) if one.action is Action.RELEASE]
    assert released == [f"shop/{SEARCH}"]
