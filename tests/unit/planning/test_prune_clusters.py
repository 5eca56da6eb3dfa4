"""Clusters and units that left the files, and those that only seem so (mapping.md 2, 9)."""

from dataclasses import replace

import pytest

from reconciler import api
from reconciler.blueprints.objects import UNMARKED, build, export_request
from reconciler.core import keys, names
from reconciler.core.live import Live
from reconciler.core.manifest import name_of, namespace_of, put
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, GroupResource
from reconciler.fleet import load
from reconciler.planning import planner
from reconciler.planning.changes import Action
from tests.support import scenes
from tests.support.scenes import change, fleet
from tests.support.worlds import POSTGRES, World, offering


class Renamed(World):
    """A world in which the cluster that left is still reached by its annotation."""

    def live(self, fleet):
        live = super().live(fleet)
        old = self._seen("shop", "uid-shop", self.clusters["store"])
        return Live(live.control_planes, live.clusters, {"shop": old})


STORE = fleet(scenes.plane(), scenes.cluster("store"), scenes.binding(clusters="store"))
UID = "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"
OURS = {keys.FLEET: "acme", keys.CLUSTER: "shop"}


def renamed():
    here = scenes.applied()
    clusters = {"store": here.clusters["shop"]}
    return Renamed(here.control_plane, clusters, uids={"store": "uid-shop"})


def test_a_renamed_cluster_that_is_still_reached_by_its_old_way_is_not_released():
    plan = renamed().plan(STORE)
    assert scenes.actions(plan) == {Action.UPDATE, Action.NOOP}
    assert {one.cluster for one in plan.changes} == {"store"}


def test_a_renamed_cluster_whose_old_way_is_gone_leaves_nothing_unseen():
    here = renamed()
    here.unseen.add("shop")
    assert here.plan(STORE).unseen == ()


@pytest.mark.parametrize("more", ["", ", suspend: {reason: moving}"], ids=["unseen", "suspended"])
def test_a_cluster_that_may_have_a_new_name_is_not_released_while_that_is_unread(more):
    here = renamed()
    here.clusters["new"] = []
    wanted = fleet(scenes.plane(), scenes.cluster("new", more=more))
    live = here.live(wanted)
    seen = {name: one for name, one in live.clusters.items() if name != "new"}
    plan = planner.plan(wanted, Live(live.control_planes, seen, live.leaving))
    assert not scenes.actions(plan) & scenes.WRITING
    assert any("may be new under a former name" in one.reason for one in plan.changes)


@pytest.mark.parametrize(
    ("more", "want"),
    [("", "blocked"), (f", identity: {UID}", "release")],
    ids=["unsaid", "another"],
)
def test_a_cluster_that_may_be_one_of_another_shard_is_not_released(more, want):
    store = scenes.cluster("store", at="us", more=more).replace("Context: store", "Context: shop")
    plan = renamed().plan(load.shard(fleet(scenes.plane(), scenes.plane("us"), store), ["eu"]))
    assert {one.action.value for one in plan.changes if one.unit is None} == {want}


def test_a_snapshot_that_names_a_cluster_that_left_since_plans_its_release():
    plan = planner.plan(fleet(scenes.plane()), scenes.applied().live(scenes.shop()))
    assert scenes.actions(plan) == {Action.RELEASE}


@pytest.mark.parametrize("only", [frozenset(), frozenset({"other"})], ids=["none", "another"])
def test_a_plan_of_some_clusters_lets_no_other_go(only):
    here = scenes.applied()
    here.clusters["other"] = []
    fleet_ = fleet(scenes.plane(), scenes.cluster("other"))
    assert planner.plan(fleet_, here.live(fleet_), only=only).changes == ()


def test_with_pruning_off_a_cluster_that_left_is_not_looked_at():
    assert scenes.applied().plan(fleet(scenes.plane(), prune="mode: off")).changes == ()


def test_a_space_that_does_not_say_whose_it_is_is_not_released():
    here = scenes.applied()
    change(here, scenes.PLANE, NAMESPACE, scenes.space_of(here), None, "metadata", "annotations")
    assert scenes.actions(here.plan(fleet(scenes.plane()))) == {Action.BLOCKED}


def test_a_cluster_that_leaves_takes_no_secret_of_another_fleet_along():
    here = scenes.applied()
    other = {keys.FLEET: "other", keys.CLUSTER: "shop"}
    here.clusters["shop"].append(scenes.secret_leading_to("their-space", "them", "theirs", other))
    plan = here.plan(fleet(scenes.plane()))
    deleted = [step.ref.name for step in plan.changes[-1].steps if step.verb == "delete"]
    assert "theirs" not in deleted
    assert names.BINDER in deleted


@pytest.mark.parametrize("rule", ["Release", "Delete"])
def test_what_nobody_adopted_keeps_its_access_and_its_konnector(rule):
    here = scenes.applied()
    here.clusters["shop"].append(
        scenes.foreign_binding(scenes.SEARCH, scenes.consumer_secret(here))
    )
    konnector = build(DEPLOYMENT, names.KONNECTOR, namespace=names.KLUTCH_NAMESPACE, marks=UNMARKED)
    here.clusters["shop"].append(put(konnector, OURS, "metadata", "labels"))
    plan = here.plan(fleet(scenes.plane(), prune=f"allowEmpty: true, onClusterLeave: {rule}"))
    whole = plan.changes[-1]
    assert whole.action is (Action.RELEASE if rule == "Release" else Action.BLOCKED)
    assert not [step for step in whole.steps if step.verb == "delete"]


def test_a_cluster_that_left_two_spaces_is_let_go_by_a_person():
    here = scenes.applied()
    (space,) = [one for one in here.control_plane if name_of(one) == scenes.space_of(here)]
    here.control_plane.append(put(space, "second", "metadata", "name"))
    assert scenes.actions(here.plan(fleet(scenes.plane()))) == {Action.BLOCKED}


@pytest.mark.parametrize(
    ("requested", "whole"), [("postgresqlinstances", Action.DELETE), ("searches", Action.BLOCKED)]
)
def test_a_request_by_another_name_stays_only_if_its_service_does(requested, whole):
    """The backend names its requests after the AppClusterBinding."""
    here = scenes.applied(mode=scenes.ACB)
    (carrier,) = [one for one in here.control_plane if one["kind"] == scenes.ACB]
    space = names.app_cluster_binding_space(namespace_of(carrier), name_of(carrier))
    resource = GroupResource("anynines.com", requested)
    request = export_request(space, resource, parameters={}, marks=UNMARKED)
    here.control_plane.append(put(request, "appclusterbinding-shop-1", "metadata", "name"))
    wanted = fleet(scenes.plane(mode=scenes.ACB), prune="allowEmpty: true, onClusterLeave: Delete")
    assert here.plan(wanted).changes[-1].action is whole


EMPTY = fleet(scenes.plane(), scenes.cluster())


def left(mode="Direct", rule="Release"):
    """Return the fleet without its cluster."""
    return fleet(scenes.plane(mode=mode), prune=f"allowEmpty: true, onClusterLeave: {rule}")


@pytest.mark.parametrize("mode", scenes.MODES)
@pytest.mark.parametrize(
    ("rule", "action"),
    [("Release", Action.RELEASE), ("Delete", Action.DELETE), ("Block", Action.BLOCKED)],
)
def test_the_rule_for_clusters_decides_for_units_and_cluster(mode, rule, action):
    plan = scenes.applied(mode=mode).plan(left(mode, rule))
    subject = "postgresqlinstances" if mode == "Direct" else POSTGRES
    found = [(change.action, change.subject) for change in plan.changes]
    assert found == [(action, subject), (action, "cluster")]
    assert plan.sections == {"shop": "eu"}


def test_a_release_never_deletes_the_space_and_takes_the_access_away():
    whole = scenes.applied().plan(left()).changes[-1]
    deleted = {(s.ref.kind.kind, s.ref.name) for s in whole.steps if s.verb == "delete"}
    assert deleted >= {("Secret", "klutch-binder"), ("Secret", "kubeconfig")}
    assert all(kind != "Namespace" for kind, _ in deleted)
    assert whole.steps[-1].verb == "retire", "the space is marked as released"


@pytest.mark.parametrize("mode", scenes.MODES)
def test_a_cluster_that_is_not_the_one_that_left_is_not_touched(mode):
    here = scenes.applied(mode=mode)
    here.uids["shop"] = "another"
    assert [change.action for change in here.plan(left(mode)).changes] == [Action.BLOCKED]


def test_a_request_of_ours_under_a_binding_that_is_not_ours_takes_nothing_away():
    here = scenes.applied()
    change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, None, "metadata", "labels")
    plan = here.plan(EMPTY)
    assert scenes.actions(plan) == {Action.NOOP}
    assert any("unmanaged" in warning for warning in plan.warnings)


def test_an_export_that_only_we_can_have_asked_for_is_released_without_its_binding():
    here = scenes.applied()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    (line,) = scenes.acting(here.plan(EMPTY))
    assert (line.action, str(line.unit)) == (Action.RELEASE, f"shop/{POSTGRES}")


def test_a_release_that_was_cut_short_goes_on_and_ends():
    here = scenes.applied()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    space, note = names.direct_space("acme", "shop"), ("metadata", "annotations", keys.LEAVING)
    change(here, scenes.PLANE, NAMESPACE, space, f"{POSTGRES}=Delete", *note)
    here.in_use["shop"] = {POSTGRES: 0}
    (line,) = scenes.acting(here.plan(EMPTY))
    assert (line.action, str(line.unit)) == (Action.DELETE, f"shop/{POSTGRES}")
    assert line.steps[-1].verb == "forget"
    (again, *rest) = scenes.acting(here.plan(scenes.shop()))
    assert again.action is Action.UPDATE, "what the files want again is not deleted"
    assert [step.verb for step in again.steps] == ["release-copies", "free-instances", "forget"]
    assert {one.action for one in rest} == {Action.CREATE}
    report = here.plan(scenes.shop(prune="mode: report, allowEmpty: true"))
    assert [one for one in report.changes if one.held] == []


@pytest.mark.parametrize("mode", scenes.MODES)
@pytest.mark.parametrize("cluster_left", [False, True], ids=["units", "clusters"])
def test_what_left_where_nothing_could_be_read_counts_for_the_budget(mode, cluster_left):
    documents = [scenes.plane(mode=mode), *map(scenes.cluster, "abc")]
    here = World(control_plane=offering(POSTGRES), clusters={"a": [], "b": [], "c": []})
    here.apply(here.plan(fleet(*documents, scenes.binding(clusters="a, b, c"))))
    here.unseen = {"b", "c"}

    def planned(*files):
        wanted = fleet(*files)
        return here.plan(replace(wanted, guards=replace(wanted.guards, max_deletes=1)))

    left = planned(*documents[: 1 if cluster_left else None])
    assert {line.cluster for line in left.changes if line.leaves} == {"a"}
    assert all(line.held == ("max-deletes",) for line in left.changes if line.leaves)
    assert {one.name for one in left.unseen} == here.unseen
    # What the files still name there stays.
    assert scenes.guards(planned(*documents, scenes.binding(clusters="b, c"))) == []


@pytest.mark.parametrize(
    ("at", "more", "uid", "held"),
    [
        ("us", "", "uid-{}", ("max-deletes",)),
        ("eu", "", "another-{}", ("max-deletes",)),
        ("us", ", suspend: {reason: x}", "uid-{}", ()),
    ],
    ids=["behind an unread control plane", "blocked", "suspended"],
)
def test_what_left_where_nothing_is_planned_counts_for_the_budget(at, more, uid, held):
    here = World(control_plane=offering(POSTGRES), clusters={"a": [], "b": [], "c": []})
    bound = scenes.binding(clusters="a, b, c")
    here.apply(here.plan(fleet(scenes.plane(), *map(scenes.cluster, "abc"), bound)))
    here.uids |= {one: uid.format(one) for one in "bc"}
    clusters = scenes.cluster("a"), *(scenes.cluster(one, at=at, more=more) for one in "bc")
    wanted = fleet(scenes.plane(), scenes.plane("us"), *clusters)
    guards = replace(wanted.guards, max_deletes=1)
    left = [one for one in here.plan(replace(wanted, guards=guards)).changes if one.leaves]
    assert {(one.cluster, one.held) for one in left} == {("a", held)}
