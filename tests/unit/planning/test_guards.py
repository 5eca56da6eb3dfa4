"""Guards and policies of units: what is held back, asked for, or counts after the files."""

from dataclasses import replace

import pytest

from reconciler import api
from reconciler.api import APP_CLUSTER_BINDING
from reconciler.api.leases import LeaseLook, of_backend
from reconciler.core import keys
from reconciler.core.live import ClusterState, dump_live, parse_live
from reconciler.core.manifest import annotations_of, get_maps, get_texts, put
from reconciler.core.refs import CLUSTER_ROLE, Ref
from reconciler.fleet.values import Guards, UnitKey
from reconciler.planning import planner, prune_units
from reconciler.planning.changes import Action, Change
from tests.support import scenes
from tests.support.scenes import binding, fleet
from tests.support.worlds import POSTGRES, World, crd, offering, template

# Guards (product.md, prune; mapping.md 9).


BUDGETS = {
    # maxDeletes, maxDeletePercent, units known, units released: held
    "as many as may go": (2, 100, 2, 2, []),
    "more than the number": (1, 100, 2, 2, ["max-deletes"]),
    "none may go": (0, 100, 2, 1, ["max-deletes"]),
    "more than the share": (100, 10, 20, 3, ["max-deletes"]),
    "the share rounds up": (100, 10, 21, 3, []),
    "half of a small fleet": (100, 5, 3, 2, []),
    "more than half of a small fleet": (100, 5, 10, 6, ["max-deletes"]),
    "the number, of a small fleet": (2, 5, 10, 3, ["max-deletes"]),
    "a fleet that is not small": (100, 5, 20, 2, ["max-deletes"]),
    "one may go of each": (100, 1, 20, 1, []),
}


@pytest.mark.parametrize(
    ("most", "percent", "known", "released", "held"), BUDGETS.values(), ids=BUDGETS
)
def test_no_more_is_pruned_in_a_run_than_the_budget(most, percent, known, released, held):
    limits = Guards(allow_empty=True, max_deletes=most, max_delete_percent=percent)
    bound = Ref("shop", api.API_SERVICE_BINDING, "", POSTGRES)
    keys_ = [UnitKey("shop", "", str(number)) for number in range(known)]
    left = Change("shop", "postgres", bound, Action.RELEASE, "left")
    pruned = [replace(left, unit=key) for key in keys_[:released]]
    (unit,) = scenes.shop().units.values()
    limited = replace(scenes.shop(), guards=limits, units=dict.fromkeys(keys_[released:], unit))
    tripped = prune_units.run_guards(limited, pruned, pruned)
    assert [guard.guard for guard in tripped] == held


def test_report_does_not_hold_what_did_not_leave():
    here = scenes.applied()
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    path = ("status", "phase")
    scenes.change(here, scenes.PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES, "Failed", *path)
    plan = here.plan(scenes.shop(scenes.binding(), prune="mode: report"))
    assert Action.REPLACE in scenes.actions(plan)
    assert scenes.guards(plan) == []


DELETED = ", deletionPolicy: Delete"


@pytest.mark.parametrize(
    ("policy", "prune", "count", "held"),
    [
        (DELETED, "keepIfInUse: true", 0, []),
        (DELETED, "keepIfInUse: true", 2, ["in-use"]),
        (DELETED, "keepIfInUse: true", None, ["in-use"]),
        (DELETED, "keepIfInUse: false", 2, []),
        ("", "keepIfInUse: false, onClusterLeave: Delete", 2, ["in-use"]),
        (DELETED, "keepIfInUse: false, onClusterLeave: Delete", 2, []),
    ],
)
def test_a_unit_in_use_is_deleted_only_where_both_say_so(policy, prune, count, held):
    here = scenes.applied(scenes.binding(more=policy))
    here.clusters["shop"].append(crd(POSTGRES))
    here.in_use["shop"] = {} if count is None else {POSTGRES: count}
    documents = (
        (scenes.plane(),) if "onClusterLeave" in prune else (scenes.plane(), scenes.cluster())
    )
    plan = here.plan(scenes.fleet(*documents, prune=f"{prune}, allowEmpty: true"))
    assert Action.DELETE in scenes.actions(plan)
    assert scenes.guards(plan) == held


# Claims (mapping.md 6).


def test_a_claim_wider_than_a_field_selector_offers_blocks_its_unit():
    offered = {
        "group": "",
        "resource": "secrets",
        "version": "v1",
        "selector": {"owner": "Provider", "fieldSelectors": ["metadata.name=creds"]},
    }
    here = World(control_plane=offering(POSTGRES, claims=[offered]), clusters={"shop": []})
    claim = (
        ', claims: [{group: "", resource: secrets, version: v1, owner: Provider, state: Accepted}]'
    )
    plan = here.plan(scenes.shop(scenes.binding(more=claim)))
    assert scenes.of_unit(plan) == {Action.BLOCKED}


SEARCHES = "searches"


def says(policy):
    return f", deletionPolicy: {policy}"


def line_of(plan, unit):
    (found,) = [o for o in plan.changes if o.unit is not None and o.unit.name == unit and o.acts]
    return found


@pytest.mark.parametrize("mode", scenes.MODES)
@pytest.mark.parametrize(
    ("policy", "action"),
    [("Release", Action.RELEASE), ("Delete", Action.DELETE), ("Block", Action.BLOCKED)],
)
def test_each_unit_leaves_as_its_own_binding_said(mode, policy, action):
    here = scenes.applied(binding(more=says(policy)), binding(SEARCHES), mode=mode)
    plan = here.plan(scenes.shop(binding(SEARCHES), mode=mode))
    (left,) = [o for o in plan.changes if o.unit is not None and o.unit.name == POSTGRES]
    assert left.action is action


def whole(here):
    (live,) = [one for one in here.control_plane if one["kind"] == APP_CLUSTER_BINDING.kind]
    return live


def test_a_release_that_is_held_stays_one_though_all_others_say_delete():
    here = scenes.applied(binding(more=says("Delete")), binding(SEARCHES), mode=scenes.ACB)
    rule = "onClusterLeave: Delete, keepIfInUse: false"
    rest = (scenes.plane(mode=scenes.ACB), scenes.cluster(), binding(more=says("Delete")))
    held = here.plan(fleet(*rest, prune=f"{rule}, mode: report"))
    assert scenes.guards(held) == ["report"]
    here.apply(held)
    assert annotations_of(whole(here))[keys.DELETION_POLICY] == "Release", "it lists both"
    assert line_of(here.plan(fleet(*rest, prune=rule)), scenes.SEARCH).action is Action.RELEASE


@pytest.mark.parametrize("mode", scenes.MODES)
def test_a_blocked_unit_keeps_the_rights_of_its_konnector(mode):
    deployed = ", konnector: {deploy: true, image: example.com/konnector:1, rbac: Minimal}"
    here = scenes.applied(binding(more=says("Block")), binding(SEARCHES), mode=mode)
    documents = scenes.plane(mode=mode), scenes.cluster(more=deployed)
    here.apply(here.plan(fleet(*documents, binding(more=says("Block")))))
    here.apply(here.plan(fleet(*documents)))
    roles = [one for one in here.clusters["shop"] if one["kind"] == CLUSTER_ROLE.kind]
    assert any(
        "postgresqlinstances" in get_texts(rule, "resources")
        for role in roles
        for rule in get_maps(role, "rules")
    )


@pytest.mark.parametrize("mode", scenes.MODES)
@pytest.mark.parametrize(
    ("prune", "own", "count", "goes"),
    [
        ("keepIfInUse: true", "Delete", 0, False),
        ("keepIfInUse: false", "Delete", 0, False),
        ("keepIfInUse: false", "Delete", 3, True),
        ("keepIfInUse: false, onClusterLeave: Delete", "Release", 0, False),
    ],
)
def test_only_instances_that_were_known_go_with_their_unit(mode, prune, own, count, goes):
    here = scenes.applied(binding(more=says(own)), mode=mode)
    here.clusters["shop"].append(crd(POSTGRES))
    here.in_use["shop"] = {POSTGRES: count}
    documents = [scenes.plane(mode=mode), *[scenes.cluster()] * ("Leave" not in prune)]
    plan = here.plan(fleet(*documents, prune=f"{prune}, allowEmpty: true"))
    found = [step.verb.value for step in line_of(plan, POSTGRES).steps]
    assert ("delete-instances" in found) is goes
    assert (found[0] == "check-no-instances") is not goes
    assert "release-copies" in found, "those without an instance outlive the space"


LEASE = of_backend(scenes.PLANE)
STOPPED = LeaseLook("x", "2026-11-21T12:00:00.000000Z", "klutch-bind").manifest()
KNOWN = {
    "it runs, or is not known": ({}, ""),
    "there is none": (
        {LEASE: None},
        "control plane eu: nothing shows that a backend runs: there is no Lease klutch-bind-backend"
        " in klutch-bind or default, and no APIServiceExport; new bindings wait for it",
    ),
    "it has stopped": (
        {LEASE: STOPPED},
        "control plane eu: klutch-bind has stopped: Lease klutch-bind/klutch-bind-backend was last"
        " renewed at 2026-11-21T12:00:00Z; new bindings wait for it",
    ),
}


def knowing(live, bodies):
    seen = live.control_planes["eu"]
    assert isinstance(seen, ClusterState)
    known = replace(live, control_planes={"eu": replace(seen, bodies={**seen.bodies, **bodies})})
    return parse_live(dump_live(known), "a snapshot")


@pytest.mark.parametrize("mode", scenes.MODES)
@pytest.mark.parametrize(("bodies", "said"), KNOWN.values(), ids=KNOWN.keys())
def test_what_is_to_be_bound_needs_a_backend(mode, bodies, said):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    fleet = scenes.shop(mode=mode)
    live = here.live(fleet)
    assert LEASE in planner.decide(fleet, live).questions.bodies
    plan = planner.plan(fleet, knowing(live, bodies))
    assert [one for one in plan.warnings if one.startswith("control plane")] == [said] * bool(said)


def test_what_an_apply_has_asked_for_needs_one_still():
    here, fleet = scenes.applied(), scenes.shop()
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    (warning,) = planner.plan(fleet, knowing(here.live(fleet), {LEASE: STOPPED})).warnings
    assert "klutch-bind has stopped" in warning


MINE = {"group": "", "resource": "secrets", "version": "v1"}
CLAIM = {**MINE, "selector": {"owner": "Provider", "names": ["a"], "namespaces": ["*"]}}
WIDER = {**MINE, "selector": {"owner": "Provider", "names": ["*"], "namespaces": ["*"]}}
CLAIMS = ", claims: [{resource: secrets, version: v1, owner: Provider}]"


def at(*namespaces):
    """Return the document of a control plane whose templates count in these namespaces."""
    return scenes.plane().replace("mode:", f"templateNamespaces: [{', '.join(namespaces)}], mode:")


def world(*templates):
    """Return a world in which a template of the service stands in these namespaces."""
    offered = [
        put(template(POSTGRES, [claim]), namespace, "metadata", "namespace")
        for namespace, claim in templates
    ]
    return World(control_plane=[crd(POSTGRES), *offered], clusters={"shop": []})


def planned(here, document):
    return here.plan(fleet(document, scenes.cluster(), binding(more=CLAIMS)))


ROWS = {
    "all, where none is named": (scenes.plane(), False),
    "one that is named": (at("a-tenant", "platform"), False),
    "another one": (at("platform"), True),
}


@pytest.mark.parametrize(("document", "blocked"), ROWS.values(), ids=ROWS.keys())
def test_a_template_of_a_tenant(document, blocked):
    made = planned(world(("a-tenant", WIDER)), document)
    assert (scenes.of_unit(made) == {Action.BLOCKED}) is blocked
