"""What is reported of a fleet, and that it is once for each state change."""

from dataclasses import replace

import pytest

from reconciler.apply import Status
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.watch import fleet_state
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, SourceProblem
from reconciler.watch.notify.messages import Phase, Reason, messages
from tests.support.fleet_states import COMMIT, NEXT, at, at_rest, begun, ended, fleet, record
from tests.support.reports import change, report

HELD = Tripped("max-deletes", "12 deletes are more than 10", ("shop",))


def refused(state, problem, why="", refused=""):
    return fleet_state.source_failed(state, problem, why, refused=refused, now=at(50))


def read(state, revision):
    return fleet_state.source_read(state, fleet(revision), None, now=at(60))


def round_failed(state, result="failed"):
    return fleet_state.round_failed(state, record(result, why="no\nlock\t\x00here"))


def kept(of):
    """Return the state after a round that came to this report."""
    return ended(begun(), "held", of=of)


FAILED = report(Status.DONE, Status.FAILED, Status.FAILED)
REPORTED = {
    "the first files": (FleetState(name="acme"), begun(), [(COMMIT, "Open")]),
    "everything is in place": (begun(), at_rest(), [(COMMIT, "InPlace")]),
    "a new commit": (at_rest(), read(at_rest(), NEXT), [(NEXT, "Open")]),
    "a guard": (begun(), kept(report(Status.HELD, held=[HELD])), [(COMMIT, "Held")]),
    "a guard, later": (at_rest(), ended(at_rest(), of=report(held=[HELD])), [(COMMIT, "Held")]),
    "lines that failed": (begun(), kept(FAILED), [(COMMIT, "Failed")]),
    "lines that failed, and a guard": (
        begun(),
        kept(replace(FAILED, plan=replace(FAILED.plan, held=(HELD,)))),
        [(COMMIT, "Failed")],
    ),
    "a line that is blocked": (
        begun(),
        kept(report(changes=[change(action=Action.BLOCKED)])),
        [(COMMIT, "Blocked")],
    ),
    "a guard that lets go": (kept(report(held=[HELD])), at_rest(), [(COMMIT, "InPlace")]),
    "a round that failed": (begun(), round_failed(begun()), [(COMMIT, "Failed")]),
    "a new commit after such a round": (
        round_failed(begun()),
        read(round_failed(begun()), NEXT),
        [(NEXT, "Open")],
    ),
    "suspended": (begun(), replace(begun(), suspended="a freeze"), [(COMMIT, "Suspended")]),
    "a commit that is not verified": (
        at_rest(),
        refused(at_rest(), SourceProblem.UNVERIFIED, "no signature", NEXT),
        [(NEXT, "SourceUnverified")],
    ),
    "files that are not read": (
        at_rest(),
        refused(at_rest(), SourceProblem.UNREADABLE),
        [("", "SourceUnreadable")],
    ),
    "files that are read again": (
        refused(at_rest(), SourceProblem.UNREADABLE),
        at_rest(),
        [("", "SourceReadable")],
    ),
    "a refused commit is mended by another": (
        refused(at_rest(), SourceProblem.INVALID, "", NEXT),
        read(at_rest(), "c" * 40),
        [("c" * 40, "Open")],
    ),
    "another trouble of one commit": (
        refused(at_rest(), SourceProblem.INVALID, "", NEXT),
        refused(at_rest(), SourceProblem.UNVERIFIED, "", NEXT),
        [(NEXT, "SourceUnverified")],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), REPORTED.values(), ids=REPORTED.keys())
def test_a_state_change_is_reported_once(before, after, expected):
    assert [(one.commit, one.reason) for one in messages(before, after)] == expected
    assert messages(after, after) == ()


SILENT = {
    "nothing yet": (FleetState(name=""), FleetState(name="acme")),
    "a round begins": (begun(), fleet_state.round_began(begun(), Task(Trigger.SOURCE, None))),
    "the files are read again": (begun(), read(begun(), COMMIT)),
    "drift is repaired": (at_rest(), ended(at_rest(), "done", done=3)),
    "more of a guard": (kept(report(held=[HELD])), kept(report(held=[HELD, HELD]))),
    "a cluster is away": (
        begun(),
        kept(report(Status.STALE, Status.UNCONFIRMED, unseen=[UnseenCluster("shop", "away")])),
    ),
    "another run has the lock": (begun(), round_failed(begun(), "locked")),
    "a round fails once all is in place": (at_rest(), round_failed(at_rest())),
    "the refused commit is given up": (
        refused(at_rest(), SourceProblem.UNVERIFIED, "", NEXT),
        at_rest(),
    ),
    "the same trouble with other words": (
        refused(at_rest(), SourceProblem.UNREADABLE, "one"),
        refused(at_rest(), SourceProblem.UNREADABLE, "two"),
    ),
}


@pytest.mark.parametrize(("before", "after"), SILENT.values(), ids=SILENT.keys())
def test_nothing_else_is_reported(before, after):
    assert messages(before, after) == ()


@pytest.mark.parametrize("problem", [one for one in SourceProblem if one])
def test_every_trouble_of_a_source_is_a_failure(problem):
    [message] = messages(at_rest(), refused(at_rest(), problem, "why", NEXT))
    assert (message.phase, message.detail) == (Phase.FAILURE, "why")


def test_every_reason_has_words():
    [message] = messages(begun(), at_rest())
    for reason in Reason:
        assert replace(message, reason=reason).title
    phases = [replace(message, reason=reason).phase for reason in Reason]
    assert phases == [Phase.PENDING] * 2 + [Phase.SUCCESS] * 2 + [Phase.FAILURE] * 6


def test_words():
    [failed] = messages(begun(), kept(FAILED))
    assert failed.detail == "2 lines failed. shop, space:"
    [held] = messages(begun(), kept(report(held=[HELD])))
    assert held.detail == "12 deletes are more than 10"
    [locked] = messages(begun(), round_failed(begun()))
    assert locked.detail == "no lock here"
    long = refused(begun(), SourceProblem.INVALID, "x" * 5000, NEXT)
    assert len(messages(begun(), long)[0].detail) == 1000


def test_fleets_and_their_shards_do_not_overwrite_each_other():
    [message] = messages(FleetState(name="acme"), begun())
    assert message.context == "klutchctl/acme"
    [message] = messages(FleetState(name="acme"), replace(begun(), shard=("us", "eu")))
    assert message.context == "klutchctl/acme/eu,us"
