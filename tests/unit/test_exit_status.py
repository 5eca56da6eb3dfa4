"""The exit code of a plan and of an apply, and which code wins."""

import itertools
from dataclasses import replace

import pytest

from klutchctl.entry import PRECEDENCE, ExitCode, apply_code, exit_code, first
from reconciler.apply import NotReady, Outcome, Report, Status
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster

CHANGE = Change("shop", "db", Ref("shop", CONFIG_MAP, "ns", "a"), Action.CREATE, "")
HELD = Tripped("max-deletes", "too many")


def plan(*actions, held=(), unseen=0, clusters=4):
    return Plan(
        fleet="acme",
        revision="",
        digest="",
        changes=tuple(replace(CHANGE, action=action) for action in actions),
        sections={f"edge-{index}": "eu" for index in range(clusters)},
        held=tuple(held),
        unseen=tuple(UnseenCluster(f"edge-{index}", "timeout") for index in range(unseen)),
        clusters_total=clusters,
    )


CHANGING = plan(Action.NOOP, Action.CREATE)
CASES = {
    # plan, plain, --detailed-exitcode, --allow-unreachable, both
    "nothing at all": (plan(), 0, 0, 0, 0),
    "nothing to do": (plan(Action.NOOP), 0, 0, 0, 0),
    "a fleet without clusters": (plan(clusters=0), 0, 0, 0, 0),
    "changes": (CHANGING, 0, 2, 0, 2),
    "an adoption is a change": (plan(Action.ADOPT), 0, 2, 0, 2),
    "a blocked unit": (plan(Action.BLOCKED), 6, 6, 6, 6),
    "a guard": (plan(Action.DELETE, held=[HELD]), 6, 6, 6, 6),
    "a suspended cluster is meant": (plan(held=[Tripped("suspended", "")]), 0, 0, 0, 0),
    "only reported is meant": (plan(Action.RELEASE, held=[Tripped("report", "")]), 0, 2, 0, 2),
    "meant, and a guard": (plan(held=[Tripped("report", ""), HELD]), 6, 6, 6, 6),
    "a cluster unread, nothing to do": (plan(unseen=1), 5, 5, 0, 0),
    "a cluster unread, and changes": (plan(Action.CREATE, unseen=1), 5, 5, 0, 2),
    "an object that cannot be compared": (plan(Action.UNKNOWN), 5, 5, 0, 2),
    "every cluster unread": (plan(unseen=4), 1, 1, 1, 1),
    "every control plane unread, and there is nothing else": (
        replace(plan(unseen=1, clusters=1), sections={}), 1, 1, 1, 1,
    ),
    "all unread but one, and a cluster that left unread too": (
        replace(plan(unseen=4), sections={"edge-0": "eu", "shop": "eu"}), 5, 5, 0, 0,
    ),
    "a guard wins over what is unread": (plan(held=[HELD], unseen=1), 6, 6, 6, 6),
    "a guard wins over all unread": (plan(held=[HELD], unseen=4), 6, 6, 6, 6),
}  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "codes"), [(row[0], row[1:]) for row in CASES.values()], ids=CASES
)
def test_exit_code_of_a_plan(plan, codes):
    flags = [(False, False), (True, False), (False, True), (True, True)]
    found = [
        exit_code(plan, detailed=detailed, allow_unreachable=allowed) for detailed, allowed in flags
    ]
    assert found == list(codes)


DONE, FAILED = ("shop", Status.DONE), ("web", Status.FAILED)
WAITS = ("web", Status.HELD)
LEFT_OUT = replace(plan(clusters=2), unseen=(UnseenCluster("web", "no route"),))


def report(*statuses, of=None, **fields):
    sections = {"shop": "eu", "web": "eu"}
    outcomes = tuple(Outcome(replace(CHANGE, cluster=name), one) for name, one in statuses)
    return Report(replace(of or plan(), sections=sections), outcomes, **fields)


APPLIED = {
    # what an apply came to, with options, and the code
    "all done": (report(DONE), {}, 0),
    "nothing to do": (report(), {}, 0),
    "one cluster failed": (report(DONE, FAILED), {}, 5),
    "the only change failed, and other clusters had none": (report(FAILED), {}, 5),
    "all clusters failed": (report(("shop", Status.FAILED), FAILED), {}, 1),
    "a stale line wins over a failed one": (report(("shop", Status.STALE), FAILED), {}, 7),
    "a guard held": (report(DONE, WAITS), {}, 6),
    "a guard held, and a cluster failed": (report(DONE, WAITS, FAILED), {}, 6),
    "a unit is blocked": (report(DONE, of=plan(Action.BLOCKED)), {}, 6),
    "a peer did not answer": (report(DONE, ("web", Status.UNCONFIRMED)), {}, 9),
    "not Ready in time": (report(DONE, not_ready=(NotReady("shop/x", "Degraded"),)), {}, 9),
    "a cluster was not read": (report(DONE, of=LEFT_OUT), {}, 5),
    "a cluster was not read, and need not be": (
        report(DONE, of=LEFT_OUT), {"allow_unreachable": True}, 0,
    ),
    "a line that is only reported, which is meant": (
        Report(plan(), (Outcome(replace(CHANGE, held=("report",)), Status.HELD),)), {}, 0,
    ),
    "the lock was lost": (
        report(DONE, ("web", Status.INTERRUPTED), ended="lost", lock_lost=True), {}, 8,
    ),
    "ended by SIGTERM, with all that is so": (
        report(DONE, FAILED, ended="SIGTERM"), {"signalled": ExitCode.TERMINATED}, 143,
    ),
    "pruning is only reported, which is meant": (
        report(of=plan(held=[Tripped("report", "shown, not done")])), {}, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("found", "options", "code"), APPLIED.values(), ids=APPLIED.keys())
def test_exit_code_of_an_apply(found, options, code):
    given = {"allow_unreachable": False, "signalled": None} | options
    assert apply_code(found, **given) == code


def test_precedence_is_that_of_the_product():
    order = (143, 130, 64, 3, 4, 7, 8, 6, 1, 5, 9, 2, 0)
    assert tuple(map(int, PRECEDENCE)) == order
    assert set(PRECEDENCE) == set(ExitCode)


def test_the_first_of_two_wins_in_any_order():
    for winner, loser in itertools.combinations(PRECEDENCE, 2):
        assert first([winner, loser]) == first([loser, winner]) == winner


def test_without_any_code_all_is_well():
    assert first([]) == ExitCode.SUCCESS
