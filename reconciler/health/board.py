"""A whole fleet at a glance: clusters x bindings, each with its state (mapping.md 11).

Pure: made from what `observe` saw and the CRDs that were read beside it. What a plan calls
blocked is Degraded here, and what it calls unseen is Unknown.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.core import durations, keys, names
from reconciler.core.heartbeat import beat_of
from reconciler.core.live import Live, Seen, Unseen, control_plane_ref_name
from reconciler.core.manifest import Manifest, annotations_of, labels_of, name_of
from reconciler.core.moments import moment
from reconciler.core.refs import NAMESPACE
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import AppCluster, Fleet, Mode, PruneMode, Unit, UnitKey
from reconciler.fleet.wanted import default_placement
from reconciler.health.place import Found, place_at
from reconciler.health.verdict import State, UnitHealth, awaits_definition, judge
from reconciler.planning import app_cluster_bindings, preflight, prune_clusters, prune_units
from reconciler.planning.changes import UnseenCluster
from reconciler.planning.index import Index
from reconciler.planning.placement import Blocked
from reconciler.planning.units import Site

Definitions: TypeAlias = Mapping[str, Manifest | None]


@dataclass(frozen=True, slots=True)
class Bound:
    """One unit on the board. `binding` is the name of its Binding, "" where no document names it.

    `leaving`: it is live, and not in the files.
    """

    binding: str
    health: UnitHealth
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """One app cluster: its units, by Binding and name.

    `state` is that of the cluster as a whole, where there is one: Suspended, Released, Unknown
    (not read), Degraded (held back). `message` says why; `since` is None where nobody knows.
    """

    name: str
    control_plane: str
    units: tuple[Bound, ...] = ()
    state: State | None = None
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """All clusters by name. `unread` are those that could not be read, control planes too."""

    fleet: str
    revision: str
    time: datetime
    clusters: tuple[ClusterHealth, ...]
    unread: tuple[UnseenCluster, ...] = ()

    @property
    def units(self) -> Iterator[Bound]:
        """Every unit, in order."""
        for cluster in self.clusters:
            yield from cluster.units


@dataclass(frozen=True, slots=True)
class Spot:
    """One app cluster that was read, and what is there."""

    control_plane: str
    site: Site
    found: Found
    units: tuple[tuple[UnitKey, str, bool], ...]  # unit, binding, leaving

    def awaited(self) -> frozenset[str]:
        """Return the names of the CRDs that have to be read in the app cluster."""
        return frozenset(
            unit.name
            for unit, _, _ in self.units
            if awaits_definition(unit, self.found.facts(unit))
        )

    def judged(self, crds: Definitions, now: datetime) -> tuple[Bound, ...]:
        """Return all its units."""
        return tuple(
            Bound(
                binding,
                judge(unit, self.found.facts(unit, crds.get(unit.name)), now=now),
                is_leaving,
            )
            for unit, binding, is_leaving in self.units
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """What a board is made of. `spots` are the clusters that were read and found, by name.

    `only` are the app clusters that are asked for, None = all; `planes` those that were read.
    """

    fleet: Fleet
    live: Live
    only: frozenset[str] | None
    planes: Mapping[str, Index]
    spots: Mapping[str, Spot]
    blocked: Mapping[str, Blocked]

    def asks_for(self, cluster: str) -> bool:
        """Tell whether a cluster belongs on the board."""
        return self.only is None or cluster in self.only


def scene(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Scene:
    """Find the units of all app clusters, or `only` some, in what was seen."""
    planes = {
        name: Index(control_plane_ref_name(name), seen)
        for name, seen in live.control_planes.items()
        if isinstance(seen, Seen) and name in fleet.control_planes
    }
    asked = frozenset(only) if only is not None else None
    preflights = preflight.preflights(fleet, live, planes, sorted(asked or fleet.clusters))
    wanted = units_by_cluster(fleet)
    spots = {
        name: _spot(fleet, fleet.clusters[name], site, wanted.get(name, ()))
        for name, site in preflights.items()
        if isinstance(site, Site)
    }
    blocked = {name: one for name, one in preflights.items() if isinstance(one, Blocked)}
    left = {
        name: spot
        for name, spot in _left(fleet, live, planes).items()
        if asked is None or name in asked
    }
    return Scene(fleet, live, asked, planes, spots | left, blocked)


def board(made: Scene, crds: Mapping[str, Definitions | Unseen], *, now: datetime) -> Board:
    """Return the board at `now` (UTC); `crds` holds, by cluster, what `Spot.awaited` names."""
    fleet = made.fleet
    failed = {name: one for name, one in crds.items() if isinstance(one, Unseen)}
    known = {name: one for name, one in crds.items() if not isinstance(one, Unseen)}
    units = units_by_cluster(fleet)
    clusters = [
        ClusterHealth(name, spot.control_plane, ordered(spot.judged(known.get(name, {}), now)))
        for name, spot in made.spots.items()
        if name not in failed
    ]
    told = {one.name for one in clusters}
    clusters += (
        _with_units(_whole(made, cluster, failed.get(name)), units.get(name, ()))
        for name, cluster in fleet.clusters.items()
        if made.asks_for(name) and name not in told
    )
    clusters += _released(made, {one.name for one in clusters if one.units})
    unread = tuple(_unread(made, failed))
    return Board(fleet.name, fleet.revision, now, _distinct(clusters), unread)


def _spot(fleet: Fleet, cluster: AppCluster, site: Site, wanted: Sequence[Unit]) -> Spot:
    mode = fleet.control_planes[cluster.control_plane].mode
    units = [(unit.key, unit.binding, False) for unit in wanted]
    if fleet.guards.mode is not PruneMode.OFF:
        rules = prune_units if mode is Mode.DIRECT else app_cluster_bindings
        units += [(one.key, "", True) for one in rules.prunes(site, cluster.name)]
    return Spot(cluster.control_plane, site, _found(site, mode), tuple(units))


def _left(fleet: Fleet, live: Live, planes: Mapping[str, Index]) -> dict[str, Spot]:
    """Return the clusters that no document names and that still carry units of ours."""
    spots: dict[str, Spot] = {}
    for name, seen in prune_clusters.removed(fleet, live).items():
        if isinstance(seen, Unseen):
            continue
        app = Index(name, seen)
        for plane_name, plane in sorted(planes.items()):
            for gone in prune_clusters.cluster_prunes(fleet, live, plane, app):
                mode = Mode.DIRECT if gone.kind == NAMESPACE else Mode.APP_CLUSTER_BINDING
                units = tuple((one.key, "", True) for one in gone.prunes)
                spots.setdefault(name, Spot(plane_name, gone.site, _found(gone.site, mode), units))
    return spots


def _found(site: Site, mode: Mode) -> Found:
    place = place_at(site, mode)
    return Found(place, on_plane=site.control_plane.inside, in_app=site.app.inside)


def _whole(made: Scene, cluster: AppCluster, failed: Unseen | None) -> ClusterHealth:
    """Return a cluster of the files whose units cannot be told one by one."""
    seen = failed or made.live.clusters.get(cluster.name, Unseen("it was not read"))
    blocked = made.blocked.get(cluster.name)
    base = ClusterHealth(cluster.name, cluster.control_plane)
    if cluster.suspended is not None:
        return replace(base, state=State.SUSPENDED, message=cluster.suspended)
    if blocked is not None:
        return replace(base, state=State.DEGRADED, message=blocked.reason)
    why = seen.reason if isinstance(seen, Unseen) else "its control plane was not read"
    beat = _last_beat(made, cluster)
    if beat is not None:
        why = f"{why}; its konnector's last heartbeat was at {durations.format_time(beat)}"
    return replace(base, state=State.UNKNOWN, message=why, since=beat)


def _with_units(whole: ClusterHealth, wanted: Iterable[Unit]) -> ClusterHealth:
    """Say of each unit what holds for its cluster."""
    assert whole.state is not None
    reason = {State.SUSPENDED: "Suspended", State.DEGRADED: "HeldBack"}.get(whole.state, "NotRead")
    units = (
        Bound(
            unit.binding,
            UnitHealth(unit.key, whole.state, reason, whole.message, whole.since),
        )
        for unit in wanted
    )
    return replace(whole, units=ordered(units))


def _last_beat(made: Scene, cluster: AppCluster) -> datetime | None:
    """Return when a konnector last spoke to the control plane for a cluster that was not read."""
    plane = made.planes.get(cluster.control_plane)
    if plane is None:
        return None
    spaces = {
        name_of(one)
        for one in plane.labelled(NAMESPACE, keys.CLUSTER).get(cluster.name, ())
        if labels_of(one).get(keys.FLEET) == made.fleet.name
    } or {default_placement(made.fleet, cluster).space}
    beats = (beat_of(plane.get(CLUSTER_BINDING, space, names.CLUSTER_BINDING)) for space in spaces)
    return max((one.time for one in beats if one is not None), default=None)


def _released(made: Scene, bound: Collection[str]) -> Iterator[ClusterHealth]:
    """Yield the clusters of this fleet whose space or AppClusterBinding was let go."""
    for plane_name, plane in sorted(made.planes.items()):
        for kind in (NAMESPACE, APP_CLUSTER_BINDING):
            for one in plane.labelled(kind, keys.FLEET).get(made.fleet.name, ()):
                name = labels_of(one).get(keys.CLUSTER, "")
                released = annotations_of(one).get(keys.RELEASED)
                if released is not None and name not in bound and made.asks_for(name):
                    yield ClusterHealth(
                        name,
                        plane_name,
                        state=State.RELEASED,
                        message="sync has stopped; its space and its data stay",
                        since=moment(released),
                    )


def _unread(made: Scene, failed: Mapping[str, Unseen]) -> Iterator[UnseenCluster]:
    live, fleet = made.live, made.fleet
    awake = (
        name
        for name, cluster in fleet.clusters.items()
        if made.asks_for(name) and cluster.suspended is None
    )
    seen: dict[str, Seen | Unseen] = {
        **{control_plane_ref_name(name): one for name, one in live.control_planes.items()},
        **{name: live.clusters.get(name, Unseen("it was not read")) for name in awake},
        **prune_clusters.removed(fleet, live),
        **failed,
    }
    for name in sorted(seen):
        one = seen[name]
        if isinstance(one, Unseen):
            yield UnseenCluster(name, one.reason, one.remedy)


def ordered(units: Iterable[Bound]) -> tuple[Bound, ...]:
    """Return units in the order of a board: those that leave come last."""
    return tuple(sorted(units, key=lambda one: (one.leaving, one.binding, one.health.unit)))


def _distinct(clusters: Iterable[ClusterHealth]) -> tuple[ClusterHealth, ...]:
    """Return each cluster once, the last word on it, by name."""
    by_name = {one.name: one for one in clusters}
    return tuple(by_name[name] for name in sorted(by_name))
