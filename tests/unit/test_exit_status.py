"""The exit code of a plan, and which code wins."""

import itertools
from dataclasses import replace

import pytest

from klutchctl.exit_codes import ExitCode
from klutchctl.exit_status import PRECEDENCE, exit_code, first
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.planning.changes import Action, Change, Held, Plan, UnseenCluster

HELD = Held("max-deletes", "too many")


def plan(*actions, held=(), unseen=0, clusters=4):
    return Plan(
        fleet="acme",
        revision="",
        digest="",
        changes=tuple(
            Change("shop", "db", Ref("shop", CONFIG_MAP, "ns", "a"), action, "")
            for action in actions
        ),
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
    "a suspended cluster is meant": (plan(held=[Held("suspended", "")]), 0, 0, 0, 0),
    "only reported is meant": (plan(Action.RELEASE, held=[Held("report", "")]), 0, 2, 0, 2),
    "meant, and a guard": (plan(held=[Held("report", ""), HELD]), 6, 6, 6, 6),
    "a cluster unread, nothing to do": (plan(unseen=1), 5, 5, 0, 0),
    "a cluster unread, and changes": (plan(Action.CREATE, unseen=1), 5, 5, 0, 2),
    "an object that cannot be compared": (plan(Action.UNKNOWN), 5, 5, 0, 2),
    "every cluster unread": (plan(unseen=4), 1, 1, 1, 1),
    "every control plane unread, and there is nothing else": (
        replace(plan(unseen=1, clusters=1), sections={}),
        1,
        1,
        1,
        1,
    ),
    "all unread but one, and a cluster that left unread too": (
        replace(plan(unseen=4), sections={"edge-0": "eu", "shop": "eu"}),
        5,
        5,
        0,
        0,
    ),
    "a guard wins over what is unread": (plan(held=[HELD], unseen=1), 6, 6, 6, 6),
    "a guard wins over all unread": (plan(held=[HELD], unseen=4), 6, 6, 6, 6),
}


@pytest.mark.parametrize(
    ("plan", "codes"), [(row[0], row[1:]) for row in CASES.values()], ids=CASES
)
def test_exit_code_of_a_plan(plan, codes):
    flags = [(False, False), (True, False), (False, True), (True, True)]
    found = [
        exit_code(plan, detailed=detailed, allow_unreachable=allowed) for detailed, allowed in flags
    ]
    assert found == list(codes)


def test_precedence_is_that_of_the_product():
    order = (143, 130, 64, 3, 4, 7, 8, 6, 1, 5, 9, 2, 0)
    assert tuple(map(int, PRECEDENCE)) == order
    assert set(PRECEDENCE) == set(ExitCode)


def test_the_first_of_two_wins_in_any_order():
    for winner, loser in itertools.combinations(PRECEDENCE, 2):
        assert first([winner, loser]) == first([loser, winner]) == winner


def test_without_any_code_all_is_well():
    assert first([]) == ExitCode.SUCCESS
