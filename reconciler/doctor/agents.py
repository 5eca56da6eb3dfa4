"""Finds out by Leases which konnectors and backends of a fleet run.

A konnector that was moved leaves its Lease behind, and the original's works on without: the
heartbeat of one that seems to have stopped is read as well.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from reconciler import api
from reconciler.api import Heartbeat, heartbeat_of, leases
from reconciler.api.leases import LeaseLook, Stopped, Stops
from reconciler.core import keys, names
from reconciler.core.live import Unavailable
from reconciler.core.manifest import labels_of, name_of
from reconciler.core.refs import NAMESPACE
from reconciler.doctor import diagnosis
from reconciler.doctor.diagnosis import Finding
from reconciler.doctor.rights import Side, Task
from reconciler.fleet.values import AppCluster, Fleet, Mode
from reconciler.fleet.wanted import default_placement
from reconciler.kube.cluster import Reader
from reconciler.observe import agents
from reconciler.observe.agents import KonnectorPlace, Look, Looked, Looks, Places
from reconciler.observe.visits import Visit, Visits

_UNREAD: Final = Unavailable("it was not read")

Findings: TypeAlias = Mapping[tuple[Side, str], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The clusters of a fleet that were reached: app clusters, and control planes.

    `in_app` are the Leases of konnectors that work in their app clusters. On `served` control
    planes something is to be bound.
    """

    clusters: Collection[AppCluster]
    planes: Collection[str]
    served: Collection[str]
    in_app: Looks


async def findings(
    fleet: Fleet, reached: Reached, visits: Visits, *, task: Task, now: Callable[[], datetime]
) -> Findings:
    """Return what is to be said of the agents of each cluster, where something is known."""
    places = {one.name: _place(fleet, one) for one in reached.clusters}
    hosted = await agents.on_planes(fleet, reached.planes, places, visits)
    looked = replace(hosted, konnectors={**reached.in_app, **hosted.konnectors})

    async def again(name: str) -> Look:
        cluster = fleet.clusters[name]
        return await visits.app_cluster(
            name,
            cluster.access,
            lambda visit: agents.konnector_in(visit.reached.cluster),
            control_plane=cluster.control_plane,
        )

    stops = await agents.stops(fleet, places, visits, looked, again=again, now=now)
    absent = [one for one in reached.served if looked.backends.get(one, _UNREAD) is None]
    beats, unused = await asyncio.gather(
        _beats(fleet, stops.konnectors, visits), _unused(fleet, absent, visits)
    )
    found = [
        *_of_konnectors(places, looked, stops, beats, task),
        *_of_backends(looked, stops, task),
    ]
    missing = diagnosis.no_backend()
    return {**dict(found), **{(Side.CONTROL_PLANE, name): missing for name in unused}}


def _place(fleet: Fleet, cluster: AppCluster) -> KonnectorPlace:
    hosted = fleet.control_planes[cluster.control_plane].mode is not Mode.DIRECT
    space = default_placement(fleet, cluster).space if hosted else ""
    return KonnectorPlace(cluster.control_plane, space)


def _of_konnectors(
    places: Places, looked: Looked, stops: Stops, beats: Mapping[str, Heartbeat | None], task: Task
) -> Iterator[tuple[tuple[Side, str], Finding]]:
    for name, look in looked.konnectors.items():
        if not isinstance(look, LeaseLook):
            continue
        trouble = stops.konnectors.get(name)
        if isinstance(trouble, Stopped) and (
            name not in beats or leases.stopped_at(look, look, beats[name]) is None
        ):
            continue
        plane = places[name].control_plane if places[name].space else ""
        yield (Side.APP_CLUSTER, name), diagnosis.konnector(look.namespace, plane, trouble, task)


def _of_backends(
    looked: Looked, stops: Stops, task: Task
) -> Iterator[tuple[tuple[Side, str], Finding]]:
    for name, look in looked.backends.items():
        if isinstance(look, LeaseLook):
            finding = diagnosis.backend(look.namespace, stops.backends.get(name), task)
            yield (Side.CONTROL_PLANE, name), finding


async def _beats(
    fleet: Fleet, stopped: Collection[str], visits: Visits
) -> Mapping[str, Heartbeat | None]:
    """Return the last heartbeats of the konnectors of these app clusters, where they are read."""
    behind: dict[str, list[AppCluster]] = defaultdict(list)
    for name in stopped:
        behind[fleet.clusters[name].control_plane].append(fleet.clusters[name])
    found = await asyncio.gather(
        *(
            visits.control_plane(
                plane, fleet.control_planes[plane].access, partial(_read_beats, fleet, clusters)
            )
            for plane, clusters in behind.items()
        )
    )
    return {
        name: beat
        for one in found
        if not isinstance(one, Unavailable)
        for name, beat in one.items()
    }


async def _read_beats(
    fleet: Fleet, clusters: Sequence[AppCluster], visit: Visit
) -> Mapping[str, Heartbeat | None]:
    cluster: Reader = visit.reached.cluster
    async with visit.turn.slot():
        labels = f"{keys.FLEET}={fleet.name}"
        listing = await cluster.list(NAMESPACE, labels=labels, metadata_only=True)
        spaces: dict[str, list[str]] = defaultdict(list)
        for one in listing.items:
            spaces[labels_of(one).get(keys.CLUSTER, "")].append(name_of(one))
        return {
            one.name: await _last_beat(
                cluster, {*spaces[one.name], default_placement(fleet, one).space}
            )
            for one in clusters
        }


async def _last_beat(plane: Reader, spaces: Collection[str]) -> Heartbeat | None:
    beats = [
        heartbeat_of(one)
        for space in sorted(spaces)
        for one in (await plane.list(api.CLUSTER_BINDING, namespace=space)).items
        if name_of(one) == names.CLUSTER_BINDING
    ]
    return max(filter(None, beats), key=lambda beat: beat.time, default=None)


async def _unused(fleet: Fleet, planes: Collection[str], visits: Visits) -> Collection[str]:
    """Return those control planes on which no backend has exported anything yet."""

    async def exported(visit: Visit) -> bool:
        return await agents.has_exports(visit.reached.cluster)

    found = await asyncio.gather(
        *(visits.control_plane(one, fleet.control_planes[one].access, exported) for one in planes)
    )
    # What could not be read says nothing.
    return [plane for plane, one in zip(planes, found, strict=True) if one is False]
