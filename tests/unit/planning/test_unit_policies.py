"""What a Binding said of its unit counts when it has left the files (mapping.md 9)."""

import pytest

from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, get_maps, get_texts
from reconciler.core.refs import CLUSTER_ROLE
from reconciler.planning.changes import Action
from tests.support.scenes import (
    ACB,
    MODES,
    SEARCH,
    applied,
    binding,
    cluster,
    fleet,
    guards,
    plane,
    shop,
)
from tests.support.worlds import POSTGRES, crd

SEARCHES = "searches"


def says(policy):
    return f", deletionPolicy: {policy}"


def line_of(plan, unit):
    (found,) = [o for o in plan.changes if o.unit is not None and o.unit.name == unit and o.acts]
    return found


def verbs(change):
    return [step.verb.value for step in change.steps]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("policy", "action"),
    [("Release", Action.RELEASE), ("Delete", Action.DELETE), ("Block", Action.BLOCKED)],
)
def test_each_unit_leaves_as_its_own_binding_said(mode, policy, action):
    here = applied(binding(more=says(policy)), binding(SEARCHES), mode=mode)
    plan = here.plan(shop(binding(SEARCHES), mode=mode))
    (left,) = [o for o in plan.changes if o.unit is not None and o.unit.name == POSTGRES]
    assert left.action is action


def whole(here):
    (live,) = [one for one in here.control_plane if one["kind"] == APP_CLUSTER_BINDING.kind]
    return live


def test_a_release_that_is_held_stays_one_though_all_others_say_delete():
    here = applied(binding(more=says("Delete")), binding(SEARCHES), mode=ACB)
    rule = "onClusterLeave: Delete, keepIfInUse: false"
    rest = (plane(mode=ACB), cluster(), binding(more=says("Delete")))
    held = here.plan(fleet(*rest, prune=f"{rule}, mode: report"))
    assert guards(held) == ["report"]
    here.apply(held)
    assert annotations_of(whole(here))[keys.DELETION_POLICY] == "Release", "it lists both"
    assert line_of(here.plan(fleet(*rest, prune=rule)), SEARCH).action is Action.RELEASE


def test_only_what_is_no_release_is_noted():
    assert keys.UNIT_POLICIES not in annotations_of(whole(applied(mode=ACB)))
    blocked = applied(binding(more=says("Block")), binding(SEARCHES), mode=ACB)
    assert annotations_of(whole(blocked))[keys.UNIT_POLICIES] == f"{POSTGRES}=Block"


@pytest.mark.parametrize("mode", MODES)
def test_a_blocked_unit_keeps_the_rights_of_its_konnector(mode):
    deployed = ", konnector: {deploy: true, image: example.com/konnector:1, rbac: Minimal}"
    here = applied(binding(more=says("Block")), binding(SEARCHES), mode=mode)
    wanted = fleet(plane(mode=mode), cluster(more=deployed), binding(more=says("Block")))
    here.apply(here.plan(wanted))
    plan = here.plan(fleet(plane(mode=mode), cluster(more=deployed), prune="allowEmpty: true"))
    here.apply(plan)
    roles = [one for one in here.clusters["shop"] if one["kind"] == CLUSTER_ROLE.kind]
    assert any(
        "postgresqlinstances" in get_texts(rule, "resources")
        for role in roles
        for rule in get_maps(role, "rules")
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("prune", "count", "goes"),
    [
        ("keepIfInUse: true", 0, False),
        ("keepIfInUse: false", 0, False),
        ("keepIfInUse: false", 3, True),
    ],
)
def test_only_instances_that_were_known_go_with_their_unit(mode, prune, count, goes):
    here = applied(binding(more=says("Delete")), mode=mode)
    here.clusters["shop"].append(crd(POSTGRES))
    here.in_use["shop"] = {POSTGRES: count}
    plan = here.plan(fleet(plane(mode=mode), cluster(), prune=f"{prune}, allowEmpty: true"))
    found = verbs(line_of(plan, POSTGRES))
    assert ("delete-instances" in found) is goes
    assert (found[0] == "check-no-instances") is not goes


@pytest.mark.parametrize("mode", MODES)
def test_the_rule_for_clusters_deletes_no_instances_of_a_unit_that_did_not_say_so(mode):
    here = applied(mode=mode)
    here.clusters["shop"].append(crd(POSTGRES))
    here.in_use["shop"] = {POSTGRES: 0}
    prune = "keepIfInUse: false, allowEmpty: true, onClusterLeave: Delete"
    found = verbs(line_of(here.plan(fleet(plane(mode=mode), prune=prune)), POSTGRES))
    assert "delete-instances" not in found
