"""Measures how long commits and units take until they are in place. Pure: times are passed in."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from reconciler.apply import Report, Status
from reconciler.health.board import Board, BoundUnit
from reconciler.planning.changes import Action
from reconciler.watch.fleet_state import FleetState

if TYPE_CHECKING:
    from reconciler.fleet.values import UnitKey

_MADE: Final = frozenset({Action.CREATE, Action.UPDATE, Action.REPLACE, Action.ADOPT})


class CommitWait:
    """The time from the first look at a commit until nothing is left to do for it.

    While a guard or a suspension holds it back, people are waited for, and no time is counted. The
    commit that a process finds at its start is left out: nobody knows when it came.
    """

    def __init__(self) -> None:
        self._began: datetime | None = None
        self._held = 0.0
        self._held_since: float | None = None

    def after(self, before: FleetState, after: FleetState, now: float) -> float | None:
        """Take the next state; return the seconds where it is the first in which all is done."""
        if after.source.changed_at != before.source.changed_at:
            self._began = None if before.fleet is None else after.source.changed_at
            self._held, self._held_since = 0.0, None
        if self._began is None:
            return None
        self._count_hold(held=bool(after.waiting.held or after.suspended), now=now)
        if before.applied_at is not None or after.applied_at is None:
            return None
        took = after.applied_at - self._began
        self._began = None
        return max(took.total_seconds() - self._held, 0.0)

    def _count_hold(self, *, held: bool, now: float) -> None:
        if held and self._held_since is None:
            self._held_since = now
        elif not held and self._held_since is not None:
            self._held += now - self._held_since
            self._held_since = None


class ReadyWaits:
    """The time from the round that wrote a unit until the unit is Ready."""

    def __init__(self) -> None:
        self._written: dict[str, dict[UnitKey, tuple[Action, float]]] = {}  # by cluster

    def written(self, report: Report, began: float) -> None:
        """Take the lines of a round that began then."""
        for outcome in report.outcomes:
            change = outcome.change
            done = outcome.status is Status.DONE and change.action in _MADE
            if done and change.unit is not None:
                of_cluster = self._written.setdefault(change.cluster, {})
                of_cluster.setdefault(change.unit, (change.action, began))

    def after(self, before: Board | None, after: Board | None) -> Iterator[tuple[Action, float]]:
        """Take the next board; yield the action and seconds of each unit that is Ready now."""
        if after is None or after is before or not self._written:
            return
        known = {} if before is None else {one.name: one for one in before.clusters}
        for cluster in after.clusters:
            waiting = self._written.get(cluster.name)
            if waiting is None or known.get(cluster.name) is cluster:
                continue
            units = {one.health.unit: one for one in cluster.units}
            for key, (action, began) in list(waiting.items()):
                unit = units.get(key)
                if unit is None or unit.health.ready:
                    del waiting[key]
                if unit is not None and unit.health.ready:
                    yield action, max(_ready_at(unit, after.time, began) - began, 0.0)
            if not waiting:
                del self._written[cluster.name]


def _ready_at(unit: BoundUnit, looked: datetime, began: float) -> float:
    """Return when the unit became Ready: as it says, or when it was found where it stayed so."""
    since = unit.health.since
    if since is not None and unit.health.exact and since.timestamp() > began:
        return since.timestamp()
    return looked.timestamp()
