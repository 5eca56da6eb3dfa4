"""What a plan must never touch: what is not ours, moved, goes away, or leads elsewhere."""

import pytest

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.live import Live
from reconciler.core.manifest import get_map, get_text, name_of, namespace_of, put
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.fleet import load
from reconciler.planning.changes import Action
from tests.support.scenes import (
    ACB,
    GONE,
    HELD,
    MODES,
    PLANE,
    SEARCH,
    acting,
    actions,
    applied,
    binding,
    change,
    cluster,
    consumer_secret,
    fleet,
    foreign_binding,
    guards,
    of_unit,
    plane,
    secret_leading_to,
    shop,
    space_of,
)
from tests.support.worlds import POSTGRES, World, offering

BLOCKED = {Action.BLOCKED}
MARKS = ("labels", "annotations")
UID = "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"


def unmark(here, where, kind, name, *fields):
    for field in fields:
        change(here, where, kind, name, None, "metadata", field)


def fresh(*objects, of=World):
    """Return a world in which nothing is bound; these objects are in the app cluster."""
    return of(control_plane=offering(POSTGRES), clusters={"shop": [*objects]})


# A cluster that moves (mapping.md 2).


class Planes(World):
    """A world with a second control plane, `us`, that offers the same."""

    def live(self, fleet):
        live = super().live(fleet)
        planes = dict(live.control_planes) | {"us": self._seen("us", "cp-us", offering(POSTGRES))}
        known = {name: one for name, one in planes.items() if name in fleet.control_planes}
        return Live(known, live.clusters, live.leaving)


@pytest.mark.parametrize("documented", [True, False], ids=["from a known", "from a forgotten"])
@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_that_moves_while_a_unit_lives_is_blocked(mode, documented):
    here = applied()
    moving = Planes(control_plane=here.control_plane, clusters=here.clusters)
    planes = (plane(), plane("us", mode)) if documented else (plane("us", mode),)
    plan = moving.plan(fleet(*planes, cluster(at="us"), binding()))
    assert (actions(plan), guards(plan)) == (BLOCKED, ["moved"])


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_that_another_document_binds_is_not_bound_again_where_that_was_not_read(mode):
    here = applied(mode=mode)
    here.clusters["twin"] = here.clusters["shop"]
    here.uids["twin"] = "uid-shop"
    here.unseen.add("shop")
    both = binding(clusters="shop, twin")
    plan = here.plan(fleet(plane(mode=mode), cluster(), cluster("twin"), both))
    assert actions(plan, "twin") == BLOCKED
    assert guards(plan) == ["foreign-space" if mode == "Direct" else "moved"]


@pytest.mark.parametrize(("before", "after"), [MODES, MODES[::-1]])
def test_a_control_plane_that_changes_its_mode_blocks_what_lives(before, after):
    plan = applied(mode=before).plan(shop(mode=after))
    assert (actions(plan), guards(plan)) == (BLOCKED, ["moved"])


# What is not ours (mapping.md 0, Ownership).


def test_a_binding_of_another_that_leads_elsewhere_is_neither_replaced_nor_adopted():
    here = fresh(foreign_binding(), secret_leading_to("their-space", "them", "theirs"))
    assert of_unit(here.plan(shop())) == BLOCKED


@pytest.mark.parametrize("kind", [api.API_SERVICE_BINDING, api.API_SERVICE_EXPORT_REQUEST])
def test_an_object_of_another_fleet_is_not_taken_from_it(kind):
    here = applied()
    where = "shop" if kind == api.API_SERVICE_BINDING else PLANE
    change(here, where, kind, POSTGRES, "other", "metadata", "labels", keys.FLEET)
    assert of_unit(here.plan(shop())) == BLOCKED


def test_a_space_of_another_fleet_is_not_taken_from_it():
    here = applied()
    here.clusters["mall"] = []  # by which the other is known here
    here.apply(here.plan(fleet(plane(), cluster("mall"), binding(clusters="mall"), name="other")))
    plan = here.plan(shop(name="other"))
    assert (actions(plan, "shop"), guards(plan)) == (BLOCKED, ["foreign-space"])


def test_two_clusters_that_lead_to_one_space_are_both_held():
    here = applied()
    unmark(here, PLANE, NAMESPACE, space_of(here), *MARKS)
    here.clusters["copy"] = list(here.clusters["shop"])
    plan = here.plan(fleet(plane(), cluster(), cluster("copy"), binding(clusters="shop, copy")))
    assert (actions(plan), set(guards(plan))) == (BLOCKED, {"shared-space"})


def test_a_space_of_a_cluster_that_lives_is_not_given_to_another():
    here = applied()
    unmark(here, PLANE, NAMESPACE, space_of(here), "annotations")
    here.clusters["copy"] = list(here.clusters["shop"])
    documents = (plane(), cluster(more=", suspend: {reason: x}"), cluster("copy"))
    plan = here.plan(fleet(*documents, binding(clusters="copy")))
    assert (actions(plan, "copy"), guards(plan)) == (BLOCKED, ["foreign-space"])


def shard_beside(identity=""):
    """Return the shard of `eu`, where a Cluster `copy` is, and `shop` no more: it is at `us`."""
    elsewhere = cluster(at="us", more=identity and f", identity: {identity}")
    return load.shard(fleet(plane(), plane("us"), elsewhere, cluster("copy")), ["eu"])


def test_what_belongs_to_a_cluster_of_another_shard_is_taken_for_no_former_name():
    here = applied()
    here.clusters["copy"] = here.clusters.pop("shop")
    here.uids["copy"] = "uid-shop"
    plan = here.plan(shard_beside())
    assert (actions(plan), guards(plan)) == (BLOCKED, ["foreign-space"])


def test_a_cluster_that_another_shard_has_by_its_identity_is_held():
    here = World(control_plane=offering(POSTGRES), clusters={"copy": []}, uids={"copy": UID})
    plan = here.plan(shard_beside(UID))
    assert (actions(plan), guards(plan)) == (BLOCKED, ["identity"])


def test_an_adoption_writes_only_marks_and_the_rest_is_a_line_of_its_own():
    here = applied()
    unmark(here, "shop", api.API_SERVICE_BINDING, POSTGRES, *MARKS)
    first, second = acting(here.plan(shop()))
    assert first.action is Action.ADOPT
    assert {one.path.split("/")[2] for one in first.fields} == {"labels"}
    assert first.after is not None
    assert set(first.after) == {"apiVersion", "kind", "metadata"}
    assert set(get_map(first.after, "metadata")) == {"name", "namespace", "labels"}
    assert second.action is Action.UPDATE
    assert [one.path for one in second.fields] == [
        "/metadata/annotations/klutchctl.dev~1deletion-policy"
    ]
    here.apply(here.plan(shop()))
    assert actions(here.plan(shop())) == {Action.NOOP}


def test_what_an_adopted_app_cluster_binding_lists_is_not_released():
    here = applied(binding(), binding("searches"), mode=ACB)
    unmark(here, PLANE, api.APP_CLUSTER_BINDING, "shop", "managedFields", *MARKS)
    here.apply(here.plan(shop(mode=ACB)))
    change(here, PLANE, api.APP_CLUSTER_BINDING, "shop", [], "metadata", "managedFields")
    plan = here.plan(shop(mode=ACB))
    assert actions(plan) == {Action.NOOP}
    assert plan.warnings == (f"shop: unmanaged, and left alone: {SEARCH}",)


@pytest.mark.parametrize("labelled", [True, False], ids=["by labels", "by kubeconfigs"])
def test_several_spaces_of_one_cluster_are_ambiguous(labelled):
    here = applied()
    space = space_of(here)
    unmark(here, PLANE, NAMESPACE, space, *(() if labelled else MARKS))
    inside = [one for one in here.control_plane if namespace_of(one) == space]
    (itself,) = [one for one in here.control_plane if name_of(one) == space]
    here.control_plane += [put(one, "second", "metadata", "namespace") for one in inside]
    here.control_plane.append(put(itself, "second", "metadata", "name"))
    theirs = secret_leading_to("second", space, "theirs")
    here.clusters["shop"] += [foreign_binding(SEARCH, "theirs"), theirs]
    plan = here.plan(shop())
    assert (actions(plan), guards(plan)) == (BLOCKED, ["ambiguous-space"])


def test_several_app_cluster_bindings_of_one_cluster_are_ambiguous():
    here = applied(mode=ACB)
    live = here.remove(PLANE, api.APP_CLUSTER_BINDING, "shop")
    here.control_plane += [live, put(live, "second", "metadata", "name")]
    assert guards(here.plan(shop(mode=ACB))) == ["ambiguous-space"]


def test_what_a_tenant_writes_into_its_own_namespace_means_nothing():
    here = applied()
    ours = {keys.FLEET: "acme", keys.CLUSTER: "shop"}
    theirs = foreign_binding(SEARCH, consumer_secret(here), ours)
    here.clusters["shop"].append(put(theirs, "tenant", "metadata", "namespace"))
    assert actions(here.plan(shop())) == {Action.NOOP}


def test_a_suspended_document_with_the_identity_of_another_blocks_that():
    here = applied()
    here.uids["shop"] = UID
    asleep = cluster("asleep", more=f", identity: {UID}, suspend: {{reason: x}}")
    assert actions(here.plan(fleet(plane(), cluster(), asleep, binding())), "shop") == BLOCKED


def test_a_space_that_is_also_that_of_another_app_cluster_binding_is_left_to_it():
    here = applied(mode=ACB)
    other = keys.app_cluster_binding_labels("klutch", "fleet-shop")
    change(here, PLANE, api.API_SERVICE_BINDING, POSTGRES, other, "metadata", "labels")
    assert of_unit(here.plan(shop(mode=ACB))) == BLOCKED


# Objects that are being deleted.


@pytest.mark.parametrize(
    ("where", "kind", "name"),
    [
        (PLANE, NAMESPACE, None),
        (PLANE, api.CLUSTER_BINDING, names.CLUSTER_BINDING),
        (PLANE, SECRET, names.BINDER),
        (PLANE, SECRET, names.KUBECONFIG),
        (PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES),
        (PLANE, api.API_SERVICE_EXPORT, POSTGRES),
        ("shop", NAMESPACE, names.KLUTCH_NAMESPACE),
        ("shop", api.API_SERVICE_BINDING, POSTGRES),
    ],
    ids=str,
)
def test_what_is_being_deleted_is_not_in_sync(where, kind, name):
    here = applied()
    change(here, where, kind, name or space_of(here), GONE, "metadata", "deletionTimestamp")
    plan = here.plan(shop())
    assert BLOCKED <= actions(plan) <= HELD
    assert any("being deleted" in one.reason for one in plan.changes)


# Secret K (mapping.md 3, row 5).

SECRET_OF_BINDING = ("spec", "kubeconfigSecretRef", "name")


def test_a_lost_consumer_secret_is_made_again_under_its_name():
    here = applied()
    here.remove("shop", SECRET, consumer_secret(here))
    change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, "odd", *SECRET_OF_BINDING)
    made = [(one.action, one.ref.name) for one in acting(here.plan(shop()))]
    assert made == [(Action.CREATE, "odd")]


def test_a_secret_that_leads_to_such_a_space_elsewhere_is_not_used():
    here = applied()
    space = space_of(here)
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    theirs = secret_leading_to(space, "another control plane", "theirs")
    here.clusters["shop"] += [foreign_binding(SEARCH, "theirs"), theirs]
    (bound,) = [one for one in here.plan(shop()).changes if one.ref.kind == api.API_SERVICE_BINDING]
    assert get_text(bound.after, *SECRET_OF_BINDING) == names.kubeconfig_secret(space)


def test_a_secret_in_the_place_of_ours_that_leads_elsewhere_holds_the_cluster():
    name = names.kubeconfig_secret(names.direct_space("acme", "shop"))
    plan = fresh(secret_leading_to("their-space", "them", name)).plan(shop())
    assert (actions(plan), guards(plan)) == (BLOCKED, ["foreign-secret"])
