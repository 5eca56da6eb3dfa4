"""What `status` prints for people and for programs."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from klutchctl.render import status, status_document
from reconciler.core.live import plane_unseen
from reconciler.health.board import BoundUnit, ClusterHealth
from reconciler.health.verdict import State
from reconciler.planning.changes import UnseenCluster
from tests.golden import values
from tests.golden.values import NOW, unit


def test_an_empty_fleet_has_a_line():
    assert status.text(values.nothing()) == "Fleet acme\n\nStatus: no units.\n"


AGES = {
    "nothing known": (None, ""),
    "now": (timedelta(), "0s"),
    "seconds": (timedelta(seconds=59.9), "59s"),
    "a minute": (timedelta(seconds=60), "1m"),
    "hours": (timedelta(hours=23, minutes=59), "23h"),
    "days": (timedelta(days=400), "400d"),
    "ahead of us": (-timedelta(hours=1), "0s"),
}


@pytest.mark.parametrize(("ago", "text"), AGES.values(), ids=AGES.keys())
def test_ages(ago, text):
    assert status.age(None if ago is None else NOW - ago, NOW) == text


def test_an_age_that_is_only_bounded_says_so():
    lost = replace(unit("shop-2", State.DEGRADED, "ExportMissing"), exact=False)
    made = after(lost)
    assert " <3h " in status.text(made)
    assert json.loads(status_document.dump(made))["clusters"][0]["units"][0]["sinceExact"] is False


def after(*units):
    clusters = (ClusterHealth("shop", "eu", tuple(BoundUnit("db", one) for one in units)),)
    return replace(values.nothing(), clusters=clusters)


WAS = after(unit("shop", State.READY))
CHANGES = {
    "nothing": (WAS, WAS, ""),
    "time alone is no change": (WAS, after(unit("shop", State.READY, ago=timedelta())), ""),
    "another state": (
        WAS,
        after(unit("shop", State.DEGRADED, "CrdMissing", "no CRD")),
        "Ready -> Degraded: CrdMissing: no CRD",
    ),
    "another reason": (
        after(unit("shop", State.DEGRADED, "NoHeartbeat", "silent")),
        after(unit("shop", State.DEGRADED, "CrdMissing", "no CRD")),
        "Degraded -> Degraded: CrdMissing: no CRD",
    ),
    "a unit that is new": (after(), WAS, "new: Ready"),
    "a unit that is gone": (WAS, after(), "gone"),
}


@pytest.mark.parametrize(("before", "now", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_what_changed_is_a_line(before, now, said):
    line = f"2026-11-21T12:00:00Z shop/databases.shop.example: {said}\n" if said else ""
    assert status.changes(before, now) == line


def test_events_of_a_change_report_the_counts_too_and_nothing_is_silent():
    pairs = list(status.changed(after(), WAS))
    lines = [json.loads(line) for line in status.events(WAS, only=pairs).splitlines()]
    assert [line["event"] for line in lines] == ["unit", "summary"]
    assert status.events(WAS, only=[]) == ""


BEAT = "its konnector's last heartbeat was at noon"


def test_a_unit_that_is_ready_shows_what_kubectl_shows_as_not():
    made = after(unit("shop", State.READY, "InstancesRefused", "orders: over quota"))
    text = status.text(made)
    assert "  Ready (claims refused)  3h   InstancesRefused: orders: over quota" in text
    assert "Status: 1 Ready." in text
    assert "over quota" in status.events(made)


WHOLE = {
    "a cluster that was not read": (State.UNKNOWN, "NotRead", "it hung up", ["NotRead", "NotRead"]),
    "one whose konnector was heard": (
        State.UNKNOWN, "NotRead", f"it hung up; {BEAT}", [f"NotRead: {BEAT}", "NotRead"],
    ),
    "one that is held back": (
        State.DEGRADED, "HeldBack", "another uid", ["HeldBack: another uid", "HeldBack"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "reason", "message", "why"), WHOLE.values(), ids=WHOLE.keys())
def test_what_holds_for_a_whole_cluster_is_said_once(state, reason, message, why):
    health = unit("shop", state, reason, message)
    units = (BoundUnit("db", health), BoundUnit("queue", health))
    made = replace(
        values.nothing(),
        clusters=(ClusterHealth("shop", "eu", units, state, message),),
        unread=(UnseenCluster("shop", "it hung up", "Look"),) if reason == "NotRead" else (),
    )
    text = status.text(made)
    assert [
        line.partition(" 3h ")[2].strip() for line in text.splitlines() if " 3h " in line
    ] == why
    assert text.count("it hung up") == len(made.unread)
    assert json.loads(status_document.dump(made))["clusters"][0]["units"][1]["message"] == message


def test_why_a_control_plane_was_not_read_is_said_once():
    plane = UnseenCluster("control-plane/eu", "it hung up", "Look")
    apps = [UnseenCluster(name, plane_unseen("eu", "it hung up"), "Look") for name in ("a", "b")]
    other = UnseenCluster("c", plane_unseen("us", "it hung up"), "Look")
    text = status.text(replace(values.nothing(), unread=(*apps, other, plane)))
    assert text.split("\n\n")[1].splitlines()[1:] == [
        "  ! a                 its control plane eu is unseen",
        "  ! b                 its control plane eu is unseen",
        "  ! c                 its control plane us is unseen: it hung up. Look",
        "  ! control-plane/eu  it hung up. Look",
    ]


def test_a_clock_that_no_cluster_agrees_with_has_a_line():
    text = status.text(replace(values.nothing(), ahead=-7200.4))
    assert "Your clock is 7200 s behind all clusters" in text
