"""What the board finds in a state, and what those who ask may cost the process (S21)."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from threading import Event, get_ident

import pytest

from klutchctl.web.board import index
from klutchctl.web.board.index import CONTROL_PLANE, LEFT, changes, index_of
from klutchctl.web.board.newest import Made
from reconciler.health.board import ClusterHealth, PlaneHealth, worst
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import FleetState, Waiting
from reconciler.web.requests import RequestRefused
from tests.support import boards
from tests.support.boards import NOW, plain, unit
from tests.support.eventually import eventually

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
    board = replace(plain().board, clusters=(ClusterHealth(name, "eu", found, whole),), unread=())
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
    assert index_of(1, plain(board=replace(plain().board, clusters=()))).worst is U


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
    found = {key.resource: now and now.health.state for key, _, now in changes(before, after)}
    assert found == {"kinds1": D, "kinds2": None}
    assert changes(before, before) == []
    assert len(changes(index_of(1, boards.empty()), index_of(2, boards.big(200)))) == 50


@pytest.fixture
def made():
    return Made(time.monotonic, 60.0)


async def test_one_page_is_made_at_a_time_and_those_of_an_address_wait_for_its_turn(made):
    began, end = [], Event()

    def page(name):
        def make():
            began.append(name)
            assert end.wait(30)
            return name.encode()

        return make

    def ask(address, name):
        return asyncio.create_task(made.get(1, name, page(name), address))

    asked = [ask("10.0.0.1", f"a{n}") for n in range(50)]

    async def first():
        return began

    await eventually(first)
    asked.append(ask("10.0.0.2", "b"))
    await asyncio.sleep(0)
    assert began == ["a0"]
    end.set()
    await asyncio.gather(*asked)
    assert began.index("b") == 2  # after a0, and a1 which waited alone


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
async def test_an_address_that_waits_for_many_gets_no_more_and_others_do(made, others):
    end = Event()
    asked = [
        asyncio.create_task(made.get(1, n, lambda: b"x" * end.wait(30), "10.0.0.1"))
        for n in range(64)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(RequestRefused, match="reload it later"):
        await made.get(1, "more", bytes, "10.0.0.1")
    asked += [asyncio.create_task(made.get(1, "b", bytes, "10.0.0.2"))] * others
    end.set()
    await asyncio.gather(*asked)
    assert await made.get(1, "more", lambda: b"y", "10.0.0.1") == b"y"


async def test_pages_take_half_of_the_time_and_none_of_the_loop(made):
    spans = []

    def make():
        began = time.monotonic()
        time.sleep(0.02)
        spans.append((began, time.monotonic(), get_ident()))
        return b""

    await asyncio.gather(*(made.get(1, n, make) for n in range(5)))
    assert get_ident() not in {thread for _, _, thread in spans}
    for (began, ended, _), (following, _, _) in pairwise(spans):
        assert following - ended >= 0.95 * (ended - began)
