"""What was approved against what is there now."""

from dataclasses import replace

import pytest

from reconciler.apply import Status
from reconciler.apply.approval import clusters_to_change, match
from reconciler.core.refs import CLUSTER_ROLE, NAMESPACE, SECRET, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan, UnseenCluster

UNIT = UnitKey("shop", "g.example", "databases")
SPACE = Change("shop", "space", Ref("control-plane/eu", NAMESPACE, "", "s"), Action.CREATE, "new")
BOUND = Change(
    "shop",
    "orders",
    Ref("shop", SECRET, "ns", "b"),
    Action.UPDATE,
    "drift",
    unit=UNIT,
    before="1",
    uid="u",
    after={"a": 1},
)
FIRST = Change("shop", "orders", Ref("shop", SECRET, "ns", "a"), Action.CREATE, "new", unit=UNIT)
RIGHT = Change("shop", "konnector", Ref("shop", CLUSTER_ROLE, "", "r"), Action.UPDATE, "less")
LEAVES = replace(BOUND, action=Action.RELEASE)


def plan(*changes, unseen=()):
    return Plan("acme", "", "d", changes, {"shop": "eu"}, unseen=tuple(unseen))


MATCHES = {
    "the same lines": (plan(SPACE, BOUND), plan(SPACE, BOUND), ["s", "b"], []),
    "other words for the same thing": (
        plan(BOUND), plan(replace(BOUND, reason="3 instances stay", subject="renamed")), ["b"], [],
    ),
    "an object that changed since": (
        plan(SPACE, BOUND), plan(SPACE, replace(BOUND, before="2")), ["s"], [("b", Status.STALE)],
    ),
    "an object that was made again": (
        plan(BOUND), plan(replace(BOUND, uid="v")), [], [("b", Status.STALE)],
    ),
    "something else would be written": (
        plan(BOUND), plan(replace(BOUND, after={"a": 2})), [], [("b", Status.STALE)],
    ),
    "all lines of a unit fall with one": (
        plan(FIRST, BOUND), plan(FIRST, replace(BOUND, before="2")), [],
        [("a", Status.STALE), ("b", Status.STALE)],
    ),
    "a line that was not approved makes its unit stale": (
        plan(BOUND), plan(FIRST, BOUND), [], [("b", Status.STALE)],
    ),
    "a unit that nobody approved is left alone": (plan(SPACE), plan(SPACE, BOUND), ["s"], []),
    "what is so already is done": (plan(BOUND), plan(), [], [("b", Status.UNCHANGED)]),
    "what is blocked by now is not so already": (
        plan(BOUND), plan(replace(BOUND, action=Action.BLOCKED)), [], [("b", Status.STALE)],
    ),
    "nor is anything of a cluster that is blocked": (
        plan(SPACE, BOUND), plan(replace(SPACE, action=Action.BLOCKED)), [],
        [("s", Status.STALE), ("b", Status.STALE)],
    ),
    "rights stay as they are where something stays that was to leave": (
        plan(RIGHT, LEAVES), plan(RIGHT, replace(LEAVES, uid="v")), [],
        [("b", Status.STALE), ("r", Status.SKIPPED)],
    ),
    "and change where nothing does": (
        plan(RIGHT, replace(BOUND, uid="v")), plan(RIGHT, BOUND), ["r"], [("b", Status.STALE)],
    ),
    "instances that were made since": (
        plan(replace(LEAVES, instances=1)), plan(replace(LEAVES, instances=40)), [],
        [("b", Status.STALE)],
    ),
    "more instances of what a guard holds anyway": (
        plan(replace(LEAVES, instances=1, held=("max-deletes",))),
        plan(replace(LEAVES, instances=40)), ["b"], [],
    ),
    "instances that nobody can count any more": (
        plan(replace(LEAVES, instances=1)), plan(LEAVES), [], [("b", Status.STALE)],
    ),
    "instances of which some are gone": (
        plan(replace(LEAVES, instances=2)), plan(replace(LEAVES, instances=1)), ["b"], [],
    ),
    "instances that were never counted": (
        plan(LEAVES), plan(replace(LEAVES, instances=1)), ["b"], [],
    ),
    "a cluster that cannot be read any more": (
        plan(BOUND), plan(unseen=[UnseenCluster("shop", "no route")]), [], [("b", Status.FAILED)],
    ),
    "what a guard holds is told so, although nobody looked again": (
        plan(replace(BOUND, held=("max-deletes",))), plan(), [], [("b", Status.HELD)],
    ),
    "a noop is nothing to approve": (plan(replace(BOUND, action=Action.NOOP)), plan(BOUND), [], []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("approved", "fresh", "done", "refused"), MATCHES.values(), ids=MATCHES.keys()
)
def test_only_what_was_approved_and_still_fits_is_done(approved, fresh, done, refused):
    found = match(approved, fresh)
    assert [one.ref.name for one in found.lines.get("shop", ())] == done
    assert [(one.change.ref.name, one.status) for one in found.refused] == refused


def test_a_saved_plan_matches_the_one_that_it_was_saved_from():
    from reconciler.planning import planfile

    made = planfile.identified(plan(SPACE, FIRST, BOUND))
    assert match(planfile.parse(planfile.dump(made), "saved"), made).refused == ()


def test_lines_that_a_guard_holds_are_no_reason_to_take_the_lock():
    held = replace(BOUND, held=("max-deletes",))
    assert clusters_to_change(plan(held)) == frozenset()
    assert clusters_to_change(plan(held, SPACE)) == {"shop"}


def test_what_a_guard_held_at_approval_stays_held_in_a_narrower_look():
    gone = replace(FIRST, action=Action.RELEASE)
    approved = plan(replace(gone, held=("max-deletes",)), BOUND)
    (release, update) = match(approved, plan(gone, BOUND)).lines["shop"]
    assert (release.held, update.held) == (("max-deletes",), ())
