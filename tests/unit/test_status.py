"""The exit code of `klutchctl status`."""

from datetime import UTC, datetime

import pytest

from klutchctl.commands.status import exit_code
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import UnseenCluster

KEY = UnitKey("shop", "shop.example", "databases")
UNREAD = UnseenCluster("shop", "it hung up")


def of(state, *, whole=None, leaving=False):
    return ClusterHealth("shop", "eu", (BoundUnit("db", UnitHealth(KEY, state), leaving),), whole)


READ, NOT_READ = of(State.READY), of(State.UNKNOWN, whole=State.UNKNOWN)
CASES = {
    # clusters, unread, code, --allow-unreachable
    "nothing at all": ((), (), 0, 0),
    "all Ready": ((READ,), (), 0, 0),
    "Progressing may still become Ready": ((of(State.PROGRESSING),), (), 0, 0),
    "Degraded": ((of(State.DEGRADED),), (), 9, 9),
    "a silent konnector": ((of(State.UNKNOWN),), (), 9, 9),
    "what left the files is not asked for": ((of(State.DEGRADED, leaving=True),), (), 0, 0),
    "held back, without any unit": (
        (ClusterHealth("shop", "eu", state=State.DEGRADED),),
        (),
        9,
        9,
    ),
    "suspended is meant": ((of(State.SUSPENDED, whole=State.SUSPENDED),), (), 0, 0),
    "released is meant": ((ClusterHealth("shop", "eu", state=State.RELEASED),), (), 0, 0),
    "one of two not read": ((READ, NOT_READ), (UNREAD,), 5, 0),
    "one Degraded, one not read": ((of(State.DEGRADED), NOT_READ), (UNREAD,), 5, 9),
    "none read": ((NOT_READ,), (UNREAD,), 1, 1),
    "none read but one suspended": (
        (NOT_READ, of(State.SUSPENDED, whole=State.SUSPENDED)),
        (UNREAD,),
        1,
        1,
    ),
    "a control plane that nothing is behind": ((), (UNREAD,), 1, 1),
}


@pytest.mark.parametrize(
    ("clusters", "unread", "code", "lenient"), CASES.values(), ids=CASES.keys()
)
def test_the_exit_code(clusters, unread, code, lenient):
    board = Board("acme", "", datetime(2026, 11, 21, tzinfo=UTC), clusters, unread)
    assert exit_code(board, allow_unreachable=False) == code
    assert exit_code(board, allow_unreachable=True) == lenient
