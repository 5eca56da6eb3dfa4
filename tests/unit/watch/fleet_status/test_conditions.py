"""How a FleetStatus reads, to people and to kstatus, as sentences about the state of a fleet."""

from dataclasses import replace

import pytest

from reconciler.apply import Outcome, Status
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.source.following import Looked
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch import fleet_state
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, SourceProblem, looked_at
from reconciler.watch.fleet_status.conditions import conditions_of
from tests.support.fleet_states import (
    NEXT,
    at,
    at_rest,
    begun,
    board,
    cluster,
    ended,
    kstatus,
    record,
    stopped,
)
from tests.support.reports import change, report

READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN
GUARD = Tripped("max-deletes", "9 units would be released, and 5 may be", ("shop",))


def conditions(state, before=(), *, generation=1, seconds=100):
    return conditions_of(state, before, generation=generation, now=at(seconds))


def condition(state, kind):
    return next(one for one in conditions(state) if one["type"] == kind)


def failing(problem, why="why"):
    return fleet_state.source_failed(at_rest(), problem, why, refused=NEXT, now=at(20))


def with_units(*states):
    return ended(at_rest(), board=board(cluster("shop", *states)))


def held_and(*statuses):
    return ended(at_rest(), "held", of=report(*statuses, held=[GUARD]))


def failed_line():
    return ended(at_rest(), "partial", failed=1, of=report(Status.FAILED))


UNREAD = ended(at_rest(), "partial", of=report(unseen=[UnseenCluster("cafe", "no route")]))
RUNNING = fleet_state.round_began(at_rest(), Task(Trigger.DRIFT, None))
LEAVING = replace(cluster("shop", DEGRADED).units[0], leaving=True)
STATES = {
    "all is as the files say": (at_rest(), "Current", "True", "Applied"),
    "a look goes on that may find nothing to do": (RUNNING, "Current", "True", "Applied"),
    "another run holds the lock": (
        fleet_state.round_failed(at_rest(), record("locked", why="held")),
        "Current",
        "True",
        "Applied",
    ),
    "units are Suspended and Released": (
        with_units(READY, State.SUSPENDED, State.RELEASED),
        "Current",
        "True",
        "Applied",
    ),
    "a unit that leaves is Degraded": (
        ended(at_rest(), board=board(replace(cluster("shop", READY), units=(LEAVING,)))),
        "Current",
        "True",
        "Applied",
    ),
    "the process has just begun": (FleetState(name=""), "InProgress", "Unknown", "NotRead"),
    "the first round is not over": (begun(), "InProgress", "Unknown", "Progressing"),
    "lines are left that did not get their turn": (
        ended(at_rest(), of=report(changes=[change()])),
        "InProgress",
        "Unknown",
        "Progressing",
    ),
    "nobody has looked at units": (ended(begun(), "done"), "InProgress", "Unknown", "UnitsUnknown"),
    "units are on their way": (
        with_units(READY, State.PROGRESSING),
        "InProgress",
        "Unknown",
        "UnitsProgressing",
    ),
    "a unit is Degraded": (
        with_units(READY, State.PROGRESSING, DEGRADED, UNKNOWN),
        "InProgress",
        "False",
        "UnitsDegraded",
    ),
    "a unit is Unknown": (with_units(UNKNOWN), "InProgress", "False", "UnitsUnknown"),
    "the repository is away": (
        failing(SourceProblem.UNREADABLE),
        "InProgress",
        "False",
        "SourceUnreadable",
    ),
    "the files are no fleet": (failing(SourceProblem.INVALID), "Failed", "False", "SourceInvalid"),
    "a commit is not signed": (
        failing(SourceProblem.UNVERIFIED),
        "Failed",
        "False",
        "SourceUnverified",
    ),
    "the fleet is suspended": (
        replace(at_rest(), suspended="a move"),
        "InProgress",
        "False",
        "Suspended",
    ),
    "a guard tripped": (held_and(Status.HELD), "Failed", "False", "GuardHeld"),
    "a guard tripped, and a line failed": (
        held_and(Status.HELD, Status.FAILED),
        "Failed",
        "False",
        "GuardHeld",
    ),
    "a line is blocked": (
        ended(at_rest(), of=report(changes=[change(action=Action.BLOCKED)])),
        "Failed",
        "False",
        "GuardHeld",
    ),
    "a line failed": (failed_line(), "InProgress", "False", "ApplyFailed"),
    "a line waits for another": (
        ended(at_rest(), of=report(Status.SKIPPED)),
        "InProgress",
        "Unknown",
        "Progressing",
    ),
    "the backend of a control plane has stopped": (
        ended(at_rest(), board=stopped("eu")),
        "InProgress",
        "False",
        "BackendStopped",
    ),
    "a cluster was not read": (UNREAD, "InProgress", "False", "ClusterUnread"),
    "a round failed": (
        fleet_state.round_failed(at_rest(), record("failed", why="no route")),
        "InProgress",
        "False",
        "RoundFailed",
    ),
}


@pytest.mark.parametrize(("state", "shown", "ready", "reason"), STATES.values(), ids=STATES)
def test_how_it_reads_where(state, shown, ready, reason):
    found = conditions(state)
    live = {"metadata": {"generation": 1}, "status": {"conditions": found, "observedGeneration": 1}}
    assert kstatus(live) == shown
    assert (found[0]["type"], found[0]["status"], found[0]["reason"]) == ("Ready", ready, reason)


@pytest.mark.parametrize("state", [one[0] for one in STATES.values()], ids=STATES)
def test_every_condition_is_one_of_kubernetes(state):
    found = conditions(state, generation=7)
    types = ["Ready", "Reconciling", "Stalled", "SourceVerified"]
    assert [one["type"] for one in found] == types
    for one in found:
        assert one["reason"].isalpha()
        assert one["observedGeneration"] == 7
        assert one.keys() >= {"status", "lastTransitionTime", "message"}
    assert [one["status"] for one in found[1:3]] != ["True", "True"]


MESSAGES = {
    "at rest": (at_rest(), UNITS := "revision aaaaaaaaaaaa: 2 of 2 units are Ready"),
    "not followed": (looked_at(at_rest(), Looked(note="x")), f"{UNITS}; later commits wait: x"),
    "of one unit": (with_units(READY), "revision aaaaaaaaaaaa: 1 of 1 unit is Ready"),
    "progressing": (begun(), "revision aaaaaaaaaaaa is not in place yet"),
    "degraded": (with_units(READY, DEGRADED), "1 of 2 units is Degraded (shop: Broken)"),
    "refused": (failing(SourceProblem.UNVERIFIED, "it is not signed"), "it is not signed"),
    "suspended": (replace(at_rest(), suspended="a move"), "nothing is written: a move"),
    "held": (held_and(), "max-deletes: 9 units would be released, and 5 may be"),
    "failed": (failed_line(), "lines of the plan failed: space"),
    "unread": (UNREAD, "cafe: no route"),
}


@pytest.mark.parametrize(("state", "message"), MESSAGES.values(), ids=MESSAGES)
def test_message_where_it_is(state, message):
    assert condition(state, "Ready")["message"] == message


def test_a_blocked_line_says_why_unless_a_guard_of_its_cluster_does():
    line = replace(change(action=Action.BLOCKED), reason="it is somebody else's")
    state = ended(at_rest(), of=report(changes=[line]))
    assert condition(state, "Stalled")["message"] == "blocked: shop, space: it is somebody else's"
    state = ended(at_rest(), of=report(changes=[line], held=[GUARD]))
    assert condition(state, "Stalled")["message"].startswith("max-deletes: ")
    assert "somebody" not in condition(state, "Stalled")["message"]


def test_of_many_guards_the_first_speak():
    held = [Tripped("block", str(number), (str(number),)) for number in range(9)]
    said = condition(ended(at_rest(), of=report(held=held)), "Ready")["message"]
    assert said == "block: 0; block: 1; block: 2; and 6 more"


SIGNED = Signature(VerificationMode.HISTORY, "ssh", "ada@acme.example", first=True)
VERIFIED = {
    "nobody asks for signatures": (at_rest(), "Unknown", "Off"),
    "nothing was read": (FleetState(name=""), "Unknown", "NotRead"),
    "a commit is refused": (failing(SourceProblem.UNVERIFIED), "False", "SourceUnverified"),
    "it is signed": (
        replace(at_rest(), source=replace(at_rest().source, signature=SIGNED)),
        "True",
        "Verified",
    ),
}


@pytest.mark.parametrize(("state", "status", "reason"), VERIFIED.values(), ids=VERIFIED)
def test_source_verified_where(state, status, reason):
    found = condition(state, "SourceVerified")
    assert (found["status"], found["reason"]) == (status, reason)


def test_whose_signature_it_is_and_of_what():
    said = condition(VERIFIED["it is signed"][0], "SourceVerified")["message"]
    assert said.startswith("ssh signature of ada@acme.example, the first commit")


def test_a_condition_keeps_its_time_while_its_status_is_the_same():
    before = conditions(with_units(DEGRADED), seconds=100)
    after = conditions(failed_line(), before, seconds=200)
    assert after[0]["reason"] != before[0]["reason"]
    times = {one["type"]: one["lastTransitionTime"] for one in after}
    assert times["Ready"] == times["Stalled"] == before[0]["lastTransitionTime"]
    assert times["Reconciling"] != before[1]["lastTransitionTime"]


def test_the_end_of_a_line_counts_and_not_its_message():
    silent = report(Status.FAILED)
    said = replace(silent, outcomes=(Outcome(silent.plan.changes[0], Status.FAILED, "x"),))
    assert conditions(ended(at_rest(), of=silent)) == conditions(ended(at_rest(), of=said))
