"""Which cluster is given a space: never the one that only says so (trust.md T1, T14)."""

import pytest

from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core import keys
from reconciler.core.manifest import labels_of, name_of
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.planning.changes import Action
from tests.support import scenes
from tests.support.worlds import POSTGRES, World, offering

UID = "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"
OTHER_UID = "6f1c9c0e-5a4e-4c1a-9a7e-000000000000"
CARRIERS = {"Direct": NAMESPACE, "AppClusterBinding": APP_CLUSTER_BINDING}
IDLE = {Action.NOOP, Action.UPDATE}
BLOCKED = {Action.BLOCKED}
both_modes = pytest.mark.parametrize("mode", scenes.MODES)
released_or_not = pytest.mark.parametrize("with_release", [False, True])


def files(mode, *, bound="shop", **clusters):
    """Return a fleet with these clusters; what more their documents say is given by name."""
    documents = [scenes.cluster(name, more=more and f", {more}") for name, more in clusters.items()]
    documents += [scenes.binding(clusters=bound)] if bound else []
    return scenes.fleet(scenes.plane(mode=mode), *documents, prune="mode: off")


def tenant(mode):
    """Return a world in which cluster `shop` has its space."""
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []}, uids={"shop": UID})
    here.apply(here.plan(files(mode, shop="")))
    return here


def carrier(here, mode):
    return next(
        name_of(one)
        for one in here.control_plane
        if one["kind"] == CARRIERS[mode].kind and labels_of(one).get(keys.CLUSTER) == "shop"
    )


def space(here, mode):
    return carrier(here, mode) if mode == "Direct" else "klutch-bind-klutch-fleet-shop"


def mark_released(here, mode):
    path = ("metadata", "annotations", keys.RELEASED)
    scenes.change(here, scenes.PLANE, CARRIERS[mode], carrier(here, mode), scenes.GONE, *path)


def liar(here, name):
    """Let a new cluster say that it is the tenant's."""
    here.clusters[name] = []
    here.uids[name] = UID


def impostor(mode, *, with_release):
    """Return a world in which the tenant has gone, and a new cluster says that it is it."""
    here = tenant(mode)
    del here.clusters["shop"]
    if with_release:
        mark_released(here, mode)
    liar(here, "store")
    return here


@both_modes
@released_or_not
def test_a_new_cluster_that_reports_the_uid_of_a_former_one_is_blocked(mode, with_release):
    here = impostor(mode, with_release=with_release)
    plan = here.plan(files(mode, bound="store", store=""))
    assert scenes.actions(plan, "store") == BLOCKED
    (whole, *_) = plan.changes
    assert f"adopt: {{space: {space(here, mode)}}}" in whole.reason
    assert f"identity: {UID}" in whole.reason


@both_modes
def test_a_released_space_is_not_given_back_to_its_name_alone(mode):
    here = tenant(mode)
    here.clusters["shop"] = []
    mark_released(here, mode)
    plan = here.plan(files(mode, shop=""))
    assert scenes.actions(plan, "shop") == BLOCKED
    assert "was released" in plan.changes[0].reason


@both_modes
@released_or_not
@pytest.mark.parametrize("proof", [f"identity: {UID}", "adopt: {space: SPACE}"])
def test_the_files_give_a_space(mode, with_release, proof):
    here = impostor(mode, with_release=with_release)
    plan = here.plan(files(mode, bound="store", store=proof.replace("SPACE", space(here, mode))))
    assert Action.BLOCKED not in scenes.actions(plan, "store"), plan.changes
    moved = [one for one in plan.changes if one.ref.name == carrier(here, mode)]
    assert [one.action for one in moved if one.ref.kind == CARRIERS[mode]] == [Action.UPDATE]


def test_a_token_in_the_app_cluster_gives_the_space_of_a_former_name():
    here = tenant("Direct")
    here.clusters["store"] = here.clusters.pop("shop")
    here.uids["store"] = UID
    assert scenes.actions(here.plan(files("Direct", bound="store", store="")), "store") <= IDLE


@both_modes
@pytest.mark.parametrize("proof", ["", f"identity: {OTHER_UID}", "adopt: {space: SPACE}"])
def test_a_space_that_notes_another_uid_is_given_to_nobody(mode, proof):
    here = tenant(mode)
    here.uids["shop"] = "another"
    said = proof.replace("SPACE", space(here, mode))
    assert scenes.actions(here.plan(files(mode, shop=said)), "shop") == BLOCKED


@both_modes
def test_a_space_that_is_not_there_cannot_be_adopted(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    plan = here.plan(files(mode, shop="adopt: {space: cluster-gone}"))
    assert scenes.actions(plan, "shop") == BLOCKED
    assert "cluster-gone" in plan.changes[0].reason


@both_modes
def test_the_space_of_another_cluster_of_the_files_cannot_be_adopted(mode):
    here = tenant(mode)
    here.clusters["store"] = []
    said = f"adopt: {{space: {space(here, mode)}}}"
    plan = here.plan(files(mode, bound="shop, store", shop="", store=said))
    assert scenes.actions(plan, "store") == BLOCKED
    assert scenes.actions(plan, "shop") <= IDLE


@both_modes
@pytest.mark.parametrize("bound", ["shop", "shop, store"])
def test_a_cluster_that_reports_the_uid_of_a_tenant_blocks_itself_alone(mode, bound):
    here = tenant(mode)
    liar(here, "store")
    plan = here.plan(files(mode, bound=bound, shop="", store=""))
    assert scenes.actions(plan, "shop") <= IDLE, [one.reason for one in plan.changes]
    assert scenes.actions(plan, "store") == BLOCKED


@both_modes
@pytest.mark.parametrize(
    ("identity", "expected"), [(f"identity: {UID}", {Action.CREATE}), ("", BLOCKED)]
)
def test_of_two_new_clusters_that_report_one_uid_the_files_name_the_right_one(
    mode, identity, expected
):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []}, uids={"shop": UID})
    liar(here, "store")
    plan = here.plan(files(mode, shop=identity, store=""))
    assert scenes.actions(plan, "shop") == expected
    assert scenes.actions(plan, "store") == BLOCKED


def test_a_space_without_our_labels_is_not_given_once_it_was_released():
    here = tenant("Direct")
    mark_released(here, "Direct")
    scenes.change(
        here, scenes.PLANE, NAMESPACE, carrier(here, "Direct"), None, "metadata", "labels"
    )
    here.clusters["shop"] = []
    here.control_plane[:] = [one for one in here.control_plane if one["kind"] != SECRET.kind]
    assert scenes.actions(here.plan(files("Direct", shop="")), "shop") == BLOCKED
