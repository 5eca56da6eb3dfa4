"""What the board finds in a state: counts, the worst, troubles, and what changed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from klutchctl.web.board import index
from klutchctl.web.board.index import CONTROL_PLANE, LEFT, changed, index_of, worst
from reconciler.health.board import ClusterHealth, PlaneHealth
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import FleetState, Waiting
from tests.support import boards
from tests.support.boards import NOW, plain, unit

R, P, D, U, S, L = (
    State.READY,
    State.PROGRESSING,
    State.DEGRADED,
    State.UNKNOWN,
    State.SUSPENDED,
    State.RELEASED,
)


def of(*units, whole=None, name="shop"):
    """Return the index of one cluster with units in these states, all of one Binding."""
    found = tuple(unit(name, "db", f"kinds{place}", state) for place, state in enumerate(units))
    cluster = ClusterHealth(name, "eu", found, whole)
    board = replace(plain().board, clusters=(cluster,), unread=())
    return index_of(1, FleetState(name="acme", board=board))


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ((), None),
        ((R,), R),
        ((R, L), R),
        ((L,), None),
        ((R, L, S), S),
        ((R, S, P), P),
        ((P, U, R), U),
        ((U, D, R), D),
    ],
)
def test_the_worst_of_states_wins(states, wanted):
    assert of(*states).rows["shop"].state is wanted
    assert of(*states).worst is wanted


@pytest.mark.parametrize("state", [R, P, D, U, S])
def test_nothing_above_looks_better_than_what_is_below(state):
    for other in (R, P, D, U, S):
        found = of(state, other)
        low = worst((state, other))
        assert {found.rows["shop"].cells["db"].state, found.rows["shop"].state, found.worst} == {
            low
        }
        cells = [of(one).rows["shop"].cells["db"] for one in (state, other)]
        assert index.joined(cells).state is low


def test_a_whole_cluster_counts_beside_its_units():
    assert of(R, whole=S).rows["shop"].state is S
    assert of(whole=L).rows["shop"].state is L


def test_a_cluster_that_left_says_nothing_of_its_fleet():
    rows = plain().board.clusters
    left, well = (
        replace(one, units=(), state=state) for one, state in zip(rows, (L, R), strict=False)
    )
    board = replace(plain().board, clusters=(left, well), unread=())
    assert index_of(1, FleetState(name="acme", board=board)).worst is R
    board = replace(board, clusters=(left,))
    assert index_of(1, FleetState(name="acme", board=board)).worst is None


def test_a_fleet_of_which_a_cluster_was_not_read_is_not_ready():
    state = plain(board=replace(plain().board, clusters=()))
    assert index_of(1, state).worst is U


def test_a_fleet_with_trouble_on_a_control_plane_is_not_ready():
    plane = PlaneHealth("eu", D, "BackendStopped", "it has stopped")
    state = plain(board=replace(plain().board, clusters=(), unread=(), planes=(plane,)))
    assert index_of(1, state).worst is D


def test_a_cell_counts_the_units_of_its_worst_state():
    cell = of(R, D, D).rows["shop"].cells["db"]
    assert (cell.state, cell.ill, cell.total) == (D, 2, 3)
    together = index.joined([cell, of(R, D).rows["shop"].cells["db"]])
    assert (together.state, together.ill, together.total) == (D, 3, 5)


def test_counts_bindings_and_labels_of_a_fleet():
    found = index_of(1, plain())
    assert found.counts == {R: 14, P: 1, D: 1, U: 3, S: 1, L: 0}
    assert found.bindings == ("messages", "orders-db", "search", "shop-credentials", LEFT)
    assert found.rows["shop-us-1"].labels == {CONTROL_PLANE: "us"}
    assert set(found.lines) == {"shop-eu-1", "shop-eu-3", "shop-us-1"}


def test_what_needs_people_comes_worst_and_longest_first_and_a_cluster_once():
    found = index_of(1, plain())
    assert [(one.cluster.name, one.state, bool(one.unit)) for one in found.troubles] == [
        ("shop-eu-1", D, True),
        ("shop-us-1", U, False),
    ]
    old = replace(
        unit("a", "x", "xs", D).health,
        since=NOW - timedelta(days=9),
        unit=unit("a", "x", "xs").health.unit,
    )
    clusters = tuple(
        ClusterHealth(name, "eu", (replace(unit(name, "x", "xs", D), health=health),))
        for name, health in (("b", unit("b", "x", "xs", D).health), ("a", old))
    )
    state = plain(board=replace(plain().board, clusters=clusters))
    assert [one.cluster.name for one in index_of(1, state).troubles] == ["a", "b"]


def test_troubles_are_counted_all_and_kept_in_part():
    found = index_of(1, boards.big(1000, ill=1))
    assert (found.troubled, len(found.troubles)) == (1000, 50)


def test_before_any_look_there_is_nothing():
    found = index_of(1, boards.empty())
    assert (found.rows, found.worst, found.troubled) == ({}, None, 0)


def test_rows_that_are_as_before_are_kept():
    before = index_of(1, plain())
    after = index_of(2, plain(), before)
    assert all(after.rows[name] is row for name, row in before.rows.items())
    other = replace(plain().board, clusters=boards.clusters()[1:])
    assert index_of(3, plain(board=other), before).rows.keys() == before.rows.keys() - {"shop-eu-1"}


def test_where_the_board_is_the_same_only_what_waits_is_found_anew():
    before = index_of(1, plain())
    after = index_of(2, replace(before.state, waiting=Waiting()), before)
    assert after.rows is before.rows
    assert (after.version, after.lines) == (2, {})


def test_what_changed_between_two_states():
    before, after = of(R, P, R), of(R, D)
    found = {key.resource: state for key, state in changed(before, after)}
    assert found == {"kinds1": D, "kinds2": None}
    assert changed(before, before) == []
    assert len(changed(index_of(1, boards.empty()), index_of(2, boards.big(200)))) == 50
