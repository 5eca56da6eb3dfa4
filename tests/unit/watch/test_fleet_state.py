"""How each thing that happens changes what is known of a fleet."""

from dataclasses import replace

import pytest

from reconciler.apply import Status
from reconciler.fleet import load
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch import fleet_state
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import REMEMBERED, FleetState, SourceProblem
from tests.support.fleet_states import (
    COMMIT,
    NEXT,
    at,
    at_rest,
    begun,
    board,
    board_of,
    cluster,
    ended,
    fleet,
    record,
    stopped,
)
from tests.support.reports import change, report

SIGNED = Signature(VerificationMode.HEAD, "ssh", "ada@acme.example")
SHOP, CAFE = frozenset({"shop"}), frozenset({"cafe"})
READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN


def read(state, revision, *, seconds=0, **more):
    return fleet_state.source_read(state, fleet(revision, **more), None, now=at(seconds))


def failed(state, problem, *, seconds, why="", refused=""):
    return fleet_state.source_failed(state, problem, why, refused=refused, now=at(seconds))


# The source


def test_files_that_can_be_used_end_every_problem():
    state = failed(at_rest(), SourceProblem.UNVERIFIED, seconds=20, why="no", refused=NEXT)
    state = fleet_state.source_read(state, fleet(), SIGNED, now=at(30))
    source = state.source
    assert (source.problem, source.why, source.refused, source.since) == ("", "", "", None)
    assert (source.revision, source.signature, source.read_at) == (COMMIT, SIGNED, at(30))


def test_a_new_commit_is_not_in_place():
    state = read(at_rest(), NEXT, seconds=20)
    assert (state.source.revision, state.source.changed_at) == (NEXT, at(20))
    assert state.applied_at is None


def test_the_same_commit_changes_nothing_but_when_it_was_read():
    before = at_rest()
    state = read(before, COMMIT, seconds=20)
    source = replace(before.source, read_at=at(20))
    assert state == replace(before, source=source, fleet=state.fleet)


def test_a_commit_that_says_the_same_is_in_place_at_once():
    state = read(at_rest(), NEXT, seconds=20, digest="files of a")
    assert (state.source.changed_at, state.applied_at) == (at(20), at(20))


def test_a_commit_that_says_the_same_as_what_is_not_in_place_is_not_either():
    assert read(begun(), NEXT, seconds=20, digest="files of a").applied_at is None


def test_files_without_a_commit_change_by_their_content():
    state = ended(read(FleetState(name=""), "", digest="one"), "done", time=1, revision="")
    assert (state.name, state.applied_at) == ("acme", at(1))
    state = read(state, "", seconds=9, digest="two")
    assert (state.source.changed_at, state.applied_at) == (at(9), None)


def test_a_refused_commit_leaves_the_one_in_use():
    state = failed(at_rest(), SourceProblem.UNVERIFIED, seconds=20, why="not signed", refused=NEXT)
    assert (state.source.revision, state.source.refused) == (COMMIT, NEXT)
    assert (state.source.why, state.applied_at) == ("not signed", at(10))


def test_a_problem_lasts_since_it_began_and_another_one_begins_anew():
    state = failed(begun(), SourceProblem.UNREADABLE, seconds=1)
    state = failed(state, SourceProblem.UNREADABLE, seconds=2, why="another sentence")
    assert (state.source.since, state.source.why) == (at(1), "another sentence")
    assert failed(state, SourceProblem.INVALID, seconds=3).source.since == at(3)


# What is in place

NOT_IN_PLACE = {
    "a line waits for a guard": ("held", {"of": report(changes=[change(action=Action.BLOCKED)])}),
    "a cluster was not read": ("nothing", {"of": report(unseen=[UnseenCluster("cafe", "")])}),
    "a guard tripped": ("nothing", {"of": report(held=[Tripped("block", "", ("cafe",))])}),
    "the round was held back": ("held", {}),
    "lines failed": ("partial", {"of": report(Status.FAILED)}),
}


@pytest.mark.parametrize(("result", "more"), NOT_IN_PLACE.values(), ids=NOT_IN_PLACE)
def test_a_commit_is_not_in_place_while(result, more):
    assert ended(begun(), result, time=5, **more).applied_at is None


def test_a_commit_is_in_place_since_the_first_round_that_left_nothing():
    state = ended(begun(), "done", time=5, of=report(Status.DONE, Status.UNCHANGED))
    assert ended(state, "nothing", time=9).applied_at == at(5)


def test_a_round_of_a_suspended_fleet_puts_nothing_in_place():
    held = ended(begun(), "held", of=report(held=[Tripped("block", "", ("cafe",))]))
    state = fleet_state.source_read(held, load.suspended(fleet(NEXT), "a move"), None, now=at(1))
    state = ended(state, "nothing", time=2)
    assert (state.suspended, state.applied_at) == ("a move", None)
    state = read(state, NEXT, seconds=3)
    assert (state.suspended, state.applied_at) == ("", None)
    assert ended(state, "nothing", time=4).applied_at == at(4)


def test_after_a_suspension_nobody_knows_whether_all_is_in_place():
    state = fleet_state.source_read(at_rest(), load.suspended(fleet(), "a move"), None, now=at(20))
    assert read(ended(state, time=21), COMMIT, seconds=30).applied_at is None


def test_a_narrow_round_puts_nothing_in_place_while_another_cluster_is_unread():
    state = ended(begun(), "partial", time=1, of=report(unseen=[UnseenCluster("cafe", "away")]))
    state = ended(state, "done", time=2, scope=SHOP, of=report(Status.DONE))
    assert state.applied_at is None
    assert ended(state, "done", time=3, scope=CAFE).applied_at == at(3)


def test_a_round_that_ends_runs_no_more_however_it_ended():
    running = fleet_state.round_began(begun(), Task(Trigger.SOURCE, None))
    assert running.running == Task(Trigger.SOURCE, None)
    assert ended(running).running is None
    assert fleet_state.round_failed(running, record("failed")).running is None


# What waits


def lines(state):
    found = state.waiting.lines
    return [(line.cluster, outcome and str(outcome.status)) for line, outcome in found]


def test_lines_wait_that_are_not_in_place():
    of = report(Status.DONE, Status.FAILED, Status.HELD, changes=[change(action=Action.BLOCKED)])
    of = replace(of, plan=replace(of.plan, changes=(*of.plan.changes, change(action=Action.NOOP))))
    assert lines(ended(begun(), of=of)) == [("shop", "failed"), ("shop", "held"), ("shop", None)]


def test_a_narrow_round_speaks_for_its_clusters_alone():
    state = ended(begun(), of=report(("shop", Status.FAILED), ("cafe", Status.FAILED)))
    state = ended(state, scope=SHOP, of=report(("shop", Status.HELD)))
    assert lines(state) == [("cafe", "failed"), ("shop", "held")]
    assert lines(ended(state, scope=SHOP)) == [("cafe", "failed")]
    assert lines(ended(state)) == []


def held(state):
    return [(one.guard, one.message, one.clusters) for one in state.waiting.held]


def test_a_guard_of_a_narrow_round_stands_beside_those_of_others():
    both = [Tripped("block", "", ("cafe",)), Tripped("in-use", "3", ())]
    state = ended(begun(), of=report(held=both))
    state = ended(state, scope=SHOP, of=report(held=[Tripped("in-use", "2", ())]))
    assert held(state) == [("block", "", ("cafe",)), ("in-use", "2", ())]
    assert held(ended(state, scope=CAFE)) == [("in-use", "2", ())]
    assert held(ended(state)) == []


def unseen(state):
    return [one.name for one in state.waiting.unseen]


def test_a_narrow_round_reads_its_clusters_and_their_control_planes():
    names = ("cafe", "control-plane/eu", "control-plane/us", "shop")
    state = ended(begun(), of=report(unseen=[UnseenCluster(name, "") for name in names]))
    assert unseen(ended(state, scope=SHOP)) == ["cafe", "control-plane/us"]


# The board


def shown(state):
    return {
        one.name: [str(unit.health.state) for unit in one.units] for one in state.board.clusters
    }


def test_a_narrow_look_changes_its_clusters_alone():
    later = board(cluster("shop", DEGRADED), time=20)
    state = ended(at_rest(), scope=SHOP, board=later)
    assert shown(state) == {"cafe": ["Ready"], "shop": ["Degraded"]}
    assert shown(fleet_state.board_seen(state, later, CAFE)) == {"shop": ["Degraded"]}


def test_a_cluster_that_left_the_fleet_leaves_the_board():
    assert shown(ended(at_rest(), scope=SHOP, board=board(time=20))) == {"cafe": ["Ready"]}
    assert shown(ended(at_rest(), board=board(cluster("shop", READY)))) == {"shop": ["Ready"]}


def test_a_round_without_a_look_leaves_the_board():
    assert ended(at_rest()).board == at_rest().board


def test_what_cannot_be_read_shows_how_it_was_and_when():
    away = board(cluster("shop", UNKNOWN), time=40, unread=[("shop", "away")])
    state = ended(at_rest(), scope=SHOP, board=away)
    state = ended(state, scope=SHOP, board=replace(away, time=at(50)))
    (unit,) = board_of(state).clusters[1].units
    assert (unit.health.last_known, unit.health.since) == (READY, at(10))


def test_a_narrow_look_does_not_date_what_it_did_not_look_at():
    late = ended(at_rest(), scope=SHOP, board=board(cluster("shop", READY), time=200))
    assert (board_of(late).time, late.looked_at) == (at(200), at(10))
    away = board(cluster("cafe", UNKNOWN), cluster("shop", READY), time=300)
    (unit,) = board_of(ended(late, board=away)).clusters[0].units
    assert unit.health.since == at(10)


def test_a_narrow_look_leaves_other_clusters_untouched():
    before = at_rest()
    after = ended(before, scope=SHOP, board=board(cluster("shop", DEGRADED), time=20))
    assert board_of(after).clusters[0] is board_of(before).clusters[0]


def test_a_narrow_look_speaks_for_its_control_planes_alone():
    state = ended(at_rest(), board=stopped("eu", "us"))
    state = ended(state, scope=SHOP, board=board(cluster("shop", READY)))
    assert [one.name for one in board_of(state).planes] == ["us"]


def test_unread_control_planes_are_read_with_their_clusters():
    away = [("cafe", ""), ("control-plane/eu", ""), ("control-plane/us", ""), ("shop", "")]
    state = ended(at_rest(), board=board(unread=away))
    state = ended(state, scope=SHOP, board=board(cluster("shop", READY)))
    assert [one.name for one in board_of(state).unread] == ["cafe", "control-plane/us"]


# The history


def results(*rounds):
    state = begun()
    for number, (result, more) in enumerate(rounds):
        state = fleet_state.round_failed(state, record(result, time=number, **more))
    return [(one.result, one.ended_at) for one in state.history]


HISTORIES = {
    "idle rounds": ([("done", {"done": 2}), ("nothing", {}), ("nothing", {})], [("done", 0)]),
    "nothing at all, ever": ([("nothing", {}), ("nothing", {})], [("nothing", 0)]),
    "an idle round of another commit": (
        [("done", {"done": 2}), ("nothing", {"revision": NEXT})],
        [("nothing", 1), ("done", 0)],
    ),
    "the end of a failure": (
        [("nothing", {}), ("failed", {}), ("nothing", {}), ("nothing", {})],
        [("nothing", 2), ("failed", 1), ("nothing", 0)],
    ),
    "a lock that lasts, its age another each time": (
        [("locked", {"why": "for 2 s"}), ("locked", {"why": "for 4 s"})],
        [("locked", 0)],
    ),
    "a guard that lasts": ([("held", {}), ("held", {})], [("held", 0)]),
    "more that fails": (
        [("partial", {"failed": 1}), ("partial", {"failed": 2})],
        [("partial", 1), ("partial", 0)],
    ),
    "each repair": ([("done", {"done": 1}), ("done", {"done": 1})], [("done", 1), ("done", 0)]),
    "a failure after some was done": (
        [("partial", {"done": 1, "failed": 1}), ("partial", {"failed": 1})],
        [("partial", 1), ("partial", 0)],
    ),
}


@pytest.mark.parametrize(("rounds", "kept"), HISTORIES.values(), ids=HISTORIES)
def test_history_of(rounds, kept):
    assert results(*rounds) == [(result, at(number)) for result, number in kept]


def test_the_history_has_the_newest_rounds_and_of_equal_ones_the_newest_sentence():
    state = begun()
    for number in range(REMEMBERED + 3):
        state = fleet_state.round_failed(state, record("done", time=number, done=1))
    assert [one.ended_at for one in state.history] == [at(12 - n) for n in range(REMEMBERED)]
    for why in ("one", "two"):
        state = fleet_state.round_failed(state, record("failed", why=why))
    assert (state.history[0].why, state.history[1].result) == ("two", "done")
