"""States of a fleet for the board: a plain one, a hostile one, and big ones."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from reconciler.api import API_SERVICE_BINDING
from reconciler.apply import Outcome, Status
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin
from reconciler.core.refs import Ref
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth, PlaneHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import Action, Change, Tripped, UnseenCluster
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import (
    FleetState,
    RoundRecord,
    SourceProblem,
    SourceView,
    Storm,
    Waiting,
)

NOW: Final = datetime(2026, 11, 26, 14, 0, 12, tzinfo=UTC)
REVISION: Final = "4c1e9d2a" * 5
HOSTILE: Final = "<script>document.title='x'</script>\u202egnp.exe\u2069&quot;'\"\x1b[31m"
_CYCLE: Final = (
    ("orders-db", "postgresqlinstances"),
    ("shop-credentials", "servicebindings"),
    ("search", "searchinstances"),
    ("messages", "rabbitmqinstances"),
)


def ago(**parts):
    return NOW - timedelta(**parts)


def unit(cluster, binding, plural, state=State.READY, reason="", message="", *, since=None, **more):
    key = UnitKey(cluster, "anynines.com", plural)
    leaving = {"leaving": more.pop("leaving", False)}
    health = UnitHealth(key, state, reason, message, since or ago(days=3), **more)
    return BoundUnit(binding, health, **leaving)


def change(cluster, subject, plural, action, reason, *, held=(), fields=()):
    key = UnitKey(cluster, "anynines.com", plural)
    ref = Ref(cluster, API_SERVICE_BINDING, "", key.name)
    where = Origin(f"bindings/team-a/{subject}.yaml", 4, 1)
    return Change(cluster, subject, ref, action, reason, where, key, held=held, fields=fields)


def clusters():
    well = [
        ClusterHealth(
            f"shop-eu-{number}", "eu", tuple(unit(f"shop-eu-{number}", *one) for one in _CYCLE)
        )
        for number in (2, 3, 4)
    ]
    ill = ClusterHealth(
        "shop-eu-1",
        "eu",
        (
            unit(
                "shop-eu-1",
                "orders-db",
                "postgresqlinstances",
                State.DEGRADED,
                "CrdMissing",
                "the app cluster has no CRD postgresqlinstances.anynines.com",
                since=ago(hours=3),
                exact=False,
            ),
            unit(
                "shop-eu-1",
                "shop-credentials",
                "servicebindings",
                State.PROGRESSING,
                "ConnectedMissing",
                "the konnector has not reported Connected yet",
                since=ago(seconds=40),
            ),
            unit("shop-eu-1", "search", "searchinstances"),
            unit("shop-eu-1", "", "backups", State.READY, leaving=True),
        ),
    )
    why = "connection refused; its konnector's last heartbeat was at 2026-11-26T13:48:00Z"
    unread = ClusterHealth(
        "shop-us-1",
        "us",
        tuple(
            unit(
                "shop-us-1",
                *one,
                State.UNKNOWN,
                "NotRead",
                why,
                since=ago(minutes=12),
                last_known=State.READY,
            )
            for one in _CYCLE[:3]
        ),
        State.UNKNOWN,
        why,
        ago(minutes=12),
    )
    asleep = ClusterHealth(
        "shop-us-2",
        "us",
        (unit("shop-us-2", *_CYCLE[0], State.SUSPENDED, "Suspended", "maintenance"),),
        State.SUSPENDED,
        "maintenance until Monday",
    )
    gone = ClusterHealth(
        "shop-us-3",
        "us",
        state=State.RELEASED,
        message="sync has stopped; its space and its data stay",
        since=ago(days=9),
    )
    return (ill, *well, unread, asleep, gone)


def waiting():
    shown = "prune.mode is report: releases and deletions are only shown"
    wider, why = FieldChange("/spec/permissionClaims/0/all", True, False), "differs from the files"
    edited = change(
        "shop-eu-3", "orders-db", "postgresqlinstances", Action.UPDATE, why, fields=(wider,)
    )
    deleted = change(
        "shop-eu-1", "backups", "backups", Action.DELETE, "it left the files", held=("report",)
    )
    made = change("shop-us-1", "search", "searchinstances", Action.UNKNOWN, "it was not read")
    return Waiting(
        (
            (deleted, Outcome(deleted, Status.HELD, "held back: report")),
            (edited, Outcome(edited, Status.FAILED, "the API server said no: 403")),
            (made, None),
        ),
        (Tripped("report", shown, ("shop-eu-1",)),),
        (UnseenCluster("shop-us-1", "connection refused", "See that its API server runs"),),
        "9f3c21aa" * 4,
    )


def records():
    return tuple(
        RoundRecord(
            ended_at=ago(minutes=3 * number, seconds=8),
            seconds=4.1 + number,
            trigger=trigger,
            revision=REVISION,
            result=result,
            done=done,
            failed=failed,
            why=why,
        )
        for number, (trigger, result, done, failed, why) in enumerate(
            (
                (Trigger.RETRY, "partial", 0, 1, ""),
                (Trigger.SOURCE, "done", 12, 0, ""),
                (Trigger.DRIFT, "failed", 0, 0, "the lock is held by another run"),
                (Trigger.DRIFT, "nothing", 0, 0, ""),
            )
        )
    )


def plain(**more):
    """Return the state of a fleet in which everything that a board shows is there."""
    board = Board(
        "acme",
        REVISION,
        NOW - timedelta(seconds=12),
        clusters(),
        (UnseenCluster("shop-us-1", "connection refused", "See that its API server runs"),),
    )
    source = SourceView(
        url="https://git.example.com/platform/fleet.git", ref="main", revision=REVISION
    )
    given = {
        "source": source,
        "board": board,
        "waiting": waiting(),
        "history": records(),
        "applied_at": ago(minutes=3),
        **more,
    }
    return FleetState(name="acme", **given)


def troubled():
    """Return one whose source, objects and rounds are not as usual either."""
    state = plain()
    source = replace(
        state.source,
        problem=SourceProblem.UNVERIFIED,
        why="commit 77aa01b is not signed by anybody in allowed_signers",
        refused="77aa01b2" * 5,
        since=ago(minutes=20),
    )
    storm = Storm(
        cluster="shop-eu-2",
        object="APIServiceBinding orders-db",
        manager="kubectl-edit",
        repairs=3,
        until=NOW + timedelta(hours=1),
    )
    plane = PlaneHealth(
        "us", State.DEGRADED, "BackendStopped", "its backend has stopped: see why", ago(minutes=4)
    )
    return replace(
        state,
        board=replace(state.board, planes=(plane,)),
        source=source,
        storms=(storm,),
        suspended="moving to another region",
        running=Task(Trigger.DRIFT, None),
        shard=("eu", "us"),
    )


def empty():
    """Return one of which nothing was looked at yet."""
    return FleetState(name="acme")


def hostile(text=HOSTILE):
    """Return one in which every text that others write is `text`."""
    health = UnitHealth(UnitKey(text, "", text), State.DEGRADED, text, text, ago(hours=1))
    whole = ClusterHealth(text, text, (BoundUnit(text, health),), State.DEGRADED, text)
    other = ClusterHealth(
        "shop", text, (BoundUnit(text, replace(health, unit=UnitKey("shop", "", text))),)
    )
    ref = Ref(text, API_SERVICE_BINDING, text, text)
    line = Change(
        "shop",
        text,
        ref,
        Action.UPDATE,
        text,
        Origin(text, 1, 1),
        UnitKey("shop", "", text),
        fields=(FieldChange(text, text, text),),
        held=(text,),
    )
    return FleetState(
        name=text,
        source=SourceView(
            url=text, ref=text, revision=text, problem=SourceProblem.INVALID, why=text, since=NOW
        ),
        board=Board(
            text,
            text,
            NOW,
            (whole, other),
            (UnseenCluster("shop", text, text),),
            (PlaneHealth(text, State.DEGRADED, text, text, NOW),),
        ),
        waiting=Waiting(
            ((line, Outcome(line, Status.FAILED, text)),),
            (Tripped(text, text, ("shop",)),),
            (UnseenCluster(text, text, text),),
            text,
        ),
        history=(replace(records()[0], why=text, revision=text, result=text),),
        storms=(Storm(cluster=text, object=text, manager=text, repairs=3, until=NOW),),
        suspended=text,
        shard=(text,),
    )


def big(count, per_cluster=20, *, ill=0.02):
    """Return one of `count` units, of which a share is Degraded."""
    every = round(1 / ill) if ill else count + 1
    names = [f"service-{number:02}" for number in range(per_cluster)]
    found = []
    for number in range(count // per_cluster):
        cluster = f"shop-eu-{number:05}"
        units = tuple(
            unit(
                cluster,
                name,
                f"{name.replace('-', '')}instances",
                State.DEGRADED if (number * per_cluster + place) % every == 0 else State.READY,
            )
            for place, name in enumerate(names)
        )
        found.append(ClusterHealth(cluster, "eu", units))
    return FleetState(name="acme", board=Board("acme", REVISION, NOW, tuple(found)))
