"""Collects the health of all units of a fleet, by cluster and binding (mapping.md 11).

Pure: built from the state that `observe` read, and from the CRDs. A unit that is blocked in a plan
is Degraded here, and one in an unread cluster is Unknown.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

from reconciler.api import CLUSTER_BINDING, heartbeat_of
from reconciler.api.leases import Stops, Trouble
from reconciler.core import keys, names, times
from reconciler.core.errors import Origin
from reconciler.core.live import ClusterState, Live, Unavailable, control_plane_ref_name
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of
from reconciler.core.refs import CRD, NAMESPACE
from reconciler.core.times import moment
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import AppCluster, Fleet, Mode, PruneMode, Unit, UnitKey
from reconciler.fleet.wanted import default_placement
from reconciler.health.live_units import LiveUnits, location_of
from reconciler.health.verdict import State, UnitHealth, awaits_definition, judge
from reconciler.planning import app_cluster_bindings, preflight, prune_clusters, prune_units, roots
from reconciler.planning.changes import UnseenCluster
from reconciler.planning.placement import Blocked
from reconciler.planning.site import Index, Site

# Nobody takes the note off where the copies are deleted later.
_KEPT: Final = "sync has stopped; its copies on the control plane were kept"

Definitions: TypeAlias = Mapping[str, Manifest | None]


TROUBLED: Final = (State.DEGRADED, State.UNKNOWN)
UNREADY: Final = (*TROUBLED, State.PROGRESSING)
_WORST_FIRST: Final = (
    *UNREADY,
    State.SUSPENDED,
    State.READY,
    State.RELEASED,  # of a unit or a cluster that left, and says nothing of what stays
)
RANK: Final[Mapping[State, int]] = {state: rank for rank, state in enumerate(_WORST_FIRST)}


def worst(states: Iterable[State]) -> State | None:
    """Return the state that needs people most; None of none."""
    return min(states, key=RANK.__getitem__, default=None)


@dataclass(frozen=True, slots=True)
class BoundUnit:
    """A unit on the board. `binding` is the name of its Binding, "" where no document names it.

    `leaving`: it is live, and not in the files. `origin` is the place of its Binding there.
    """

    binding: str
    health: UnitHealth
    leaving: bool = False
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of an app cluster: its units, by Binding and name.

    `state` is that of the cluster as a whole, where there is one: Suspended, Released, Unknown
    (not read), Degraded (held back). `message` says why; `since` is None where it is unknown.
    """

    name: str
    control_plane: str
    units: tuple[BoundUnit, ...] = ()
    state: State | None = None
    message: str = ""
    since: datetime | None = None

    @property
    def way(self) -> tuple[str, str]:
        """The names of the clusters that have to be read for it, as in `Board.unread`."""
        return self.name, control_plane_ref_name(self.control_plane)


@dataclass(frozen=True, slots=True)
class PlaneHealth:
    """A control plane with a problem that affects all its app clusters."""

    name: str
    state: State
    reason: str
    message: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """All clusters by name. `unread` are those that could not be read, control planes too.

    `planes` are the control planes on which something is wrong. `ahead` is by how many seconds our
    clock is ahead of all clusters, 0 where some agree with it.
    """

    fleet: str
    revision: str
    time: datetime
    clusters: tuple[ClusterHealth, ...]
    unread: tuple[UnseenCluster, ...] = ()
    planes: tuple[PlaneHealth, ...] = ()
    ahead: float = 0.0

    @property
    def units(self) -> Iterator[BoundUnit]:
        for cluster in self.clusters:
            yield from cluster.units

    def counts(self) -> dict[State, int]:
        """Return how many units are in each state; every state is there."""
        counted = Counter(unit.health.state for unit in self.units)
        return {state: counted[state] for state in State}


@dataclass(frozen=True, slots=True)
class ClusterUnits:
    """The units of one app cluster that was read, and their live objects."""

    control_plane: str
    live: LiveUnits
    wanted: tuple[Unit, ...]
    leaving: tuple[UnitKey, ...] = ()

    def awaited(self) -> frozenset[str]:
        """Return the names of the CRDs that have to be read in the app cluster."""
        units = (*(unit.key for unit in self.wanted), *self.leaving)
        return frozenset(
            unit.name for unit in units if awaits_definition(unit, self.live.facts(unit))
        )

    def judged(
        self, crds: Definitions, now: datetime, trouble: Trouble | None, released: Iterable[UnitKey]
    ) -> tuple[BoundUnit, ...]:
        """Return how each unit is; `trouble` is that of their konnector.

        Of the `released` ones, those that are not bound again.
        """

        def health(unit: UnitKey) -> UnitHealth:
            return judge(unit, self.live.facts(unit, crds.get(unit.name), trouble), now=now)

        wanted = (BoundUnit(one.binding, health(one.key), origin=one.origin) for one in self.wanted)
        bound = {*(one.key for one in self.wanted), *self.leaving}
        gone = (
            BoundUnit("", UnitHealth(unit, State.RELEASED, "Released", _KEPT), leaving=True)
            for unit in released
            if unit not in bound and not self.live.is_bound(unit)
        )
        leaving = (BoundUnit("", health(unit), leaving=True) for unit in self.leaving)
        return (*wanted, *leaving, *gone)


@dataclass(frozen=True, slots=True)
class FleetView:
    """The source of a board. `clusters` are those that were read and found, by name.

    `only` are the app clusters that are asked for, None = all; `planes` those that were read.
    """

    fleet: Fleet
    live: Live
    only: frozenset[str] | None
    planes: Mapping[str, Index]
    clusters: Mapping[str, ClusterUnits]
    blocked: Mapping[str, Blocked]

    def asks_for(self, cluster: str) -> bool:
        return self.only is None or cluster in self.only


def view_of(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> FleetView:
    """Find the units of all app clusters, or `only` some, in the read states."""
    planes = preflight.control_planes(fleet, live)
    asked = frozenset(only) if only is not None else None
    preflights = preflight.preflights(fleet, live, planes, sorted(asked or fleet.clusters))
    wanted = units_by_cluster(fleet)
    clusters = {
        name: _cluster_units(fleet, fleet.clusters[name], site, wanted.get(name, ()))
        for name, site in preflights.items()
        if isinstance(site, Site)
    }
    removed = {
        name: units
        for name, units in _removed_units(fleet, live, planes).items()
        if asked is None or name in asked
    }
    blocked = {name: one for name, one in preflights.items() if isinstance(one, Blocked)}
    return FleetView(fleet, live, asked, planes, clusters | removed, blocked)


_NO_STOPS: Final = Stops()
_NONE_RELEASED: Final[Mapping[str, Collection[str]]] = {}


def board(
    view: FleetView,
    crds: Mapping[str, Definitions | Unavailable],
    *,
    now: datetime,
    stops: Stops = _NO_STOPS,
    released: Mapping[str, Collection[str]] = _NONE_RELEASED,
) -> Board:
    """Return the board at `now` (UTC); `crds` has the CRDs of `ClusterUnits.awaited`, by cluster.

    `released` are resources, by app cluster, as a konnector has noted them: only those count that
    the control plane knows.
    """
    fleet = view.fleet
    failed = {name: one for name, one in crds.items() if isinstance(one, Unavailable)}
    read = {name: one for name, one in crds.items() if not isinstance(one, Unavailable)}
    wanted = units_by_cluster(fleet)
    clusters = [
        ClusterHealth(
            name,
            units.control_plane,
            ordered(
                units.judged(
                    read.get(name, {}),
                    now,
                    stops.konnectors.get(name),
                    _released_units(view, name, released.get(name, ())),
                )
            ),
        )
        for name, units in view.clusters.items()
        if name not in failed
    ]
    judged = {one.name for one in clusters}
    clusters += (
        _with_units(_whole(view, cluster, failed.get(name)), wanted.get(name, ()))
        for name, cluster in fleet.clusters.items()
        if view.asks_for(name) and name not in judged
    )
    clusters += _released(view, {one.name for one in clusters if one.units})
    unread = tuple(_unread(view, failed))
    planes = tuple(_stopped(name, at, now) for name, at in sorted(stops.backends.items()))
    last = {one.name: one for one in clusters}  # the last word on each
    once = tuple(last[name] for name in sorted(last))
    return Board(fleet.name, fleet.revision, now, once, unread, planes)


def _released_units(view: FleetView, cluster: str, names: Collection[str]) -> Iterator[UnitKey]:
    plane = view.planes[view.clusters[cluster].control_plane]
    for name in sorted(names):
        if plane.get(CRD, "", name) is not None:
            resource, _, group = name.partition(".")
            yield UnitKey(cluster, group, resource)


def _stopped(name: str, at: datetime, now: datetime) -> PlaneHealth:
    message = (
        f"klutch-bind has not renewed its Lease {names.BACKEND_LEASE} since"
        f" {times.format_time(at)}: check whether it runs, and whether the control plane takes"
        " writes. Existing bindings continue, and there are no new ones"
    )
    return PlaneHealth(name, State.DEGRADED, "BackendStopped", message, min(at, now))


def _cluster_units(
    fleet: Fleet, cluster: AppCluster, site: Site, wanted: Sequence[Unit]
) -> ClusterUnits:
    mode = fleet.control_planes[cluster.control_plane].mode
    leaving: tuple[UnitKey, ...] = ()
    if fleet.guards.mode is not PruneMode.OFF:
        rules = prune_units if mode is Mode.DIRECT else app_cluster_bindings
        leaving = tuple(prune.key for prune in rules.prunes(site))
    return ClusterUnits(cluster.control_plane, _live_units(site, mode), tuple(wanted), leaving)


def _removed_units(
    fleet: Fleet, live: Live, planes: Mapping[str, Index]
) -> dict[str, ClusterUnits]:
    """Return the clusters that no document names and that still carry units of ours."""
    clusters: dict[str, ClusterUnits] = {}
    known = prune_clusters.known_of(fleet, live)
    for name, seen in prune_clusters.removed(fleet, live).items():
        if isinstance(seen, Unavailable):
            continue
        app = Index(name, seen)
        for plane_name, plane in sorted(planes.items()):
            for gone in prune_clusters.cluster_prunes(known, plane, app):
                mode = Mode.DIRECT if gone.kind == NAMESPACE else Mode.APP_CLUSTER_BINDING
                units = tuple(prune.key for prune in gone.prunes)
                here = _live_units(gone.site, mode)
                clusters.setdefault(name, ClusterUnits(plane_name, here, (), units))
    return clusters


def _live_units(site: Site, mode: Mode) -> LiveUnits:
    location = location_of(site, mode)
    return LiveUnits(location, on_plane=site.control_plane.inside, in_app=site.app.inside)


def _whole(view: FleetView, cluster: AppCluster, failed: Unavailable | None) -> ClusterHealth:
    """Return a cluster of the files with units that cannot be separated."""
    seen = failed or view.live.clusters.get(cluster.name, Unavailable("it was not read"))
    blocked = view.blocked.get(cluster.name)
    base = ClusterHealth(cluster.name, cluster.control_plane)
    if cluster.suspended is not None:
        return replace(base, state=State.SUSPENDED, message=cluster.suspended)
    if blocked is not None:
        return replace(base, state=State.DEGRADED, message=blocked.reason)
    why = seen.reason if isinstance(seen, Unavailable) else "its control plane was not read"
    beat = _last_beat(view, cluster)
    if beat is not None:
        why = f"{why}; its konnector's last heartbeat was at {times.format_time(beat)}"
    return replace(base, state=State.UNKNOWN, message=why, since=beat)


def _with_units(whole: ClusterHealth, wanted: Iterable[Unit]) -> ClusterHealth:
    assert whole.state is not None
    reason = {State.SUSPENDED: "Suspended", State.DEGRADED: "HeldBack"}.get(whole.state, "NotRead")
    units = (
        BoundUnit(
            unit.binding,
            UnitHealth(unit.key, whole.state, reason, whole.message, whole.since),
            origin=unit.origin,
        )
        for unit in wanted
    )
    return replace(whole, units=ordered(units))


def _last_beat(view: FleetView, cluster: AppCluster) -> datetime | None:
    """Return when a konnector last spoke to the control plane for a cluster that was not read."""
    plane = view.planes.get(cluster.control_plane)
    if plane is None:
        return None
    spaces = {
        name_of(one)
        for one in plane.labelled(NAMESPACE, keys.CLUSTER).get(cluster.name, ())
        if labels_of(one).get(keys.FLEET) == view.fleet.name
    } or {default_placement(view.fleet, cluster).space}
    beats = (
        heartbeat_of(plane.get(CLUSTER_BINDING, space, names.CLUSTER_BINDING)) for space in spaces
    )
    return max((one.time for one in beats if one is not None), default=None)


def _released(view: FleetView, bound: Collection[str]) -> Iterator[ClusterHealth]:
    """Yield the clusters of this fleet with a released space or AppClusterBinding."""
    seen = {name: plane.seen for name, plane in view.planes.items()}
    for plane_name, plane in sorted(seen.items()):
        for _, one in roots.carriers(view.fleet, roots.documents_of(seen, plane.uid), plane):
            name = labels_of(one).get(keys.CLUSTER, "")
            released = annotations_of(one).get(keys.RELEASED)
            if released is not None and name not in bound and view.asks_for(name):
                yield ClusterHealth(
                    name,
                    plane_name,
                    state=State.RELEASED,
                    message="sync has stopped; its space and its data stay",
                    since=moment(released),
                )


def _unread(view: FleetView, failed: Mapping[str, Unavailable]) -> Iterator[UnseenCluster]:
    live, fleet = view.live, view.fleet
    awake = (
        name
        for name, cluster in fleet.clusters.items()
        if view.asks_for(name) and cluster.suspended is None
    )
    seen: dict[str, ClusterState | Unavailable] = {
        **{control_plane_ref_name(name): one for name, one in live.control_planes.items()},
        **{name: live.clusters.get(name, Unavailable("it was not read")) for name in awake},
        **prune_clusters.removed(fleet, live),
        **failed,
    }
    for name in sorted(seen):
        one = seen[name]
        if isinstance(one, Unavailable):
            yield UnseenCluster(name, one.reason, one.remedy)


def ordered(units: Iterable[BoundUnit]) -> tuple[BoundUnit, ...]:
    """Return units in the order of a board: those that leave come last."""
    return tuple(sorted(units, key=lambda one: (one.leaving, one.binding, one.health.unit)))
