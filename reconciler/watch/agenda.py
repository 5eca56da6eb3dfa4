"""Decides the next round of a watch: its app clusters, and its time. Pure.

A narrow round reads some clusters only, and has to decide as a full round would. So it is only
for changes within one app cluster. The list of clusters, their connections and the guards concern
all clusters, and need a full round.

A narrow round also includes the clusters with unfinished changes of earlier rounds. Otherwise a
guard that stopped changes in many clusters at once would let them pass one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from reconciler.apply import Report, Status
from reconciler.core.errors import Origin
from reconciler.core.live import control_plane_ref_name
from reconciler.fleet.values import AppCluster, Fleet, Unit
from reconciler.planning.changes import Action

Scope: TypeAlias = frozenset[str] | None  # names of app clusters; None is everything
K = TypeVar("K")
V = TypeVar("V", AppCluster, Unit)

_JITTER: Final = 0.1  # of an interval, either way
AGAIN: Final = frozenset(
    {Status.FAILED, Status.STALE, Status.UNCONFIRMED, Status.INTERRUPTED},
)
_WAITING: Final = frozenset({Status.HELD, Status.SKIPPED})
# Guards that look at control planes beside a cluster's own.
_ELSEWHERE: Final = frozenset({"moved"})
_NOBODY: Final[frozenset[str]] = frozenset()
_NOWHERE: Final = Origin("")


class Trigger(StrEnum):
    """The reason for a round."""

    SOURCE = "source"  # the files say something new
    RETRY = "retry"  # something was left undone
    DRIFT = "drift"  # it is time to look whether everything is still so


@dataclass(frozen=True, slots=True)
class Task:
    """A round, and which app clusters it is about."""

    trigger: Trigger
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Times in seconds: `interval` from one look at everything to the next.

    A retry comes after `first_retry`, and then after twice as long each time, up to `interval`.
    """

    interval: float
    first_retry: float = 2.0


@dataclass(frozen=True, slots=True)
class Left:
    """The clusters that a round left undone: worth another try soon, or waiting for people."""

    again: Scope = _NOBODY
    waiting: Scope = _NOBODY


@dataclass(frozen=True, slots=True)
class Agenda:
    """All that there is to do. Times are those of one monotonic clock.

    `pending` are clusters that are not as the files say; not all of them are worth a retry.
    """

    everything_at: float
    changed: Scope = None
    pending: Scope = _NOBODY
    retry_at: float | None = None
    tries: int = 0

    @property
    def next_at(self) -> float:
        """When something will be due that is not due by the files."""
        if self.retry_at is None:
            return self.everything_at
        return min(self.everything_at, self.retry_at)


def due(agenda: Agenda, now: float) -> Task | None:
    changed = agenda.changed is None or bool(agenda.changed)
    if now >= agenda.everything_at:
        return Task(Trigger.SOURCE if changed else Trigger.DRIFT, None)
    if changed:
        return Task(Trigger.SOURCE, union(agenda.changed, agenda.pending))
    if agenda.retry_at is not None and now >= agenda.retry_at:
        return Task(Trigger.RETRY, agenda.pending)
    return None


def after(
    agenda: Agenda, task: Task, left: Left, *, now: float, jitter: float, terms: Terms
) -> Agenda:
    """Return the agenda after a round that ended at `now`. `jitter` is from 0 to 1."""
    tries = 0 if task.trigger is Trigger.SOURCE else agenda.tries
    again = left.again is None or bool(left.again)
    everything_at = agenda.everything_at
    if task.scope is None:
        everything_at = now + terms.interval * (1 + _JITTER * (2 * jitter - 1))
    return Agenda(
        everything_at=everything_at,
        changed=_NOBODY,
        pending=union(left.again, left.waiting),
        retry_at=now + pause(tries, jitter, first=terms.first_retry, longest=terms.interval)
        if again
        else None,
        tries=tries + 1 if again else 0,
    )


def pause(tries: int, jitter: float, *, first: float, longest: float) -> float:
    """Return the pause after so many failed tries: up to half less than it could be."""
    exponent = min(tries, 32)  # beyond it every pause is the longest
    return min(longest, first * 2.0**exponent) * (0.5 + jitter / 2)


def left(fleet: Fleet, report: Report) -> Left:
    plan = report.plan
    planes = {control_plane_ref_name(name) for name in fleet.control_planes}
    again = {cluster.name for cluster in plan.unseen} - planes
    again |= {outcome.change.cluster for outcome in report.outcomes if outcome.status in AGAIN}
    waiting = {outcome.change.cluster for outcome in report.outcomes if outcome.status in _WAITING}
    waiting |= {change.cluster for change in plan.changes if change.action is Action.BLOCKED}
    waiting |= {name for guarded in plan.held for name in guarded.clusters}
    if report.lock_lost:
        again |= plan.sections.keys()
    # Only a look at everything tells whether that is over.
    elsewhere = any(guarded.guard in _ELSEWHERE for guarded in plan.held)
    return Left(frozenset(again), None if elsewhere else frozenset(waiting))


def concerned(before: Fleet, after: Fleet) -> Scope:
    """Return the app clusters that the difference of two fleets is about; empty where none is."""
    if before.digest == after.digest and before.suspended == after.suspended:
        return frozenset()
    if _together(before) != _together(after):
        return None
    units = _differing(before.units, after.units)
    return frozenset(unit.cluster for unit in units) | _differing(before.clusters, after.clusters)


def union(one: Scope, other: Scope) -> Scope:
    return None if one is None or other is None else one | other


def _together(fleet: Fleet) -> object:
    """Return the settings that concern all clusters, so that a change of one looks at all."""
    planes = {name: replace(plane, origin=_NOWHERE) for name, plane in fleet.control_planes.items()}
    ways = {name: _way(cluster) for name, cluster in fleet.clusters.items()}
    elsewhere = fleet.elsewhere, fleet.ways_elsewhere
    return fleet.name, fleet.guards, fleet.suspended, elsewhere, planes, ways


def _way(cluster: AppCluster) -> object:
    return (
        cluster.access,
        cluster.control_plane,
        cluster.identity,
        cluster.adopt,
        cluster.app_cluster_binding,
        cluster.suspended,
    )


def _differing(before: Mapping[K, V], after: Mapping[K, V]) -> frozenset[K]:
    changed = (key for key, new in after.items() if _differs(before.get(key), new))
    return frozenset(before.keys() - after.keys()).union(changed)


def _differs(old: V | None, new: V) -> bool:
    """Compare identities first: there are tens of thousands, and few of them are new."""
    return old is not new and (old is None or (old != new and _bare(old) != _bare(new)))


def _bare(value: AppCluster | Unit) -> AppCluster | Unit:
    """Return it without places, which move with every line above them."""
    if isinstance(value, AppCluster):
        return replace(value, origin=_NOWHERE)
    claimed = tuple(replace(claim, origin=_NOWHERE) for claim in value.claims)
    return replace(value, origin=_NOWHERE, claims=claimed)
