"""Direct mode, from nothing to in sync, and what each difference becomes (mapping.md 2 to 6)."""

from dataclasses import replace
from typing import Any

import pytest

from klutchctl.render import plan_rows
from reconciler import api
from reconciler.core import refs
from reconciler.core.manifest import JSON, Manifest
from reconciler.planning import planfile, planner
from reconciler.planning.changes import Action
from tests.support import scenes
from tests.support.scenes import change, plane
from tests.support.worlds import POSTGRES, World, offering

DB = "postgresqlinstances"
REQUEST = api.API_SERVICE_EXPORT_REQUEST
SECRETS = {"group": "", "resource": "secrets", "version": "v1"}


def claiming(names, namespaces='["*"]'):
    claim = (
        f"resource: secrets, version: v1, owner: Provider, names: [{names}],"
        f" namespaces: {namespaces}, state: Accepted"
    )
    return scenes.binding(more=f', claims: [{{group: "", {claim}}}]')


def lines(plan, *, noops=False):
    return [
        (change.action.value, change.subject, str(change.ref.kind))
        for change in plan.changes
        if noops or change.action is not Action.NOOP
    ]


def without(*kinds):
    """Return what takes objects of the unit off the control plane."""

    def edit(here):
        for kind in kinds:
            here.remove(scenes.PLANE, kind, POSTGRES)

    return edit


def without_export(status, key):
    """Return what leaves a request without its export, with a status."""

    def edit(here):
        here.remove(scenes.PLANE, api.API_SERVICE_EXPORT, POSTGRES)
        change(here, scenes.PLANE, REQUEST, POSTGRES, status, "status", key)

    return edit


def test_an_account_is_made_once_its_name_is_known_to_be_free():
    """S1: an earlier space of that name may have left rights and data."""
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    live, files = here.live(scenes.shop()), scenes.shop()
    asked = planner.decide(files, live).questions.bodies
    (account,) = (one for one in asked if one.kind == refs.SERVICE_ACCOUNT)
    assert account.name == "klutch-binder"

    def answered(left):
        plane: Any = live.control_planes["eu"]
        seen = replace(plane, bodies=dict.fromkeys(asked) | {account: left})
        return planner.decide(files, replace(live, control_planes={"eu": seen}))

    free = answered(None)
    assert account not in free.questions.bodies
    assert ("create", "space", "ServiceAccount") in lines(free.plan)
    (held,) = [o for o in answered({"message": "x is left"}).plan.changes if o.ref == account]
    assert (held.action, held.reason) == (Action.BLOCKED, "x is left")
    here.apply(free.plan)
    again = planner.decide(files, here.live(files)).questions.bodies
    assert not [one for one in again if one.kind == refs.SERVICE_ACCOUNT]


LIVE = {
    "what was applied": (without(), []),
    "a request that the backend deleted, while its export is there": (without(REQUEST), []),
    "neither request nor export": (
        without(REQUEST, api.API_SERVICE_EXPORT),
        [("create", DB, "APIServiceExportRequest")],
    ),
    "a request that succeeded without an export": (
        without_export("Succeeded", "phase"),
        [("replace", DB, "APIServiceExportRequest")],
    ),
    "a request that failed": (
        without_export("Failed", "phase"),
        [("replace", DB, "APIServiceExportRequest")],
    ),
    "an app cluster that was not read": (
        lambda here: here.unseen.add("shop"),
        [("unknown", DB, POSTGRES)],
    ),
    "a control plane that was not read": (
        lambda here: here.unseen.add("eu"),
        [("unknown", DB, POSTGRES)],
    ),
}


@pytest.mark.parametrize(("edit", "expected"), LIVE.values(), ids=LIVE.keys())
def test_what_is_live_is_compared(edit, expected):
    here = scenes.applied()
    edit(here)
    plan = here.plan(scenes.shop())
    assert lines(plan) == expected
    assert {one.name for one in plan.unseen} >= here.unseen - {"eu"}


def test_a_pending_request_is_waited_for_with_what_the_backend_says():
    here = scenes.applied()
    condition = {
        "type": "ExportsReady",
        "status": "False",
        "reason": "CRDNotFound",
        "message": "no such CRD",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    without_export([condition], "conditions")(here)
    plan = here.plan(scenes.shop())
    assert lines(plan) == []
    (waiting,) = [one for one in plan.changes if one.ref.kind == REQUEST]
    assert "CRDNotFound: no such CRD" in waiting.reason


OFFERED = SECRETS | {"selector": {"names": ["creds"]}}
BLOCKED = {
    "a resource that is not offered, and what is": (
        offering("searches.anynines.com"),
        scenes.binding(),
        "it offers searches.anynines.com",
    ),
    "a template without a CRD": (
        offering(POSTGRES)[1:],
        scenes.binding(),
        f"the control plane has a template for {POSTGRES} and no CRD of that name",
    ),
    "a claim that nothing offers": (
        offering(POSTGRES),
        claiming("creds"),
        f"is offered by no resource of binding {DB}: take it out",
    ),
    "a claim that only another resource offers": (
        [*offering(POSTGRES), *offering("credentials.x.io", claims=[SECRETS])],
        claiming("creds"),
        "take it out, or add a resource that offers it (credentials.x.io)",
    ),
    "a claim wider than offered": (
        offering(POSTGRES, claims=[OFFERED]),
        claiming('"*"'),
        "reaches further",
    ),
}


@pytest.mark.parametrize(("offers", "wanted", "why"), BLOCKED.values(), ids=BLOCKED.keys())
def test_what_blocks_a_unit(offers, wanted, why):
    plan = World(control_plane=offers, clusters={"shop": []}).plan(scenes.shop(wanted))
    (blocked,) = [one for one in plan.changes if one.action is Action.BLOCKED]
    assert blocked.subject == DB
    assert why in blocked.reason


def test_a_renamed_binding_is_a_change_of_labels_only():
    plan = scenes.applied().plan(scenes.shop(scenes.binding(name="orders")))
    assert lines(plan) == [("update", "orders", "APIServiceBinding")]
    assert plan.changes[-1].reason == "labels only"


def test_what_depends_on_another_waits_for_it():
    search = scenes.binding("searches", name="search", more=f", dependsOn: [{DB}]")
    here = World(control_plane=offering(POSTGRES, scenes.SEARCH), clusters={"shop": []})
    plan = here.plan(scenes.shop(scenes.binding(), search))
    waits = {change.subject: change.waits_for for change in plan.changes}
    assert waits == {DB: (), "search": (DB,), "space": (), "cluster": ()}
    assert planfile.parse(planfile.dump(plan), "p") == here.plan(
        scenes.shop(scenes.binding(), search)
    )
    (row,) = {
        plan_rows.row(one).text for one in plan.changes if one.ref.kind == REQUEST and one.waits_for
    }
    assert row == f"APIServiceExportRequest {scenes.SEARCH}  (waits for {DB})"
    here.apply(plan)
    assert not any(
        one.waits_for for one in here.plan(scenes.shop(scenes.binding(), search)).changes
    )


NAMESPACES = {
    "one of the cluster itself beside others": (
        ["*"], "[kube-system]", "all", "namespaces [kube-system (RESERVED)]",
    ),
    "of none, then of all": ([], '["*"]', "namespaces []", "all"),
    "fewer": (["*", "kube-system"], "[shop]", None, None),
    "the same": (["kube-system", "*"], '["*"]', None, None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("held", "wanted", "before", "after"), NAMESPACES.values(), ids=NAMESPACES.keys()
)
def test_a_claim_on_more_namespaces_is_shown_as_wider(held, wanted, before, after):
    here = scenes.applied(claiming('"*"'), claims=[SECRETS])
    selector: dict[str, JSON] = {"owner": "Provider", "namespaces": held}
    claim: Manifest = {**SECRETS, "selector": selector, "state": "Accepted"}
    change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, [claim], "spec", "permissionClaims")
    plan = here.plan(scenes.shop(claiming('"*"', namespaces=wanted)))
    shown = [(one.before, one.after) for one in plan.widened]
    assert shown == ([] if before is None else [(before, after)])


def test_a_claim_that_opens_namespaces_of_the_cluster_itself_has_a_warning_until_it_is_there():
    here = scenes.applied(claims=[SECRETS])
    wanted = scenes.shop(claiming('"*"', namespaces="[kube-system, shop]"))
    plan = here.plan(wanted)
    (warning,) = [one for one in plan.warnings if "kube-system" in one]
    assert "secrets in kube-system" in warning
    here.apply(plan)
    assert not [one for one in here.plan(wanted).warnings if "kube-system" in one]


def test_claims_are_repaired_and_shown_where_they_widen():
    narrow = claiming("creds")
    here = scenes.applied(narrow, claims=[SECRETS])
    plan = here.plan(scenes.shop(claiming('"*"')))
    (widened,) = plan.widened
    assert (widened.binding, widened.claim) == (DB, "secrets")
    assert (widened.before, widened.after) == ("names [creds]", "all")
    assert here.plan(scenes.shop(narrow)).widened == ()
    change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, [], "spec", "permissionClaims")
    assert lines(here.plan(scenes.shop(narrow))) == [("update", DB, "APIServiceBinding")]


COUNTS = {0: "0 instances stay", 1: "1 instance stays", 2: "2 instances stay"}


@pytest.mark.parametrize("count", COUNTS)
def test_the_instances_that_stay_are_counted(count):
    here = scenes.applied()
    here.in_use["shop"] = {POSTGRES: count}
    plan = here.plan(scenes.fleet(plane(), scenes.cluster()))
    (released,) = [one for one in plan.changes if one.action is not Action.NOOP]
    assert (released.action, released.subject) == (Action.RELEASE, DB)
    assert f"{COUNTS[count]}, sync stops" in released.reason
    assert [step.verb for step in released.steps] == [
        "remember",
        "set-deletion-policy",
        "delete-orphaning",
        "await-stop",
        "delete",
        "delete",
        "release-copies",
        "free-instances",
        "forget",
    ]
    assert not plan.held


def test_an_empty_desired_state_never_releases_anything():
    plan = scenes.applied().plan(scenes.fleet(plane(), scenes.cluster(), prune="allowEmpty: false"))
    assert scenes.guards(plan) == ["allow-empty"]


def test_a_suspended_cluster_is_left_alone():
    here = scenes.applied()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    plan = here.plan(scenes.shop(more=", suspend: {reason: moving}"))
    assert lines(plan) == []
    assert [one.reason for one in plan.changes] == ["suspended: moving"]
    assert plan.warnings == ("shop/cluster: suspended: moving",)


def test_a_swapped_kubeconfig_is_refused():
    here = scenes.applied()
    here.uids["shop"] = "another"
    plan = here.plan(scenes.shop())
    assert {one.action for one in plan.changes} == {Action.BLOCKED}
    assert scenes.guards(plan) == ["identity"]


def test_a_kubeconfig_that_only_we_can_use_is_warned_of_once():
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    (warning,) = here.plan(scenes.shop()).warnings
    assert "https://127.0.0.1:6443" in warning
    assert "spec.endpoint" in warning
    elsewhere = plane(mode="Direct, endpoint: 'https://cp.example:6443'")
    assert here.plan(scenes.fleet(elsewhere, scenes.cluster(), scenes.binding())).warnings == ()
    assert scenes.applied().plan(scenes.shop()).warnings == (), "what is made already is no news"
