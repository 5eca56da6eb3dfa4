"""Guards and claims: what is held back, and what is asked for (product.md; mapping.md 6, 9)."""

import pytest

from reconciler import api
from reconciler.core.manifest import get_text
from reconciler.core.refs import Ref
from reconciler.fleet.values import Guards, UnitKey
from reconciler.planning import prune_units
from reconciler.planning.changes import Action, Change
from tests.support import scenes
from tests.support.worlds import POSTGRES, World, crd, offering

# Guards (product.md, prune; mapping.md 9).


@pytest.mark.parametrize("guard", ["allow-empty", "report"])
def test_guards_hold_a_cluster_that_leaves_without_any_unit(guard):
    here = scenes.applied()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    here.remove(scenes.PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    prune = "mode: report, allowEmpty: true" if guard == "report" else "allowEmpty: false"
    assert scenes.guards(here.plan(scenes.fleet(scenes.plane(), prune=prune))) == [guard]


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
    binding = Ref("shop", api.API_SERVICE_BINDING, "", POSTGRES)
    pruned = [
        Change("shop", "postgres", binding, Action.RELEASE, "left", unit=UnitKey("shop", "", name))
        for name in map(str, range(released))
    ]
    tripped = prune_units.held_back(limits, pruned, prune_units.Extent(wanted=1, known=known))
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
