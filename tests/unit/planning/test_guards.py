"""Guards and claims: what is held back, and what is asked for (product.md; mapping.md 6, 9)."""

import pytest

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core.manifest import get_text
from reconciler.planning.changes import Action
from tests.support import scenes
from tests.support.worlds import POSTGRES, World, crd, offering

# Guards (product.md, prune; mapping.md 9).


@pytest.mark.parametrize("guard", ["allow-empty", "report"])
def test_guards_hold_a_cluster_that_leaves_without_any_unit(guard):
    here = scenes.applied()
    here.remove("shop", API_SERVICE_BINDING, POSTGRES)
    here.remove(scenes.PLANE, API_SERVICE_EXPORT_REQUEST, POSTGRES)
    here.remove(scenes.PLANE, API_SERVICE_EXPORT, POSTGRES)
    prune = "mode: report, allowEmpty: true" if guard == "report" else "allowEmpty: false"
    assert scenes.guards(here.plan(scenes.fleet(scenes.plane(), prune=prune))) == [guard]


def test_report_does_not_hold_what_did_not_leave():
    here = scenes.applied()
    here.remove(scenes.PLANE, API_SERVICE_EXPORT, POSTGRES)
    path = ("status", "phase")
    scenes.change(here, scenes.PLANE, API_SERVICE_EXPORT_REQUEST, POSTGRES, "Failed", *path)
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


def test_a_replace_says_what_is_written_and_keeps_the_crd():
    here = scenes.applied()
    plan = here.plan(scenes.shop(scenes.binding(more=", parameters: {size: big}")))
    (request,) = [one for one in plan.changes if one.action is Action.REPLACE]
    assert get_text(request.after, "spec", "parameters", "size") == "big"


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
