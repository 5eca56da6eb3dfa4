"""AppClusterBindings of tenants that say they are ours, and ours in places that changed (T1, T14).

By the files, ours stand in the namespace of the ControlPlane and where Cluster documents say.
"""

import pytest

from reconciler.api import APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.blueprints.objects import UNMARKED, namespace
from reconciler.blueprints.objects import app_cluster_binding as made
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, identity_of, labels_of, put
from reconciler.core.refs import NAMESPACE, GroupResource
from reconciler.observe.read_scope import removed_clusters, secrets_of_app_cluster_bindings
from reconciler.planning.changes import Action
from tests.support.scenes import (
    ACB,
    DIRECT,
    GONE,
    MODES,
    PLANE,
    WRITING,
    actions,
    applied,
    binding,
    change,
    cluster,
    fleet,
    guards,
    plane,
    shop,
    space_of,
)
from tests.support.worlds import POSTGRES, World, offering

POSTGRESES = GroupResource("anynines.com", "postgresqlinstances")
LEAVING = "allowEmpty: true, onClusterLeave: Delete"
both_modes = pytest.mark.parametrize("mode", MODES)


def forged(cluster="shop", *, fleet="acme", **notes: str) -> Manifest:
    """Return what a tenant wrote; `notes` are annotations of klutchctl."""
    live = made(
        ("tenant-ns", "evil"),
        secret=("tenant-ns", "mine"),
        resources={POSTGRESES},
        konnector={},
        marks=UNMARKED,
    )
    live = put(live, {keys.FLEET: fleet, keys.CLUSTER: cluster}, "metadata", "labels")
    said = {f"{keys.OWN_PREFIX}{name.replace('_', '-')}": text for name, text in notes.items()}
    return put(live, said, "metadata", "annotations")


def new(*more: Manifest) -> World:
    """Return a world in which nothing is bound, beside what a tenant wrote."""
    return World(control_plane=[*offering(POSTGRES), *more], clusters={"shop": []})


def places(plan):
    """Return the namespaces of the control plane in which anything is written."""
    return {
        change.ref.namespace
        for change in plan.changes
        if change.action in WRITING and change.ref.cluster == PLANE
    }


@both_modes
@pytest.mark.parametrize(
    "notes", [{}, {"app_cluster_uid": "uid-shop"}, {"released": GONE}], ids=["", "uid", "released"]
)
def test_what_a_tenant_wrote_is_not_given_to_a_new_cluster(mode, notes):
    plan = new(forged(**notes)).plan(shop(mode=mode))
    assert "tenant-ns" not in places(plan)
    if mode == DIRECT and "released" in notes:
        return
    assert (actions(plan), guards(plan)) == ({Action.BLOCKED}, ["unproved-space"])
    assert "delete it, or add `adopt" in plan.changes[0].reason


def test_nor_by_the_identity_of_its_document_or_under_a_former_name():
    uid = "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"
    here = new(forged("former", app_cluster_uid=uid))
    here.uids["shop"] = uid
    plan = here.plan(shop(mode=ACB, more=f", identity: {uid}"))
    assert (actions(plan), guards(plan)) == ({Action.BLOCKED}, ["unproved-space"])


@both_modes
def test_the_files_say_that_a_new_cluster_gets_its_own(mode):
    own = {DIRECT: names.direct_space("acme", "shop"), ACB: "klutch-bind-klutch-fleet-shop"}
    plan = new(forged()).plan(shop(mode=mode, more=f", adopt: {{space: {own[mode]}}}"))
    assert Action.CREATE in actions(plan)
    assert actions(plan) <= {Action.CREATE}
    assert "tenant-ns" not in places(plan)


# `klutch/fleet-shop` of a tenant has the space of `klutch-fleet/shop`.

OWN_SPACE = ", adopt: {space: klutch-bind-klutch-fleet-shop}"


def namesake(cluster="shop", **notes: str) -> Manifest:
    live = put(forged(cluster, **notes), "klutch", "metadata", "namespace")
    return put(live, "fleet-shop", "metadata", "name")


@pytest.mark.parametrize(
    "notes", [{}, {"app_cluster_uid": "uid-shop"}, {"released": GONE}], ids=["", "uid", "released"]
)
def test_the_space_of_a_new_cluster_is_not_that_of_a_namesake(notes):
    wanted = shop(mode=ACB, more=OWN_SPACE)
    plan = new(namesake(**notes)).plan(wanted)
    assert actions(plan) == {Action.CREATE}
    assert not places(plan) & {"klutch", "tenant-ns"}
    found = set(secrets_of_app_cluster_bindings([namesake(**notes)], wanted, "eu", []))
    assert ("tenant-ns", "mine") not in found


def test_nor_is_a_cluster_held_that_is_bound():
    here = applied(mode=ACB)
    here.control_plane.append(namesake())
    assert actions(here.plan(shop(mode=ACB, more=OWN_SPACE))) == {Action.NOOP}


def test_a_space_that_the_files_give_to_another_cluster_is_that_which_we_keep():
    here = applied(mode=ACB)
    here.uids = {"shop": "uid", "store": "uid-shop"}
    here.clusters["store"] = here.clusters.pop("shop")
    here.control_plane.append(namesake("store"))
    store = cluster("store", more=OWN_SPACE)
    plan = here.plan(fleet(plane(mode=ACB), store, binding(clusters="store")))
    assert (actions(plan) <= {Action.UPDATE, Action.NOOP}, guards(plan)) == (True, [])
    assert places(plan) <= {"klutch-fleet"}


@both_modes
@pytest.mark.parametrize("said", ["shop", "cafe"])
def test_what_a_tenant_wrote_holds_no_cluster_that_is_bound(mode, said):
    here = applied(mode=mode)
    here.control_plane.append(forged(said, app_cluster_uid="uid-shop"))
    plan = here.plan(shop(mode=mode))
    assert (actions(plan), guards(plan)) == ({Action.NOOP}, [])
    (warning,) = plan.warnings
    assert "tenant-ns/evil" in warning
    assert "label that Namespace klutchctl.dev/fleet=acme" in warning


# A cluster that no document names.

ELSEWHERE = {"access": "context/X", "app_cluster_uid": "uid-shop"}


@both_modes
@pytest.mark.parametrize("more", ["", ", suspend: {reason: x}"], ids=["seen", "suspended"])
def test_no_cluster_is_reached_or_let_go_because_a_tenant_says_so(mode, more):
    here = applied(mode=mode)
    here.control_plane.append(forged("evil", **ELSEWHERE))
    wanted = shop(mode=mode, more=more, prune=LEAVING)
    assert removed_clusters(wanted, here.live(wanted).control_planes) == {}
    here.clusters["evil"], here.uids["evil"] = here.clusters["shop"], "uid-shop"
    plan = here.plan(wanted)
    assert not actions(plan, "evil")
    assert any("tenant-ns/evil" in one for one in plan.warnings)


@both_modes
@pytest.mark.parametrize("more", ["", ", suspend: {reason: x}"], ids=["unread", "suspended"])
def test_what_notes_a_cluster_that_was_not_read_is_not_let_go(mode, more):
    """Whoever wrote it: a copy in our own namespace leads to the same cluster."""
    here = applied(mode=mode)
    kind = {DIRECT: NAMESPACE, ACB: APP_CLUSTER_BINDING}[mode]
    (home,) = (
        one
        for one in here.control_plane
        if one["kind"] == kind.kind and labels_of(one).get(keys.CLUSTER) == "shop"
    )
    copy = put(home, "evil", "metadata", "labels", keys.CLUSTER)
    here.control_plane.append(put(copy, "evil", "metadata", "name"))
    here.clusters["evil"], here.uids["evil"] = here.clusters["shop"], "uid-shop"
    here.unseen.add("shop")
    assert not actions(here.plan(shop(mode=mode, more=more)), "evil") & WRITING


# Ours, in places that the files no longer name.


def moved_to(where: str, *, labelled: bool) -> World:
    """Return a world in which the AppClusterBinding of `shop` is in another namespace."""
    here = applied(mode=ACB)
    live = here.remove(PLANE, APP_CLUSTER_BINDING, "shop")
    held = namespace(where, marks=UNMARKED)
    if labelled:
        held = put(held, {keys.FLEET: "acme"}, "metadata", "labels")
    here.control_plane += [held, put(live, where, "metadata", "namespace")]
    return here


@pytest.mark.parametrize("labelled", [True, False], ids=["that we made", "of somebody"])
def test_a_cluster_that_left_another_namespace(labelled):
    here = moved_to("platform", labelled=labelled)
    wanted = fleet(plane(mode=ACB))
    gone = removed_clusters(wanted, here.live(wanted).control_planes)
    plan = here.plan(wanted)
    if labelled:
        assert gone.keys() == {"shop"}
        assert (actions(plan), plan.warnings) == ({Action.RELEASE}, ())
    else:
        assert (gone, plan.changes) == ({}, ())
        assert "label that Namespace klutchctl.dev/fleet=acme" in plan.warnings[0]


def test_a_cluster_stays_where_klutchctl_put_it_once_the_files_name_another_namespace():
    here = applied(mode=ACB)
    later = plane(mode=f"{ACB}, namespace: later")
    plan = here.plan(fleet(later, cluster(), binding()))
    assert (actions(plan), plan.warnings) == ({Action.NOOP}, ())
    assert actions(here.plan(fleet(later))) == {Action.RELEASE}


SAID = {
    "nothing": ("", {Action.BLOCKED}),
    "its place": (", appClusterBinding: {namespace: platform}", {Action.NOOP}),
    "its space": (", adopt: {space: klutch-bind-platform-shop}", {Action.NOOP}),
}


@pytest.mark.parametrize(("more", "want"), SAID.values(), ids=SAID.keys())
def test_a_cluster_in_a_namespace_of_somebody_stays_if_its_document_says_so(more, want):
    plan = moved_to("platform", labelled=False).plan(shop(mode=ACB, more=more))
    about = {one.action for one in plan.changes if one.ref.kind == APP_CLUSTER_BINDING}
    if want == {Action.BLOCKED}:
        assert actions(plan) == want
        assert "appClusterBinding: {namespace: platform, name: shop}" in plan.changes[0].reason
    else:
        assert (about, plan.warnings) == (want, ())


@both_modes
def test_a_new_fleet_is_not_held_because_a_tenant_says_that_another_has_its_cluster(mode):
    here = new(forged("shop", fleet="evil", app_cluster_uid="uid-shop"))
    assert actions(here.plan(shop(mode=mode))) == {Action.CREATE}


def test_a_fleet_under_another_name_is_held_beside_what_a_tenant_wrote():
    here = applied(mode=ACB)
    here.control_plane.append(forged("cafe", fleet="beta"))
    assert guards(here.plan(shop(mode=ACB, name="beta"))) == ["foreign-fleet"]


# What an apply reads.


@pytest.mark.parametrize(
    ("live", "want"),
    [(forged(), False), (put(forged(), "klutch-fleet", "metadata", "namespace"), True)],
    ids=["a tenant's", "ours"],
)
def test_secrets_that_a_tenant_names_are_not_read(live, want):
    found = set(secrets_of_app_cluster_bindings([live], shop(mode=ACB), "eu", []))
    assert (("tenant-ns", "mine") in found) is want


# Secrets that an account may not read, as a ClusterBinding may name any (T6).

TWO = (cluster("shop"), cluster("store"), binding(), binding(clusters="store", name="two"))
REFERENCE = ("spec", "kubeconfigSecretRef", "name")


def out_of_reach(mode: str) -> World:
    """Return a world of two clusters; the kubeconfig of `shop` is named otherwise by now."""
    here = World(control_plane=offering(POSTGRES), clusters={"shop": [], "store": []})
    here.apply(here.plan(fleet(plane(mode=mode), *TWO)))
    kind, name = {DIRECT: (CLUSTER_BINDING, "cluster"), ACB: (APP_CLUSTER_BINDING, "shop")}[mode]
    home = names.direct_space("acme", "shop") if mode == DIRECT else "klutch-fleet"
    (live,) = (
        one
        for one in here.control_plane
        if one["kind"] == kind.kind and identity_of(one) == (home, name)
    )
    here.control_plane.remove(live)
    here.control_plane.append(put(live, "odd", *REFERENCE))
    here.unreadable.add((home, "odd"))
    return here


@both_modes
def test_a_kubeconfig_out_of_reach_holds_its_cluster_alone(mode):
    plan = out_of_reach(mode).plan(fleet(plane(mode=mode), *TWO))
    assert (actions(plan, "shop"), guards(plan)) == ({Action.BLOCKED}, ["unreadable-kubeconfig"])
    assert actions(plan, "store") == {Action.NOOP}
    assert "/odd, which this account may not read" in plan.changes[0].reason


def test_nor_does_its_cluster_leave():
    plan = out_of_reach(DIRECT).plan(fleet(plane(), prune=LEAVING))
    assert actions(plan, "shop") == {Action.BLOCKED}
    assert not actions(plan, "store") & {Action.BLOCKED, Action.NOOP}


def test_a_cluster_that_may_be_bound_there_gets_no_new_space():
    """A tool that is not ours bound it: only the token there would prove that."""
    here = applied()
    space = space_of(here)
    change(here, PLANE, NAMESPACE, space, None, "metadata", "labels")
    change(here, PLANE, NAMESPACE, space, None, "metadata", "annotations")
    change(here, PLANE, CLUSTER_BINDING, "cluster", "odd", *REFERENCE)
    here.unreadable.add((space, "odd"))
    plan = here.plan(shop())
    assert (actions(plan), guards(plan)) == ({Action.BLOCKED}, ["unreadable-kubeconfig"])
