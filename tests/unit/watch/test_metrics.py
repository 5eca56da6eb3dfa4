"""What the metrics say after rounds."""

from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from reconciler.apply import Status
from reconciler.core.errors import ConfigError, Locked
from reconciler.planning.changes import Held, UnseenCluster
from reconciler.watch import Task, Trigger
from reconciler.watch.loop import Metrics, result_of
from tests.support import fleets
from tests.support.reports import report

ALL = Task(Trigger.DRIFT, None)
IN_USE = Held("in-use", "why")


RESULTS = {
    "nothing": report(),
    "done": report(Status.DONE, Status.UNCHANGED),
    "held": report(Status.DONE, Status.HELD, held=[IN_USE]),
    "partial": report(Status.DONE, Status.FAILED, Status.HELD, held=[IN_USE]),
    "locked": report(Status.INTERRUPTED, lock_lost=True),
}


@pytest.mark.parametrize(("want", "report"), RESULTS.items(), ids=RESULTS.keys())
def test_the_result_of_a_round_in_a_word(want, report):
    assert result_of(report) == want


def test_a_cluster_that_was_not_read_is_partial():
    assert result_of(report(Status.DONE, unseen=[UnseenCluster("shop", "why")])) == "partial"


class Clock:
    now = 1000.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def meters(clock):
    return Metrics(lambda: clock.now)


def value(meters, name, **labels):
    return meters.registry.get_sample_value(f"klutchctl_watch_{name}", labels)


def test_rounds_and_their_lines_are_counted(meters, clock):
    meters.ended(ALL, report(Status.DONE, Status.DONE, Status.HELD, held=[IN_USE]), 3.0)
    assert value(meters, "rounds_total", trigger="drift", result="held") == 1
    assert value(meters, "outcomes_total", status="done") == 2
    assert value(meters, "round_duration_seconds_sum", trigger="drift") == 3.0
    assert value(meters, "guards_held", guard="in-use") == 1
    assert value(meters, "last_success_timestamp_seconds") == 0
    clock.now = 1010.0
    meters.ended(ALL, report(), 1.0)
    assert value(meters, "guards_held", guard="in-use") is None
    assert value(meters, "last_success_timestamp_seconds") == 1010.0


def test_rounds_that_did_not_end(meters):
    meters.failed(ALL, ConfigError("x"), 1.0)
    meters.failed(ALL, Locked.__new__(Locked), 1.0)
    assert value(meters, "rounds_total", trigger="drift", result="failed") == 1
    assert value(meters, "rounds_total", trigger="drift", result="locked") == 1


def test_the_age_of_the_source(meters, clock):
    fleet = fleets.fleet()
    meters.read(fleet, ())
    clock.now = 1010.0
    meters.read(fleet, None)
    assert value(meters, "source_changed_timestamp_seconds") == 1000.0
    assert value(meters, "source_read_timestamp_seconds") == 1010.0
    meters.unreadable(ConfigError("hunter2canary"))
    assert value(meters, "source_readable") == 0
    assert value(meters, "source_failures_total") == 1
    clock.now = 1020.0
    meters.read(replace(fleet, digest="other"), ())
    assert value(meters, "source_readable") == 1
    assert value(meters, "source_changed_timestamp_seconds") == 1020.0


def test_a_cluster_is_unseen_until_it_was_looked_at_again(meters):
    unseen = [UnseenCluster(name, "why") for name in ("shop", "cafe", "control-plane/eu")]
    meters.ended(ALL, report(unseen=unseen), 1.0)
    assert value(meters, "cluster_unseen", cluster="cafe") == 1
    meters.ended(Task(Trigger.RETRY, frozenset({"shop"})), report(), 1.0)
    assert value(meters, "cluster_unseen", cluster="shop") is None
    assert value(meters, "cluster_unseen", cluster="control-plane/eu") is None
    assert value(meters, "cluster_unseen", cluster="cafe") == 1


def test_no_text_from_anywhere_is_in_a_label(meters):
    meters.unreadable(ConfigError("hunter2canary"))
    meters.failed(ALL, ConfigError("hunter2canary"), 1.0)
    plan = replace(report().plan, held=(Held("in-use", "hunter2canary"),))
    meters.ended(ALL, replace(report(), plan=plan, ended="hunter2canary"), 1.0)
    assert b"hunter2canary" not in generate_latest(meters.registry)
