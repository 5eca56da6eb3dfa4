"""What `status` prints for people and for programs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from klutchctl.render import status
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import UnseenCluster

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def unit(cluster, state, reason="", message="", ago=timedelta(hours=3), last=None):
    key = UnitKey(cluster, "shop.example", "databases")
    return UnitHealth(key, state, reason, message, NOW - ago, last)


BOARD = Board(
    fleet="acme",
    revision="4c1e9d2",
    time=NOW,
    clusters=(
        ClusterHealth("alone", "eu"),
        ClusterHealth("gone", "eu", (), State.RELEASED, "its data stays", NOW - timedelta(days=5)),
        ClusterHealth(
            "shop-1",
            "eu",
            (
                BoundUnit("orders-db", unit("shop-1", State.READY)),
                BoundUnit("", unit("shop-1", State.READY), leaving=True),
            ),
        ),
        ClusterHealth(
            "shop-2",
            "eu",
            (BoundUnit("orders-db", unit("shop-2", State.DEGRADED, "CRDNotFound", "no such CRD")),),
        ),
        ClusterHealth(
            "shop-3",
            "eu",
            (
                BoundUnit(
                    "orders-db",
                    unit("shop-3", State.UNKNOWN, "NotRead", "it hung up", last=State.READY),
                ),
            ),
            State.UNKNOWN,
            "it hung up",
        ),
    ),
    unread=(UnseenCluster("shop-3", "it hung up", "Look at the network"),),
)

TEXT = """\
Fleet acme @ 4c1e9d2

CLUSTER  BINDING           RESOURCE                STATE       AGE  WHY
alone    -                 -                         -         -    nothing is bound here
gone     -                 -                       < Released  5d   its data stays
shop-1   orders-db         databases.shop.example    Ready     3h
shop-1   (left the files)  databases.shop.example    Ready     3h   \
no document names it any more; see `klutchctl plan`
shop-2   orders-db         databases.shop.example  ! Degraded  3h   CRDNotFound: no such CRD
shop-3   orders-db         databases.shop.example  ? Unknown   3h   was Ready; NotRead: it hung up

Clusters not read

  ! shop-3  it hung up. Look at the network

Status: 2 Ready, 1 Degraded, 1 Unknown, 1 cluster not read.
"""


def test_the_table_has_a_symbol_and_a_word_for_each_state():
    assert status.text(BOARD) == TEXT.replace("not read\n\n  !", "not read\n  !")


def test_colour_only_adds_to_it():
    colored = status.text(BOARD, color=True)
    assert colored != status.text(BOARD)
    plain = colored
    for code in ("0", "1", "31", "32", "33"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == status.text(BOARD)


def test_an_empty_fleet_has_a_line():
    empty = replace(BOARD, clusters=(), unread=(), revision="")
    assert status.text(empty) == "Fleet acme\n\nStatus: no units.\n"


def test_what_others_wrote_cannot_act_on_the_terminal():
    nasty = "\x1b[2J\u202eevil\nnext"
    bad = ClusterHealth(
        nasty, "eu", (BoundUnit(nasty, unit("shop", State.DEGRADED, nasty, nasty)),), None, nasty
    )
    whole = ClusterHealth("z", "eu", (), State.SUSPENDED, nasty)
    made = replace(
        BOARD, clusters=(bad, whole), unread=(UnseenCluster(nasty, nasty, nasty),), revision=nasty
    )
    before = replace(made, clusters=())
    for text in (status.text(made), status.changes(before, made)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\nnext" not in text
    for text in (status.as_json(made), status.events(made)):
        assert "\x1b" not in text


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
    made = replace(BOARD, clusters=(ClusterHealth("shop-2", "eu", (BoundUnit("db", lost),)),))
    assert " <3h " in status.text(made)
    assert json.loads(status.as_json(made))["clusters"][0]["units"][0]["sinceExact"] is False


def test_json_is_one_versioned_document():
    document = json.loads(status.as_json(BOARD))
    assert (document["format"], document["version"]) == ("klutchctl.dev/status", "1.1")
    assert document["summary"] == {
        "Ready": 2,
        "Progressing": 0,
        "Degraded": 1,
        "Unknown": 1,
        "Suspended": 0,
        "Released": 0,
        "unread": 1,
    }
    by_name = {one["name"]: one for one in document["clusters"]}
    assert by_name["gone"]["state"] == "Released"
    assert by_name["shop-3"]["units"] == [
        {
            "binding": "orders-db",
            "group": "shop.example",
            "resource": "databases",
            "state": "Unknown",
            "reason": "NotRead",
            "message": "it hung up",
            "since": "2026-11-21T09:00:00Z",
            "sinceExact": True,
            "lastKnown": "Ready",
            "leaving": False,
        }
    ]


def test_jsonl_is_an_event_a_line():
    lines = [json.loads(line) for line in status.events(BOARD).splitlines()]
    assert [line["event"] for line in lines] == ["unit"] * 4 + ["summary"]
    assert lines[0]["cluster"] == "shop-1"


def after(*units):
    return replace(
        BOARD, clusters=(ClusterHealth("shop", "eu", tuple(BoundUnit("db", one) for one in units)),)
    )


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


def test_events_of_a_change_tell_the_counts_too_and_nothing_is_silent():
    pairs = list(status.changed(after(), WAS))
    lines = [json.loads(line) for line in status.events(WAS, only=pairs).splitlines()]
    assert [line["event"] for line in lines] == ["unit", "summary"]
    assert status.events(WAS, only=[]) == ""
