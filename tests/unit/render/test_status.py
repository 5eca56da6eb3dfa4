"""What `status` prints for people, and the document that is read again."""

import json
from dataclasses import fields, replace
from datetime import timedelta

import pytest

from klutchctl.render import status, status_document
from reconciler.apply import Outcome, Status
from reconciler.core.errors import ConfigError, Origin
from reconciler.core.live import plane_unseen
from reconciler.fleet.values import UnitKey
from reconciler.health.board import BoundUnit, ClusterHealth
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Step, Tripped, UnseenCluster, Verb
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import (
    FleetState,
    RoundRecord,
    SourceProblem,
    SourceView,
    Storm,
    Waiting,
)
from tests.golden import values
from tests.golden.values import NOW, unit

PLACE = Origin("teams/orders/db.yaml", 3, 1)
LINE = replace(
    values.line("db", Action.DELETE, "left the files"),
    uid="u-1",
    before="0123456789abcdef",
    unit=UnitKey("shop-1", "shop.example", "databases"),
    origin=PLACE,
    steps=(Step(Verb.DELETE, values.line("db").ref, "at last"),),
    instances=3,
    keeps_data=True,
    held=("max-deletes",),
)
OPERATED = FleetState(
    name="acme",
    source=SourceView(
        url="https://git.example/fleet",
        ref="main",
        revision="4c1e9d2",
        changed_at=NOW,
        read_at=NOW + timedelta(microseconds=1),
        signature=Signature(VerificationMode.HISTORY, "ssh", "ada@acme.example", first=True),
        problem=SourceProblem.UNVERIFIED,
        why="commit 5d is not signed",
        refused="5d",
        since=NOW,
    ),
    board=values.board(),
    waiting=Waiting(
        ((LINE, Outcome(LINE, Status.HELD, "held back: max-deletes")), (LINE, None)),
        (Tripped("max-deletes", "3 of 10", ("shop-1",)),),
        (UnseenCluster("shop-3", "it hung up", "Look at the network"),),
        "9f3c",
    ),
    running=Task(Trigger.RETRY, frozenset({"shop-1"})),
    history=(
        RoundRecord(
            ended_at=NOW,
            seconds=1.5,
            trigger=Trigger.SOURCE,
            revision="4c1e9d2",
            result="failed",
            done=1,
            failed=2,
            why="refused",
        ),
    ),
    storms=(Storm(cluster="shop-1", object="Deployment x", manager="hpa", repairs=3, until=NOW),),
    suspended="audit",
    shard=("eu",),
    applied_at=NOW,
    looked_at=NOW,
)


def again(state, **change):
    text = status_document.dump(state.board, state=state)
    return status_document.parse(json.dumps({**json.loads(text), **change}), "status.json")


def test_all_that_a_controller_knows_is_read_again():
    known = {field.name for field in fields(FleetState)} - {"fleet"}
    empty = FleetState(name="")
    assert {name for name in known if getattr(OPERATED, name) == getattr(empty, name)} == set()
    assert again(OPERATED) == OPERATED


def test_a_round_about_everything_is_read_again():
    everything = replace(OPERATED, running=Task(Trigger.DRIFT, None))
    assert again(everything) == everything


def test_what_a_line_would_write_stays_out():
    line = replace(LINE, after={"kind": "ConfigMap", "data": {"a": "long"}})
    state = replace(OPERATED, waiting=Waiting(((line, None),)))
    assert again(state).waiting.lines == ((LINE, None),)


@pytest.mark.parametrize("board", [values.board(), values.board(values.HOSTILE), values.nothing()])
def test_a_board_alone_is_read_again(board):
    state = status_document.parse(status_document.dump(board), "x")
    assert state == FleetState(name="acme", source=SourceView(revision=board.revision), board=board)


def test_the_place_of_a_binding_is_read_again():
    units = (BoundUnit("db", values.unit("shop", State.READY), origin=PLACE),)
    board = replace(values.nothing(), clusters=(ClusterHealth("shop", "eu", units),))
    assert status_document.parse(status_document.dump(board), "x").board == board


def test_before_anything_was_looked_at_there_is_an_empty_board():
    state = FleetState(name="acme", source=SourceView(revision="4c"))
    read = status_document.parse(status_document.dump_state(state, NOW), "x")
    assert (read.name, read.source.revision) == ("acme", "4c")
    assert read.board is not None
    assert (read.board.time, read.board.clusters) == (NOW, ())


def test_older_and_newer_minor_versions_are_read():
    older = json.loads(status_document.dump(values.board()))
    older["version"] = "1.0"
    del older["operation"]
    for cluster in older["clusters"]:
        for one in cluster["units"]:
            del one["origin"]
    assert status_document.parse(json.dumps(older), "x").board == values.board()
    assert again(OPERATED, version="1.7", gates=[]) == OPERATED


NONE = "not a status document, as it"
WRONG = {
    "a plan": ({"format": "klutchctl.dev/plan"}, "status.json: not a status document, as it is"),
    "the next major": ({"version": "2.0"}, "status.json: a status document of version 2.0"),
    "a number as version": ({"version": 1}, "status.json: /version: must be a version"),
    "no clusters": ({"clusters": None}, f"status.json: /clusters: {NONE} must be a list"),
    "a time of no zone": ({"time": "2026-11-21"}, f"status.json: /time: {NONE} has another form"),
    "a state of no meaning": (
        {"clusters": [{"name": "a", "controlPlane": "b", "state": "Fine"}]},
        f"status.json: /clusters/0/state: {NONE} must be one of Ready, Progressing",
    ),
}


@pytest.mark.parametrize(("change", "problem"), WRONG.values(), ids=WRONG.keys())
def test_what_is_no_status_document_is_refused_by_its_place(change, problem):
    written = json.loads(status_document.dump(values.board()))
    with pytest.raises(ConfigError) as caught:
        status_document.parse(json.dumps({**written, **change}), "status.json")
    assert str(caught.value).startswith(problem)


def test_an_empty_fleet_has_a_line():
    assert status.text(values.nothing()) == "Fleet acme\n\nStatus: no units.\n"


def test_an_age_that_is_not_known_is_not_shown():
    assert status.age(None, NOW) == ""


def test_an_age_that_is_only_bounded_says_so():
    made = after(replace(unit("shop-2", State.DEGRADED, "ExportMissing"), exact=False))
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
    lines = [json.loads(line) for line in status.events(WAS, before=after()).splitlines()]
    assert [line["event"] for line in lines] == ["unit", "summary"]
    assert status.events(WAS, before=WAS) == ""


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
