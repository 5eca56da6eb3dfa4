"""States of operated fleets as values, of app clusters `shop` and `cafe`; and how kstatus reads."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from reconciler.apply import Report
from reconciler.fleet.values import Fleet, UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth, PlaneHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import UnseenCluster
from reconciler.watch import fleet_state
from reconciler.watch.agenda import Scope, Task, Trigger
from reconciler.watch.fleet_state import FleetState, RoundRecord, RoundResult
from tests.support import fleets
from tests.support.reports import report

START = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
COMMIT, NEXT = "a" * 40, "b" * 40


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def health(cluster: str, state: State, *, plural: str = "databases", **more: Any) -> BoundUnit:
    reason = "" if state is State.READY else more.pop("reason", "Broken")
    unit = UnitKey(cluster, "shop.example", plural)
    return BoundUnit("orders-db", UnitHealth(unit, state, reason, **more))


def cluster(name: str, *states: State, **more: Any) -> ClusterHealth:
    """Return a cluster with a unit in each of these states, each of its own kind."""
    units = tuple(
        health(name, state, plural=f"databases{number or ''}")
        for number, state in enumerate(states)
    )
    return ClusterHealth(name, "eu", units, **more)


def board(
    *clusters: ClusterHealth, time: float = 0, unread: Iterable[tuple[str, str]] = ()
) -> Board:
    unseen = tuple(UnseenCluster(name, why) for name, why in unread)
    return Board("acme", COMMIT, at(time), clusters, unseen)


def stopped(*planes: str, time: float = 0) -> Board:
    """Return the board of a fleet that is well, but for the backends of these control planes."""
    well = board(cluster("cafe", State.READY), cluster("shop", State.READY), time=time)
    found = (PlaneHealth(one, State.DEGRADED, "BackendStopped", "it stopped") for one in planes)
    return replace(well, planes=tuple(found))


def board_of(state: FleetState) -> Board:
    assert state.board is not None
    return state.board


def fleet(revision: str = COMMIT, *names: str, digest: str = "") -> Fleet:
    made = fleets.fleet(clusters=map(fleets.app_cluster, names or ("shop", "cafe")))
    return replace(made, revision=revision, digest=digest or f"files of {revision[:1]}")


def record(result: str = "nothing", *, time: float = 0, **more: Any) -> RoundRecord:
    values: dict[str, Any] = {"seconds": 1.0, "trigger": Trigger.DRIFT, "revision": COMMIT}
    return RoundRecord(ended_at=at(time), result=result, **(values | more))


def ended(
    state: FleetState,
    result: str = "nothing",
    *,
    time: float = 0,
    scope: Scope = None,
    board: Board | None = None,
    of: Report | None = None,
    **more: Any,
) -> FleetState:
    task = Task(Trigger.DRIFT, scope)
    came_to = RoundResult(of or report(), board)
    return fleet_state.round_ended(state, task, came_to, record(result, time=time, **more))


def begun() -> FleetState:
    """Return the state once the files were read, and before any round."""
    return fleet_state.source_read(FleetState(name="acme"), fleet(), None, now=at(0))


def at_rest() -> FleetState:
    good = board(cluster("cafe", State.READY), cluster("shop", State.READY), time=10)
    return ended(begun(), "done", time=10, board=good, done=2)


def kstatus(live: Any) -> str:
    """Return Current, InProgress, Failed or Terminating, by its rules in their order.

    An object that is going is Terminating. One whose newest generation was not observed is
    InProgress. The first that is True of Reconciling and Stalled makes it InProgress, or Failed.
    Else Ready decides: True is Current, anything else InProgress, and without it, Current.
    """
    metadata, status = live["metadata"], live.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions", [])
    for one in conditions:
        if one["status"] == "True" and one["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if one["type"] == "Reconciling" else "Failed"
    ready = [one["status"] for one in conditions if one["type"] == "Ready"]
    return "Current" if not ready or ready[0] == "True" else "InProgress"
