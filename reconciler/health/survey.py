"""Reads the health of units: of one app cluster during an apply, or of a whole fleet.

No failure of one cluster holds back another. Writes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from reconciler import api
from reconciler.controller.tasks import a_few
from reconciler.core import conditions, names
from reconciler.core import manifest as m
from reconciler.core.conditions import TRUE
from reconciler.core.errors import NotServed
from reconciler.core.live import ClusterState, Live, Unavailable
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.fleet.values import Access, Fleet, Mode, UnitKey
from reconciler.health import verdict
from reconciler.health.board import Board, ClusterUnits, Definitions, FleetView, board, view_of
from reconciler.health.live_units import LiveUnits, Location
from reconciler.health.verdict import ESTABLISHED
from reconciler.kube.cluster import Reader
from reconciler.observe import Clusters, Pace, agents
from reconciler.observe.agents import KonnectorPlace, Look
from reconciler.observe.observer import observed
from reconciler.observe.read_scope import RemovedCluster, removed_clusters
from reconciler.observe.visits import Incomplete, Visit, Visits, together

_KEPT: Final = ("name", "uid", "creationTimestamp")


class KeptDefinitions:
    """CRDs that were established when they were read last, by app cluster and name."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Manifest]] = {}

    def of(self, cluster: str, live: Live) -> Mapping[str, Manifest]:
        """Return those of an app cluster that are still there, by the last look."""
        seen, kept = live.clusters.get(cluster), self._kept.get(cluster, {})
        if not isinstance(seen, ClusterState):
            return {}
        return {
            name: kept[name]
            for one in seen.objects.get(CRD, ())
            if (name := m.name_of(one)) in kept
            and m.uid_of(one) == m.uid_of(kept[name])
            and not m.is_deleting(one)
        }

    def keep(self, cluster: str, read: Mapping[str, Manifest | None]) -> None:
        for name, one in read.items():
            if one is not None and conditions.get(one, ESTABLISHED, TRUE) is not None:
                metadata = m.get_map(one, "metadata")
                self._kept.setdefault(cluster, {})[name] = {
                    "metadata": {key: metadata[key] for key in _KEPT if key in metadata},
                    "status": {"conditions": [*m.get_maps(one, "status", "conditions")]},
                }


T = TypeVar("T")

_DEFAULTS: Final = Pace()
_CLOCK_OFF: Final = 60.0  # seconds; konnectors' heartbeats are too old beyond that
_WIDTH: Final = 4  # CRDs of a cluster read at once; each takes a connection of its own


async def survey(
    fleet: Fleet,
    clusters: Clusters,
    *,
    now: Callable[[], datetime],
    only: Collection[str] | None = None,
    pace: Pace = _DEFAULTS,
) -> Board:
    """Read all app clusters of a fleet, or `only` some, and return how their units are.

    `now` is asked after the reads, and gives UTC. A cluster that cannot be read is Unknown.
    """
    visits = Visits(clusters, pace)
    live = await observed(fleet, visits, only=only)
    return await _judged(view_of(fleet, live, only=only), visits, KeptDefinitions(), now=now)


async def judged(
    view: FleetView,
    clusters: Clusters,
    *,
    now: Callable[[], datetime],
    pace: Pace = _DEFAULTS,
    kept: KeptDefinitions | None = None,
) -> Board:
    """Read the objects that a view lacks, and return the health of all units then.

    That is the CRDs that units wait for, the Leases of konnectors and backends, and what was
    released. `kept` are CRDs that were read by looks before.
    """
    kept = KeptDefinitions() if kept is None else kept
    return await _judged(view, Visits(clusters, pace), kept, now=now)


async def _judged(
    view: FleetView, visits: Visits, kept: KeptDefinitions, *, now: Callable[[], datetime]
) -> Board:
    ways = ways_to(view)

    async def visit(name: str, read: Callable[[Visit], Awaitable[T]]) -> T | Unavailable:
        access, plane = ways[name]
        return await visits.app_cluster(name, access, read, control_plane=plane)

    async def again(name: str) -> Look:
        return await visit(name, lambda one: agents.konnector_in(one.reached.cluster))

    places = {name: _konnector_of(units) for name, units in view.clusters.items()}
    named = [name for name, units in view.clusters.items() if _asks_in_app(units)]
    hosted, released, found = await asyncio.gather(
        agents.on_planes(view.fleet, view.planes, places, visits),
        _released(view, visits),
        asyncio.gather(*(visit(name, partial(_in_app, view, name, kept)) for name in named)),
    )
    answers = dict(zip(named, found, strict=True))
    crds = {name: one if isinstance(one, Unavailable) else one[0] for name, one in answers.items()}
    in_app = {name: one[1] for name, one in answers.items() if not isinstance(one, Unavailable)}
    # What works on a control plane has no Lease in the app cluster.
    looked = replace(hosted, konnectors={**in_app, **hosted.konnectors})
    stops = await agents.stops(view.fleet, places, visits, looked, again=again, now=now)
    made = board(view, crds, stops=stops, released=released, now=now())
    return replace(made, ahead=ahead_of_all(visits.clocks.values()))


def ahead_of_all(clocks: Collection[float]) -> float:
    """Return by how many seconds our clock is ahead of all others (< 0: behind), or 0.

    `clocks` are the differences. Where some agree with ours, it is not ours that is wrong.
    """
    least = min(clocks, key=abs, default=0.0)
    is_ours = all(one * least > 0 for one in clocks) and abs(least) >= _CLOCK_OFF
    return least if is_ours else 0.0


async def _released(view: FleetView, visits: Visits) -> Mapping[str, frozenset[str]]:
    """Return of which resources released copies were kept, by app cluster, where that is read."""

    async def read(_: str, visit: Visit) -> Mapping[str, frozenset[str]]:
        async with visit.turn.slot():
            cluster = visit.reached.cluster
            listing = await cluster.list(api.API_SERVICE_NAMESPACE, metadata_only=True)
        kinds: dict[str, frozenset[str]] = {}
        for mapping in listing.items:
            space = m.namespace_of(mapping)
            kinds[space] = kinds.get(space, frozenset()) | api.released_kinds(mapping)
        return kinds

    planes = {units.control_plane for units in view.clusters.values()}
    known = await visits.control_planes(view.fleet, planes, read)
    return {
        name: known.get(units.control_plane, {}).get(units.live.location.space, frozenset())
        for name, units in view.clusters.items()
    }


def _konnector_of(units: ClusterUnits) -> KonnectorPlace:
    location = units.live.location
    space = "" if location.mode is Mode.DIRECT else location.space
    return KonnectorPlace(units.control_plane, space, units.live.beat)


def _asks_in_app(units: ClusterUnits) -> bool:
    """Return whether something of a cluster's units has to be read in it."""
    some = bool(units.wanted or units.leaving)
    return bool(units.awaited()) or (some and units.live.location.mode is Mode.DIRECT)


async def _in_app(
    view: FleetView, name: str, kept: KeptDefinitions, visit: Visit
) -> tuple[Definitions, Look]:
    """Read the CRDs that units wait for, and the Lease of a konnector that works there."""
    known = kept.of(name, view.live)
    awaited = view.clusters[name].awaited() - known.keys()
    visit.waiting.extend(sorted(awaited))
    cluster = visit.reached.cluster
    async with visit.turn.slot():
        read = await definitions(cluster, awaited)
        kept.keep(name, read)
        works = view.clusters[name].live.location.mode is Mode.DIRECT
        return {**known, **read}, await agents.konnector_in(cluster) if works else None


def ways_to(view: FleetView) -> Mapping[str, tuple[Access, str]]:
    """Return the way to each app cluster: by its document, else by its space."""
    gone = removed_clusters(view.fleet, view.live.control_planes)
    ways = {
        name: (one.access, one.control_plane)
        for name, one in gone.items()
        if isinstance(one, RemovedCluster)
    }
    return ways | {
        name: (one.access, one.control_plane) for name, one in view.fleet.clusters.items()
    }


async def health_of(
    units: Collection[UnitKey],
    *,
    location: Location,
    control_plane: Reader,
    app: Reader,
    now: Callable[[], datetime],
) -> Mapping[UnitKey, verdict.UnitHealth]:
    """Return how each of the units, all of one app cluster, is now.

    `now` is asked after the reads, and gives UTC. Where a read fails, all are Unknown with the
    failure as the message: the caller may ask again. Raises nothing of its own.
    """
    try:
        live = await _live_units(location, control_plane, app)
        nearly = [unit for unit in units if verdict.awaits_definition(unit, live.facts(unit))]
        crds = await definitions(app, {unit.name for unit in nearly})
    except Incomplete as error:
        unread = partial(verdict.UnitHealth, state=verdict.State.UNKNOWN, reason="NotRead")
        return {unit: unread(unit, message=str(error.errors[0])) for unit in units}
    time = now()
    return {
        unit: verdict.judge(unit, live.facts(unit, crds.get(unit.name)), now=time) for unit in units
    }


async def definitions(app: Reader, units: Collection[str]) -> Mapping[str, Manifest | None]:
    """Return the CRDs of these names, None where absent. A list would hold all their schemas too.

    Raises Incomplete.
    """
    ordered = sorted(units)
    reads = a_few(_WIDTH, app.get, (Ref(app.name, CRD, "", name) for name in ordered))
    return dict(zip(ordered, await together(*reads), strict=True))


async def _live_units(location: Location, control_plane: Reader, app: Reader) -> LiveUnits:
    """List the live units at a location. Raises Incomplete."""
    direct = location.mode is Mode.DIRECT
    beats = Ref(control_plane.name, api.CLUSTER_BINDING, location.space, names.CLUSTER_BINDING)
    whole = Ref(control_plane.name, api.APP_CLUSTER_BINDING, *location.app_cluster_binding)
    holder = app if direct else control_plane
    exports, bindings, asked, clusters = await together(
        _list(control_plane, api.API_SERVICE_EXPORT, location.space, metadata_only=True),
        _list(holder, api.API_SERVICE_BINDING, location.bindings_namespace),
        _list(control_plane, api.API_SERVICE_EXPORT_REQUEST, location.space)
        if direct
        else _one(control_plane, whole),
        _one(control_plane, beats),
    )
    read = {
        api.API_SERVICE_EXPORT: exports,
        api.API_SERVICE_BINDING: bindings,
        api.API_SERVICE_EXPORT_REQUEST if direct else api.APP_CLUSTER_BINDING: asked,
        api.CLUSTER_BINDING: clusters,
    }

    def inside(kind: Kind, namespace: str) -> Sequence[Manifest]:
        return [one for one in read.get(kind, ()) if m.namespace_of(one) == namespace]

    return LiveUnits(location, on_plane=inside, in_app=inside)


async def _list(
    cluster: Reader, kind: Kind, namespace: str, *, metadata_only: bool = False
) -> Sequence[Manifest]:
    """List objects; none where the cluster has no such kind."""
    try:
        listing = await cluster.list(kind, namespace=namespace, metadata_only=metadata_only)
    except NotServed:
        return ()
    return listing.items


async def _one(cluster: Reader, ref: Ref) -> Sequence[Manifest]:
    """Read one object; none where it, or its kind, is absent."""
    try:
        manifest = await cluster.get(ref)
    except NotServed:
        return ()
    return () if manifest is None else (manifest,)
