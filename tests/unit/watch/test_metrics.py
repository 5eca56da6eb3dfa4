"""What a watch counts, and how the state of its fleet shows in metrics."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest

from klutchctl.controller import metrics
from klutchctl.controller.metrics import FleetMetrics
from reconciler.apply import Outcome, Report, Status
from reconciler.core.errors import ConfigError, Locked
from reconciler.core.refs import Kind, Ref
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import (
    FleetState,
    RoundResult,
    SourceProblem,
    SourceView,
    Storm,
    Waiting,
)
from tests.support import fleets
from tests.support.reports import change, report

EVERYTHING = Task(Trigger.DRIFT, None)
IN_USE = Tripped("in-use", "why")
SECRET = "hunter2canary"
START = datetime(2026, 11, 26, tzinfo=UTC)


class WallClock:
    now = 1000.0


@pytest.fixture
def clock():
    return WallClock()


@pytest.fixture
def meters(clock):
    return FleetMetrics(lambda: clock.now)


def ended(meters, task, came_to, seconds):
    meters.ended(task, RoundResult(came_to), seconds)


def value(meters, name, **labels):
    return meters.registry.get_sample_value(f"klutchctl_watch_{name}", labels)


def test_rounds_and_their_lines_are_counted(meters, clock):
    ended(meters, EVERYTHING, report(Status.DONE, Status.DONE, Status.HELD, held=[IN_USE]), 3.0)
    assert value(meters, "rounds_total", trigger="drift", result="held") == 1
    assert value(meters, "outcomes_total", status="done") == 2
    assert value(meters, "round_duration_seconds_sum", trigger="drift") == 3.0
    assert value(meters, "guards_held", guard="in-use") == 1
    assert value(meters, "last_success_timestamp_seconds") == 0
    clock.now = 1010.0
    ended(meters, EVERYTHING, report(), 1.0)
    assert value(meters, "guards_held", guard="in-use") is None
    assert value(meters, "last_success_timestamp_seconds") == 1010.0


def test_rounds_that_did_not_end(meters):
    meters.failed(EVERYTHING, ConfigError("x", where="x"), 1.0)
    meters.failed(EVERYTHING, Locked.__new__(Locked), 1.0)
    assert value(meters, "rounds_total", trigger="drift", result="failed") == 1
    assert value(meters, "rounds_total", trigger="drift", result="locked") == 1


def test_the_age_of_the_source(meters, clock):
    fleet = fleets.fleet()
    meters.read(fleet, None, ())
    clock.now = 1010.0
    meters.read(fleet, None, None)
    assert value(meters, "source_changed_timestamp_seconds") == 1000.0
    assert value(meters, "source_read_timestamp_seconds") == 1010.0
    meters.unreadable(ConfigError(SECRET, where="x"))
    assert value(meters, "source_readable") == 0
    assert value(meters, "source_failures_total") == 1
    clock.now = 1020.0
    meters.read(replace(fleet, digest="other"), None, ())
    assert value(meters, "source_readable") == 1
    assert value(meters, "source_changed_timestamp_seconds") == 1020.0


def test_a_cluster_is_unseen_until_it_was_looked_at_again(meters):
    unseen = [UnseenCluster(name, "why") for name in ("shop", "cafe", "control-plane/eu")]
    ended(meters, EVERYTHING, report(unseen=unseen), 1.0)
    assert value(meters, "cluster_unseen", cluster="cafe") == 1
    ended(meters, Task(Trigger.RETRY, frozenset({"shop"})), report(), 1.0)
    assert value(meters, "cluster_unseen", cluster="shop") is None
    assert value(meters, "cluster_unseen", cluster="control-plane/eu") is None
    assert value(meters, "cluster_unseen", cluster="cafe") == 1


def test_no_text_from_anywhere_is_in_a_label(meters):
    meters.unreadable(ConfigError(SECRET, where="x"))
    meters.failed(EVERYTHING, ConfigError(SECRET, where="x"), 1.0)
    plan = replace(report().plan, held=(Tripped("in-use", SECRET),))
    ended(meters, EVERYTHING, replace(report(), plan=plan, ended=SECRET), 1.0)
    assert SECRET.encode() not in generate_latest(meters.registry)


UNIT = UnitKey("shop", "anynines.com", "databases")
FLEET = fleets.fleet(
    control_planes=[fleets.control_plane("eu"), fleets.control_plane("us")],
    clusters=[fleets.app_cluster("shop", "eu"), fleets.app_cluster("cafe", "us")],
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def health(name: str, *states: State, plane: str = "eu", since: datetime | None = None):
    units = (
        BoundUnit(SECRET, UnitHealth(replace(UNIT, cluster=name), state, "", SECRET, since))
        for state in states
    )
    return ClusterHealth(name, plane, tuple(units), message=SECRET)


def board(*clusters: ClusterHealth, time: datetime = START) -> Board:
    return Board("acme", "c0ffee", time, clusters)


def operated(**parts) -> FleetState:
    return replace(FleetState(name="acme", fleet=FLEET), **parts)


def shown(meters, name, **labels) -> Any:
    return meters.registry.get_sample_value(f"klutchctl_{name}", labels)


def see(meters, *states: FleetState) -> None:
    """Let states follow each other, from nothing known."""
    before = FleetState(name="")
    for state in states:
        meters.listener(before, state)
        before = state


def test_units_are_counted_by_state_and_no_state_is_missing(meters):
    eu = health("shop", State.READY, State.READY, State.DEGRADED)
    see(meters, operated(board=board(eu, health("cafe", State.UNKNOWN, plane="us"))))
    assert shown(meters, "units", control_plane="eu", state="Ready") == 2
    assert shown(meters, "units", control_plane="eu", state="Degraded") == 1
    assert shown(meters, "units", control_plane="us", state="Unknown") == 1
    assert shown(meters, "units", control_plane="us", state="Ready") == 0
    assert shown(meters, "cluster_units_not_ready", cluster="shop") == 1
    assert shown(meters, "cluster_units_not_ready", cluster="cafe") == 1


def test_what_rests_on_purpose_is_no_trouble(meters):
    see(meters, operated(board=board(health("shop", State.SUSPENDED, State.RELEASED))))
    assert shown(meters, "cluster_units_not_ready", cluster="shop") is None


def test_lines_that_wait_and_storms(meters):
    lines = ((change("shop"), None), (change("cafe", Action.BLOCKED), None))
    storms = tuple(
        Storm(cluster=name, object=SECRET, manager=SECRET, repairs=3, until=START)
        for name in ("shop", "gone")
    )
    see(meters, operated(waiting=Waiting(lines), storms=storms))
    assert shown(meters, "plan_lines", action="update") == 1
    assert shown(meters, "plan_lines", action="blocked") == 1
    assert shown(meters, "plan_lines", action="delete") == 0
    assert shown(meters, "plan_lines", action="noop") is None
    assert shown(meters, "drift_storms", control_plane="eu") == 1
    assert shown(meters, "drift_storms", control_plane="us") == 0
    assert shown(meters, "drift_storms", control_plane="") == 1


SIGNED = Signature(VerificationMode.HEAD, "ssh", SECRET)
VERIFIED = {
    "nobody asks for signatures": (SourceView(), None),
    "signed as asked": (SourceView(signature=SIGNED), 1),
    "a newer commit is refused": (
        SourceView(signature=SIGNED, problem=SourceProblem.UNVERIFIED, why=SECRET),
        0,
    ),
    "it cannot be read at all": (SourceView(signature=SIGNED, problem=SourceProblem.UNREADABLE), 1),
}


@pytest.mark.parametrize(("source", "want"), VERIFIED.values(), ids=VERIFIED.keys())
def test_whether_the_source_is_verified(meters, source, want):
    see(meters, operated(source=source))
    assert shown(meters, "source_verified") == want


def commit(number: int, seen: float, **parts) -> FleetState:
    return operated(source=SourceView(revision=f"{number}", changed_at=at(seen)), **parts)


COMMITS = {
    "in place after a minute": ([commit(2, 100), commit(2, 100, applied_at=at(160))], (1, 60)),
    "the same again counts once": (
        [commit(2, 100), commit(2, 100, applied_at=at(160)), commit(2, 100, applied_at=at(160))],
        (1, 60),
    ),
    "overtaken before it was in place": (
        [commit(2, 100), commit(3, 150), commit(3, 150, applied_at=at(160))],
        (1, 10),
    ),
    "the commit of the start counts not": ([commit(1, 0, applied_at=at(5))], (0, 0)),
}


@pytest.mark.parametrize(("states", "want"), COMMITS.values(), ids=COMMITS.keys())
def test_how_long_commits_take(meters, states, want):
    see(meters, commit(1, 0), *states)
    count = shown(meters, "commit_to_applied_seconds_count")
    assert (count, shown(meters, "commit_to_applied_seconds_sum")) == want


@pytest.mark.parametrize("hold", [{"waiting": Waiting(held=(IN_USE,))}, {"suspended": SECRET}])
def test_the_time_that_people_take_is_left_out(meters, clock, hold):
    see(meters, commit(1, 0))
    before = commit(1, 0)
    for now, state in (
        (100, commit(2, 100)),
        (110, commit(2, 100, **hold)),
        (3710, commit(2, 100)),
        (3720, commit(2, 100, applied_at=at(3720))),
    ):
        clock.now = START.timestamp() + now
        meters.listener(before, state)
        before = state
    assert shown(meters, "commit_to_applied_seconds_sum") == pytest.approx(20)


def made(action: Action = Action.CREATE, status: Status = Status.DONE) -> Report:
    line = replace(change("shop", action), unit=UNIT)
    plan = replace(report().plan, changes=(line,))
    return replace(report(), plan=plan, outcomes=(Outcome(line, status),))


READY_WAITS = {
    "as the unit says": (State.READY, at(40), 60, 40),
    "a unit that stayed Ready, by the look that found it so": (State.READY, at(-900), 60, 60),
}


@pytest.mark.parametrize(
    ("state", "since", "looked", "want"), READY_WAITS.values(), ids=READY_WAITS.keys()
)
def test_how_long_units_take_to_be_ready(meters, clock, state, since, looked, want):
    clock.now = at(10).timestamp()
    ended(meters, EVERYTHING, made(), 10.0)  # the round began at 0
    first = operated(board=board(health("shop", State.PROGRESSING), time=at(10)))
    then = operated(board=board(health("shop", state, since=since), time=at(looked)))
    again = replace(then, board=board(health("shop", state, since=since), time=at(900)))
    see(meters, first, then, again)
    assert shown(meters, "unit_time_to_ready_seconds_sum", action="create") == want
    assert shown(meters, "unit_time_to_ready_seconds_count", action="create") == 1


def test_a_board_from_before_says_nothing_of_a_unit_that_was_written(meters, clock):
    """A narrow round keeps what is known of other clusters, as the same values."""
    old = health("shop", State.READY, since=at(-900))
    clock.now = at(10).timestamp()
    states = [operated(board=board(old)), operated(board=board(old, time=at(20)))]
    meters.listener(FleetState(name=""), states[0])
    ended(meters, EVERYTHING, made(Action.UPDATE), 10.0)
    meters.listener(*states)
    assert shown(meters, "unit_time_to_ready_seconds_count", action="update") is None


@pytest.mark.parametrize("failed", [made(status=Status.FAILED), made(Action.DELETE)])
def test_only_units_that_were_made_are_waited_for(meters, failed):
    ended(meters, EVERYTHING, failed, 10.0)
    see(meters, operated(board=board(health("shop", State.READY), time=at(60))))
    assert "unit_time_to_ready_seconds_count" not in generate_latest(meters.registry).decode()


def repairs(meters):
    return shown(meters, "drift_repairs_total", control_plane="eu")


def test_repairs_are_what_changed_by_itself(meters):
    meters.read(FLEET, None, None)
    assert repairs(meters) == 0
    ended(meters, Task(Trigger.SOURCE, None), report(Status.DONE), 1.0)
    ended(meters, EVERYTHING, report(Status.HELD, Status.UNCHANGED), 1.0)
    assert repairs(meters) == 0
    ended(meters, EVERYTHING, report(Status.DONE), 1.0)
    assert repairs(meters) == 1


def test_what_was_left_undone_or_unread_is_no_drift(meters):
    meters.read(FLEET, None, None)
    see(meters, operated(waiting=Waiting(((change("shop"), None),))))
    ended(meters, EVERYTHING, report(Status.DONE), 1.0)
    see(meters, operated())
    ended(meters, EVERYTHING, report(unseen=[UnseenCluster("shop", "why")]), 1.0)
    ended(meters, EVERYTHING, report(Status.DONE), 1.0)
    assert repairs(meters) == 0


def test_webhooks_and_notifications(meters):
    meters.webhook("github", "accepted")
    meters.notification("chat", "sent")
    assert shown(meters, "webhook_requests_total", hook="github", result="accepted") == 1
    assert shown(meters, "notifications_total", sink="chat", result="sent") == 1


def series(meters, name: str) -> list[str]:
    text = generate_latest(meters.registry).decode()
    return [line for line in text.splitlines() if line.startswith(f"{name}{{")]


def clusters(number: int) -> Iterable[str]:
    return (f"c-{each:04}" for each in range(number))


def test_5000_troubled_clusters_stay_within_the_cap(meters):
    many = [health(name, State.DEGRADED) for name in clusters(5000)]
    many[4000] = health("c-4000", State.DEGRADED, State.DEGRADED)
    see(meters, operated(board=board(*many)))
    ended(
        meters, EVERYTHING, report(unseen=[UnseenCluster(name, "") for name in clusters(5000)]), 1
    )
    for name in (metrics.NOT_READY, metrics.UNSEEN):
        assert len(series(meters, name)) == 500
        assert shown(meters, "series_omitted", metric=name) == 4500
    assert shown(meters, "cluster_units_not_ready", cluster="c-4000") == 2  # the worst is shown
    assert len(generate_latest(meters.registry)) < 100_000
    see(meters, operated(board=board(health("shop", State.READY))))
    assert shown(meters, "series_omitted", metric=metrics.NOT_READY) == 0


def test_no_text_of_a_state_is_in_a_metric(meters):
    ref = Ref("shop", Kind("", "v1", "Secret", "secrets"), SECRET, SECRET)
    line = replace(change(), ref=ref, subject=SECRET, reason=SECRET)
    storm = Storm(cluster="shop", object=SECRET, manager=SECRET, repairs=3, until=START)
    state = operated(
        source=SourceView(url=SECRET, ref=SECRET, revision=SECRET, signature=SIGNED, why=SECRET),
        board=board(health("shop", *State)),
        waiting=Waiting(
            ((line, Outcome(line, Status.FAILED, SECRET)),), (Tripped("in-use", SECRET),)
        ),
        storms=(storm,),
        suspended=SECRET,
    )
    see(meters, state)
    assert SECRET.encode() not in generate_latest(meters.registry)
