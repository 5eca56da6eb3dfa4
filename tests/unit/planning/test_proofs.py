"""Which cluster is given a space: never the one that only says so (trust.md T1, T14)."""

import pytest

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.core import keys
from reconciler.core.manifest import drop, labels_of, name_of, put
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.planning.changes import Action
from tests.support.worlds import POSTGRES, World, fleet_of, offering

FLEET = """
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Fleet
metadata: {name: acme}
spec: {prune: {mode: off}}
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
metadata: {name: %(name)s}
spec: {access: {kubeconfigContext: %(name)s}, controlPlane: eu%(more)s}
"""
BINDING = """
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Binding
metadata: {name: orders-db}
spec:
  resources: [{group: anynines.com, resource: postgresqlinstances}]
  clusters: {names: [%s]}
"""
UID = "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"
MODES = ["Direct", "AppClusterBinding"]
CARRIERS = {"Direct": NAMESPACE, "AppClusterBinding": APP_CLUSTER_BINDING}
IDLE = {Action.NOOP, Action.UPDATE}


def files(mode, *, bound="shop", **clusters):
    text = FLEET % mode
    for name, more in clusters.items():
        text += CLUSTER % {"name": name, "more": f", {more}" if more else ""}
    return fleet_of(fleet=text + (BINDING % bound if bound else ""))


def tenant(mode):
    """Return a world in which cluster `shop` has its space."""
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []}, uids={"shop": UID})
    here.apply(here.plan(files(mode, shop="")))
    return here


def carrier(here, mode, cluster="shop"):
    return next(
        one
        for one in here.control_plane
        if one["kind"] == CARRIERS[mode].kind and labels_of(one).get(keys.CLUSTER) == cluster
    )


def space(here, mode):
    if mode == "Direct":
        return name_of(carrier(here, mode))
    return "klutch-bind-klutch-fleet-shop"


def released(here, mode):
    live = carrier(here, mode)
    here.control_plane.remove(live)
    mark = put(live, "2026-11-21T00:00:00Z", "metadata", "annotations", keys.RELEASED)
    here.control_plane.append(mark)


def liar(here, name):
    """Let a new cluster say that it is the tenant's."""
    here.clusters[name] = []
    here.uids[name] = UID


def actions(plan, cluster):
    return {one.action for one in plan.changes if one.cluster == cluster}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_release", [False, True])
def test_a_new_cluster_that_reports_the_uid_of_a_former_one_is_blocked(mode, with_release):
    here = tenant(mode)
    del here.clusters["shop"]
    if with_release:
        released(here, mode)
    liar(here, "store")
    plan = here.plan(files(mode, bound="store", store=""))
    assert actions(plan, "store") == {Action.BLOCKED}
    (whole, *_) = plan.changes
    assert f"adopt: {{space: {space(here, mode)}}}" in whole.reason
    assert f"identity: {UID}" in whole.reason


@pytest.mark.parametrize("mode", MODES)
def test_a_released_space_is_not_given_back_to_its_name_alone(mode):
    here = tenant(mode)
    here.clusters["shop"] = []
    released(here, mode)
    plan = here.plan(files(mode, shop=""))
    assert actions(plan, "shop") == {Action.BLOCKED}
    assert "was released" in plan.changes[0].reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_release", [False, True])
@pytest.mark.parametrize("proof", [f"identity: {UID}", "adopt: {space: SPACE}"])
def test_the_files_give_a_space(mode, with_release, proof):
    here = tenant(mode)
    del here.clusters["shop"]
    if with_release:
        released(here, mode)
    liar(here, "store")
    said = proof.replace("SPACE", space(here, mode))
    plan = here.plan(files(mode, bound="store", store=said))
    assert Action.BLOCKED not in actions(plan, "store"), plan.changes
    held = carrier(here, mode)
    moved = [one for one in plan.changes if one.ref.name == name_of(held)]
    assert [one.action for one in moved if one.ref.kind == CARRIERS[mode]] == [Action.UPDATE]


def test_a_token_in_the_app_cluster_gives_the_space_of_a_former_name():
    here = tenant("Direct")
    here.clusters["store"] = here.clusters.pop("shop")
    here.uids["store"] = UID
    plan = here.plan(files("Direct", bound="store", store=""))
    assert actions(plan, "store") <= IDLE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "proof", ["", "identity: 6f1c9c0e-5a4e-4c1a-9a7e-000000000000", "adopt: {space: SPACE}"]
)
def test_a_space_that_notes_another_uid_is_given_to_nobody(mode, proof):
    here = tenant(mode)
    here.uids["shop"] = "another"
    said = proof.replace("SPACE", space(here, mode))
    plan = here.plan(files(mode, shop=said))
    assert actions(plan, "shop") == {Action.BLOCKED}


@pytest.mark.parametrize("mode", MODES)
def test_a_space_that_is_not_there_cannot_be_adopted(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    plan = here.plan(files(mode, shop="adopt: {space: cluster-gone}"))
    assert actions(plan, "shop") == {Action.BLOCKED}
    assert "cluster-gone" in plan.changes[0].reason


@pytest.mark.parametrize("mode", MODES)
def test_the_space_of_another_cluster_of_the_files_cannot_be_adopted(mode):
    here = tenant(mode)
    here.clusters["store"] = []
    said = f"adopt: {{space: {space(here, mode)}}}"
    plan = here.plan(files(mode, bound="shop, store", shop="", store=said))
    assert actions(plan, "store") == {Action.BLOCKED}
    assert actions(plan, "shop") <= IDLE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bound", ["shop", "shop, store"])
def test_a_cluster_that_reports_the_uid_of_a_tenant_blocks_itself_alone(mode, bound):
    here = tenant(mode)
    liar(here, "store")
    plan = here.plan(files(mode, bound=bound, shop="", store=""))
    assert actions(plan, "shop") <= IDLE, [one.reason for one in plan.changes]
    assert actions(plan, "store") == {Action.BLOCKED}


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_with_an_identity_in_the_files_is_not_blocked_by_another_that_reports_it(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []}, uids={"shop": UID})
    liar(here, "store")
    plan = here.plan(files(mode, shop=f"identity: {UID}", store=""))
    assert actions(plan, "shop") == {Action.CREATE}
    assert actions(plan, "store") == {Action.BLOCKED}


@pytest.mark.parametrize("mode", MODES)
def test_two_clusters_of_one_uid_of_which_nothing_is_known_are_both_blocked(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []}, uids={"shop": UID})
    liar(here, "store")
    plan = here.plan(files(mode, shop="", store=""))
    assert actions(plan, "shop") == actions(plan, "store") == {Action.BLOCKED}


def test_a_space_without_our_labels_is_not_given_once_it_was_released():
    here = tenant("Direct")
    released(here, "Direct")
    live = carrier(here, "Direct")
    here.control_plane.remove(live)
    here.control_plane.append(drop(live, "metadata", "labels"))
    here.clusters["shop"] = []
    here.control_plane[:] = [one for one in here.control_plane if one["kind"] != SECRET.kind]
    plan = here.plan(files("Direct", shop=""))
    assert actions(plan, "shop") == {Action.BLOCKED}
