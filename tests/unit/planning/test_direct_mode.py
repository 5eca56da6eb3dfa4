"""Direct mode, from nothing to in sync, and what each difference becomes (mapping.md 2 to 6)."""

import pytest

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core.manifest import put
from reconciler.planning.changes import Action
from tests.support.worlds import POSTGRES, World, fleet_of, offering

HEAD = """
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Fleet
metadata: {name: acme}
spec:
  prune: {maxDeletePercent: 100}
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: ControlPlane
metadata: {name: eu}
spec:
  access: {kubeconfigContext: cp-eu}
  mode: Direct
---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {name: shop, labels: {env: prod}}
spec:
  access: {kubeconfigContext: shop}
  controlPlane: eu
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
SECRETS = {"group": "", "resource": "secrets", "version": "v1"}
CLAIMS = """
  claims:
    - {group: "", resource: secrets, version: v1, owner: Provider, names: [%s], state: Accepted}
"""


def world(claims=None):
    return World(control_plane=offering(POSTGRES, claims=claims), clusters={"shop": []})


def bound(binding=BINDING, claims=None):
    """Return a world in which a fleet was applied, and that fleet."""
    here, fleet = world(claims), fleet_of(fleet=HEAD + binding)
    here.apply(here.plan(fleet))
    return here, fleet


def lines(plan, *, noops=False):
    return [
        (change.action.value, change.subject, str(change.ref.kind))
        for change in plan.changes
        if noops or change.action is not Action.NOOP
    ]


def test_a_first_plan_creates_everything_in_the_order_of_application():
    plan = world().plan(fleet_of(fleet=HEAD + BINDING))
    assert lines(plan, noops=True) == [
        ("create", "cluster", "Namespace"),
        ("create", "space", "Namespace"),
        ("create", "space", "ServiceAccount"),
        ("create", "space", "Secret"),
        ("create", "space", "ClusterBinding"),
        ("create", "space", "Secret"),
        ("create", "cluster", "Secret"),
        ("create", "cluster", "CustomResourceDefinition"),
        ("create", "orders-db", "APIServiceExportRequest"),
        ("create", "orders-db", "APIServiceBinding"),
    ]
    assert not plan.held


def test_what_was_applied_is_in_sync():
    here, fleet = bound()
    assert lines(here.plan(fleet)) == []


def test_a_request_that_the_backend_deleted_is_in_sync_while_its_export_is_there():
    here, fleet = bound()
    here.remove("control-plane/eu", API_SERVICE_EXPORT_REQUEST, POSTGRES)
    assert lines(here.plan(fleet)) == []


def test_without_request_and_export_the_request_is_made_again():
    here, fleet = bound()
    here.remove("control-plane/eu", API_SERVICE_EXPORT_REQUEST, POSTGRES)
    here.remove("control-plane/eu", API_SERVICE_EXPORT, POSTGRES)
    assert lines(here.plan(fleet)) == [("create", "orders-db", "APIServiceExportRequest")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_request_that_ended_without_an_export_is_replaced(phase):
    here, fleet = bound()
    here.remove("control-plane/eu", API_SERVICE_EXPORT, POSTGRES)
    request = here.remove("control-plane/eu", API_SERVICE_EXPORT_REQUEST, POSTGRES)
    here.control_plane.append(put(request, phase, "status", "phase"))
    assert lines(here.plan(fleet)) == [("replace", "orders-db", "APIServiceExportRequest")]


def test_a_pending_request_is_waited_for_with_what_the_backend_says():
    here, fleet = bound()
    here.remove("control-plane/eu", API_SERVICE_EXPORT, POSTGRES)
    request = here.remove("control-plane/eu", API_SERVICE_EXPORT_REQUEST, POSTGRES)
    condition = {
        "type": "ExportsReady",
        "status": "False",
        "reason": "CRDNotFound",
        "message": "no such CRD",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    here.control_plane.append(put(request, [condition], "status", "conditions"))
    plan = here.plan(fleet)
    assert lines(plan) == []
    (waiting,) = [one for one in plan.changes if one.ref.kind == API_SERVICE_EXPORT_REQUEST]
    assert "CRDNotFound: no such CRD" in waiting.reason


def test_a_resource_that_is_not_offered_blocks_its_unit_and_names_what_is():
    here = World(control_plane=offering("searches.anynines.com"), clusters={"shop": []})
    plan = here.plan(fleet_of(fleet=HEAD + BINDING))
    (blocked,) = [one for one in plan.changes if one.action is Action.BLOCKED]
    assert blocked.subject == "orders-db"
    assert "it offers searches.anynines.com" in blocked.reason


def test_a_template_without_a_crd_blocks_its_unit():
    here = World(control_plane=offering(POSTGRES)[1:], clusters={"shop": []})
    plan = here.plan(fleet_of(fleet=HEAD + BINDING))
    assert [one.reason for one in plan.changes if one.action is Action.BLOCKED] == [
        f"the control plane has a template for {POSTGRES} and no CRD of that name"
    ]


def test_parameters_that_change_replace_the_request_only():
    here, _ = bound()
    fleet = fleet_of(fleet=HEAD + BINDING + "  parameters: {size: big}\n")
    plan = here.plan(fleet)
    assert lines(plan) == [
        ("replace", "orders-db", "APIServiceExportRequest"),
        ("update", "orders-db", "APIServiceBinding"),
    ]
    assert "may ignore parameters" in plan.changes[-2].reason
    assert "big" not in plan.changes[-2].reason, "values are shown as digests"


def test_a_renamed_binding_is_a_change_of_labels_only():
    here, _ = bound()
    fleet = fleet_of(fleet=HEAD + BINDING.replace("orders-db", "orders"))
    plan = here.plan(fleet)
    assert lines(plan) == [("update", "orders", "APIServiceBinding")]
    assert plan.changes[-1].reason == "labels only"


def test_a_moved_file_changes_nothing():
    here, _ = bound()
    include = HEAD.replace("spec:\n  prune", "spec:\n  include: [elsewhere/*.yaml]\n  prune", 1)
    fleet = fleet_of(fleet=include, elsewhere__b=BINDING)
    assert lines(here.plan(fleet)) == []


def test_a_drift_by_hand_is_repaired():
    here, fleet = bound(BINDING + CLAIMS % "creds", [SECRETS])
    binding = here.remove("shop", API_SERVICE_BINDING, POSTGRES)
    here.clusters["shop"].append(put(binding, [], "spec", "permissionClaims"))
    plan = here.plan(fleet)
    assert lines(plan) == [("update", "orders-db", "APIServiceBinding")]


def test_a_widened_claim_is_shown_as_such():
    here, _ = bound(BINDING + CLAIMS % "creds", [SECRETS])
    fleet = fleet_of(fleet=HEAD + BINDING + CLAIMS % '"*"')
    plan = here.plan(fleet)
    (widened,) = plan.widened
    assert (widened.binding, widened.claim) == ("orders-db", "secrets")
    assert (widened.before, widened.after) == ("names [creds]", "all")
    assert here.plan(fleet_of(fleet=HEAD + BINDING + CLAIMS % "creds")).widened == ()


def test_a_claim_that_nothing_offers_blocks_the_binding():
    here = world(claims=[])
    plan = here.plan(fleet_of(fleet=HEAD + BINDING + CLAIMS % "creds"))
    (blocked,) = [one for one in plan.changes if one.action is Action.BLOCKED]
    assert "offered by no resource of binding orders-db" in blocked.reason


def test_a_claim_wider_than_offered_blocks_the_unit():
    offered = SECRETS | {"selector": {"names": ["creds"]}}
    plan = world([offered]).plan(fleet_of(fleet=HEAD + BINDING + CLAIMS % '"*"'))
    (blocked,) = [one for one in plan.changes if one.action is Action.BLOCKED]
    assert "reaches further" in blocked.reason


COUNTS = {0: "0 instances stay", 1: "1 instance stays", 2: "2 instances stay"}


@pytest.mark.parametrize("count", COUNTS)
def test_the_instances_that_stay_are_counted(count):
    here, _ = bound()
    here.in_use["shop"] = {POSTGRES: count}
    plan = here.plan(fleet_of(fleet=HEAD.replace("maxDel", "allowEmpty: true, maxDel")))
    (change,) = [one for one in plan.changes if one.action is not Action.NOOP]
    assert f"{COUNTS[count]}, sync stops" in change.reason


def test_a_removed_binding_is_released_with_its_steps():
    here, _ = bound()
    here.in_use["shop"] = {POSTGRES: 3}
    plan = here.plan(fleet_of(fleet=HEAD.replace("maxDel", "allowEmpty: true, maxDel")))
    (change,) = [one for one in plan.changes if one.action is not Action.NOOP]
    assert change.action is Action.RELEASE
    assert change.subject == "orders-db"
    assert "3 instances stay" in change.reason
    assert [step.verb for step in change.steps] == [
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
    here, _ = bound()
    plan = here.plan(fleet_of(fleet=HEAD))
    assert [held.guard for held in plan.held] == ["allow-empty"]


def test_an_app_cluster_that_was_not_read_is_unknown_and_nothing_else():
    here, fleet = bound()
    here.unseen.add("shop")
    plan = here.plan(fleet)
    assert lines(plan) == [("unknown", "orders-db", POSTGRES)]
    assert [one.name for one in plan.unseen] == ["shop"]


def test_an_unseen_control_plane_makes_its_clusters_unknown():
    here, fleet = bound()
    here.unseen.add("eu")
    assert lines(here.plan(fleet)) == [("unknown", "orders-db", POSTGRES)]


def test_a_suspended_cluster_is_left_alone():
    here, _ = bound()
    here.remove("shop", API_SERVICE_BINDING, POSTGRES)
    fleet = fleet_of(
        fleet=HEAD.replace("controlPlane: eu", "controlPlane: eu\n  suspend: {reason: moving}")
        + BINDING
    )
    plan = here.plan(fleet)
    assert lines(plan) == []
    assert [one.reason for one in plan.changes] == ["suspended: moving"]


def test_a_swapped_kubeconfig_is_refused():
    here, fleet = bound()
    here.uids["shop"] = "another"
    plan = here.plan(fleet)
    assert {one.action for one in plan.changes} == {Action.BLOCKED}
    assert [held.guard for held in plan.held] == ["identity"]


def test_the_same_state_gives_the_same_plan():
    here, fleet = bound()
    again = World(control_plane=here.control_plane[::-1], clusters=here.clusters)
    assert again.plan(fleet) == here.plan(fleet)


def test_a_kubeconfig_that_only_we_can_use_is_warned_of_once():
    plan = world().plan(fleet_of(fleet=HEAD + BINDING))
    (warning,) = plan.warnings
    assert "https://127.0.0.1:6443" in warning
    assert "spec.endpoint" in warning
    elsewhere = HEAD.replace("mode: Direct", "mode: Direct\n  endpoint: https://cp.example:6443")
    assert world().plan(fleet_of(fleet=elsewhere + BINDING)).warnings == ()
    here, fleet = bound()
    assert here.plan(fleet).warnings == (), "what is made already is no news"


def test_a_blocked_unit_is_held_when_its_binding_has_left_the_files():
    here, _ = bound(BINDING + "  deletionPolicy: Block\n")
    plan = here.plan(fleet_of(fleet=HEAD.replace("maxDel", "allowEmpty: true, maxDel")))
    (change,) = [one for one in plan.changes if one.action is not Action.NOOP]
    assert change.action is Action.BLOCKED
    assert "deletionPolicy is Block" in change.reason
    assert change.steps == ()
