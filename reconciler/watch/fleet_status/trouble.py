"""Finds what is wrong in a fleet, the worst of each app cluster, out of its state."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler.core.live import control_plane_ref_name
from reconciler.health.board import ClusterHealth
from reconciler.health.verdict import State
from reconciler.planning.changes import Action
from reconciler.watch.agenda import AGAIN
from reconciler.watch.fleet_state import FleetState

NOT_READ: Final = "NotRead"
APPLY_FAILED: Final = "ApplyFailed"
BLOCKED: Final = "Blocked"
_WORST: Final = (State.DEGRADED, State.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with one cluster: a word, a sentence, and since when where that is known."""

    cluster: str
    reason: str
    message: str
    since: datetime | None = None


def troubles(state: FleetState) -> tuple[Trouble, ...]:
    """Return the gravest trouble of each cluster that has any, by its name."""
    found: dict[str, Trouble] = {}
    for one in _all(state):
        found.setdefault(one.cluster, one)
    return tuple(found[name] for name in sorted(found))


def _all(state: FleetState) -> Iterator[Trouble]:
    """Yield all troubles, the gravest first."""
    board = state.board
    beats = {one.name: one.since for one in board.clusters} if board else {}
    for unread in board.unread if board else state.waiting.unseen:
        yield Trouble(unread.name, NOT_READ, unread.reason, beats.get(unread.name))
    for plane in board.planes if board else ():
        name = control_plane_ref_name(plane.name)
        yield Trouble(name, plane.reason, plane.message, plane.since)
    for change, outcome in state.waiting.lines:
        if outcome is not None and outcome.status in AGAIN:
            said = f"{change.subject}: {outcome.message or outcome.status.value}"
            yield Trouble(change.cluster, APPLY_FAILED, said)
        elif change.action is Action.BLOCKED:
            yield Trouble(change.cluster, BLOCKED, f"{change.subject}: {change.reason}")
    for storm in state.storms:
        said = f"{storm.object} is changed back by {storm.manager or 'another manager'}"
        yield Trouble(storm.cluster, "DriftStorm", said)
    for state_of in _WORST:
        for cluster in board.clusters if board else ():
            yield from _of_cluster(cluster, state_of)


def _of_cluster(cluster: ClusterHealth, state: State) -> Iterator[Trouble]:
    if cluster.state is state:
        yield Trouble(cluster.name, state.value, cluster.message, cluster.since)
    for unit in cluster.units:
        health = unit.health
        if health.state is state:
            said = f"{health.unit.name}: {health.message or health.reason}"
            yield Trouble(cluster.name, health.reason or state.value, said, health.since)
