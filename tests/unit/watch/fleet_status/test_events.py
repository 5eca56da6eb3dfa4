"""Which Events two states of a fleet after each other are worth."""

from dataclasses import replace

import pytest

from reconciler.apply import Status
from reconciler.planning.changes import Action, Tripped
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch import fleet_state
from reconciler.watch.fleet_state import FleetState, SourceProblem, Storm
from reconciler.watch.fleet_status.writer import notes_of
from tests.support.fleet_states import NEXT, at, at_rest, begun, ended, fleet, record
from tests.support.reports import change, report

GUARD = Tripped("max-deletes", "9 would go", ("shop",))
HELD = ended(at_rest(), "held", of=report(Status.HELD, held=[GUARD]))
STORM = Storm(cluster="shop", object="Secret x", manager="flux", repairs=3, until=at(60))
SIGNED = Signature(VerificationMode.HEAD, "ssh", "ada@acme.example")


def refused(before, problem=SourceProblem.UNVERIFIED, why="it is not signed", commit=NEXT):
    return fleet_state.source_failed(before, problem, why, refused=commit, now=at(50))


def read(before, revision, signature=None):
    return fleet_state.source_read(before, fleet(revision), signature, now=at(50))


def applied(before, result="done", **more):
    return ended(before, result, time=60, **more)


NEXT_READ = read(at_rest(), NEXT)
STORMY = replace(at_rest(), storms=(STORM,))
A, B = "a" * 12, "b" * 12
CASES = {
    "the first commit": (FleetState(name=""), begun(), [("SourceChanged", f"revision {A}")]),
    "another commit": (
        at_rest(),
        read(at_rest(), NEXT, SIGNED),
        [("SourceChanged", f"revision {B}, after {A}, signed by ada@acme.example")],
    ),
    "the same commit": (
        at_rest(),
        fleet_state.source_read(at_rest(), fleet(), None, now=at(9)),
        [],
    ),
    "a commit that is refused": (
        at_rest(),
        refused(at_rest()),
        [("SourceRefused", f"revision {B}: it is not signed")],
    ),
    "a commit that is still refused": (refused(at_rest()), refused(at_rest(), why="again"), []),
    "another one that is refused": (
        refused(at_rest()),
        refused(at_rest(), commit="c" * 40),
        [("SourceRefused", "revision cccccccccccc: it is not signed")],
    ),
    "a repository that is away": (
        at_rest(),
        refused(at_rest(), SourceProblem.UNREADABLE, "no route", ""),
        [("SourceRefused", "no route")],
    ),
    "a repository that is back": (refused(at_rest()), at_rest(), []),
    "a commit that is in place": (
        NEXT_READ,
        applied(NEXT_READ, done=2, revision=NEXT),
        [("Applied", f"revision {B} is in place")],
    ),
    "a commit that changes nothing": (
        NEXT_READ,
        applied(NEXT_READ, "nothing", revision=NEXT),
        [("Applied", f"revision {B} is in place")],
    ),
    "a repair": (
        at_rest(),
        applied(at_rest(), done=1),
        [("Applied", f"revision {A}: 1 done again, as they had changed")],
    ),
    "a round that found nothing to do": (at_rest(), applied(at_rest(), "nothing"), []),
    "lines that failed": (
        at_rest(),
        applied(at_rest(), "partial", done=1, failed=2, of=report(Status.FAILED)),
        [("ApplyFailed", f"revision {A}, partial, 1 done, 2 failed")],
    ),
    "a round that failed": (
        at_rest(),
        fleet_state.round_failed(at_rest(), record("failed", why="no route")),
        [("ApplyFailed", f"revision {A}, failed, 0 done, 0 failed: no route")],
    ),
    "a round while another run holds the lock": (
        at_rest(),
        fleet_state.round_failed(at_rest(), record("locked", why="held")),
        [],
    ),
    "a guard that tripped": (at_rest(), HELD, [("GuardTripped", "max-deletes: 9 would go")]),
    "a guard that still holds": (HELD, ended(HELD, "held", of=report(held=[GUARD])), []),
    "a guard that holds no more": (HELD, applied(HELD, "nothing"), []),
    "a line that is blocked": (
        at_rest(),
        ended(at_rest(), "nothing", of=report(changes=[change(action=Action.BLOCKED)])),
        [("GuardTripped", "blocked: shop, space:")],
    ),
    "a storm": (
        at_rest(),
        STORMY,
        [
            (
                "DriftStorm",
                "shop: Secret x was repaired 3 times and changed back by flux; "
                "it rests until 2026-11-26T12:01:00Z",
            )
        ],
    ),
    "a storm that goes on": (STORMY, STORMY, []),
    "a storm that came back": (
        STORMY,
        replace(STORMY, storms=(replace(STORM, until=at(120), manager=""),)),
        [
            (
                "DriftStorm",
                "shop: Secret x was repaired 3 times and changed back by another manager; "
                "it rests until 2026-11-26T12:02:00Z",
            )
        ],
    ),
}
WARNINGS = {"SourceRefused", "ApplyFailed", "GuardTripped", "DriftStorm"}


@pytest.mark.parametrize(("before", "after", "notes"), CASES.values(), ids=CASES)
def test_events_of(before, after, notes):
    found = notes_of(before, after)
    assert [(note.reason, note.message) for note in found] == notes
    assert all((note.type == "Warning") is (note.reason in WARNINGS) for note in found)


def test_a_failure_that_lasts_is_one_event():
    failed = fleet_state.round_failed(at_rest(), record("failed", why="no route"))
    again = fleet_state.round_failed(failed, record("failed", why="no route to host"))
    assert notes_of(failed, again) == ()


def test_many_guards_are_few_events_and_none_is_too_long():
    held = [Tripped("block", "x" * 5_000, (str(number),)) for number in range(30)]
    found = notes_of(at_rest(), ended(at_rest(), "nothing", of=report(held=held)))
    assert len(found) == 11
    assert found[-1].message == "and 20 more"
    assert max(len(note.message) for note in found) <= 900
