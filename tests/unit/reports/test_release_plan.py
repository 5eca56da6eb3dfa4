"""What `klutchctl release` may let go: what is named, ours, live, and not in the files."""

from dataclasses import replace

import pytest

from reconciler.core.errors import ConfigError
from reconciler.fleet.values import UnitKey
from reconciler.planning import planner
from reconciler.planning.changes import Action
from reconciler.reports import partial_plans
from tests.support.scenes import SEARCH, applied, binding, cluster, fleet, plane
from tests.support.worlds import POSTGRES, World, offering

BOTH = (binding(), binding("searches"))
EMPTY = (plane(), cluster())


def released(here, wanted, *named, foreign=()):
    asked = partial_plans.letting_go(wanted)
    plan = planner.plan(asked, here.live(asked))
    goals = [partial_plans.parse_target(one) for one in named]
    partial_plans.check(wanted, goals)
    return partial_plans.releases(wanted, plan, goals, foreign=foreign)


def units(plan):
    return [str(one.unit) for one in plan.changes]


@pytest.mark.parametrize("mode", ["off", "report", "auto"])
def test_only_what_is_named_is_let_go_whatever_the_mode(mode):
    wanted = fleet(*EMPTY, prune=f"allowEmpty: true, mode: {mode}")
    plan = released(applied(*BOTH), wanted, f"shop/{POSTGRES}")
    assert units(plan) == [f"shop/{POSTGRES}"]
    assert [one.action for one in plan.changes] == [Action.RELEASE]
    assert (plan.held, plan.warnings) == ((), ())
    assert plan.sections == {"shop": "eu"}


def test_a_unit_is_named_by_its_binding_too_and_counted_once():
    plan = released(applied(*BOTH), fleet(*EMPTY), "shop/searches", f"shop/{SEARCH}")
    assert units(plan) == [f"shop/{SEARCH}"]


@pytest.mark.parametrize("most", [0, 1])
def test_what_is_named_needs_no_budget(most):
    """A person names each: that is approval enough, also in a fleet of two units."""
    wanted = fleet(*EMPTY, prune="allowEmpty: true")
    wanted = replace(wanted, guards=replace(wanted.guards, max_deletes=most))
    plan = released(applied(*BOTH), wanted, f"shop/{POSTGRES}", f"shop/{SEARCH}")
    assert plan.held == ()
    assert [one.held for one in plan.changes] == [(), ()]


def test_an_empty_state_releases_nothing_without_consent():
    plan = released(applied(), fleet(*EMPTY, prune="allowEmpty: false"), f"shop/{POSTGRES}")
    assert [one.held for one in plan.changes] == [("allow-empty",)]


def test_the_apply_of_it_finds_the_same_lines_and_none_held():
    here, wanted = applied(*BOTH), fleet(*EMPTY, prune="allowEmpty: true, mode: report")
    approved = released(here, wanted, f"shop/{POSTGRES}")
    fresh = here.plan(partial_plans.without_budgets(wanted))
    (line,) = [one for one in fresh.changes if one.unit == approved.changes[0].unit]
    assert line == approved.changes[0]


def test_a_unit_of_a_cluster_that_left_is_let_go_without_the_cluster():
    wanted = fleet(plane(), prune="allowEmpty: true, onClusterLeave: Delete")
    plan = released(applied(), wanted, f"shop/{POSTGRES}")
    assert [(one.action, str(one.unit)) for one in plan.changes] == [
        (Action.RELEASE, f"shop/{POSTGRES}")
    ]


def test_what_its_policy_holds_stays_held():
    here = applied(binding(more=", deletionPolicy: Block"))
    plan = released(here, fleet(*EMPTY), f"shop/{POSTGRES}")
    assert [one.action for one in plan.changes] == [Action.BLOCKED]


def test_what_holds_a_whole_cluster_holds_it():
    here = applied()
    here.uids["shop"] = "another"
    plan = released(here, fleet(*EMPTY), f"shop/{POSTGRES}")
    assert [(one.action, one.unit) for one in plan.changes] == [(Action.BLOCKED, None)]
    assert [one.guard for one in plan.held] == ["identity"]


def test_a_cluster_that_was_not_read_is_reported_and_no_error():
    here = applied()
    here.unseen.add("shop")
    plan = released(here, fleet(*EMPTY), f"shop/{POSTGRES}")
    assert [one.name for one in plan.unseen] == ["shop"]
    assert plan.changes == ()


REFUSED = {
    "in the files": ((*EMPTY, binding()), POSTGRES, "still binds .* would bind it again"),
    "in the files, by its Binding": (
        (*EMPTY, binding()),
        "postgresqlinstances",
        "fleet.yaml.*Take it out of the files first",
    ),
    "suspended": (
        (plane(), cluster(more=", suspend: {reason: moving}")),
        POSTGRES,
        "shop is suspended: moving",
    ),
    "nowhere": (EMPTY, "postgresqlinstance", "Did you mean postgresqlinstances?"),
}


@pytest.mark.parametrize(("documents", "name", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(documents, name, said):
    with pytest.raises(ConfigError, match=said):
        released(applied(), fleet(*documents), f"shop/{name}")


def test_what_would_be_deleted_is_refused():
    here = applied(binding(more=", deletionPolicy: Delete"))
    with pytest.raises(ConfigError, match="deletionPolicy: Release"):
        released(here, fleet(*EMPTY), f"shop/{POSTGRES}")


def test_what_is_not_ours_is_refused_with_what_to_do():
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    unit = UnitKey("shop", *reversed(POSTGRES.split(".", 1)))
    with pytest.raises(ConfigError, match="klutchctl import"):
        released(here, fleet(*EMPTY), f"shop/{POSTGRES}", foreign=[unit])
