"""Finds out by Leases which konnectors and backends of a fleet run.

A konnector that was moved leaves its Lease behind, and the original's works on without: of one
that seems to have stopped, the heartbeat counts as well. A plan without it makes a warning.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

from reconciler.api import Heartbeat, leases
from reconciler.api.leases import LeaseLook, Stopped, Stops
from reconciler.core.live import Unavailable
from reconciler.doctor import diagnosis
from reconciler.doctor.diagnosis import Finding
from reconciler.doctor.rights import Side, Task
from reconciler.fleet.values import AppCluster, Fleet, Mode
from reconciler.fleet.wanted import default_placement
from reconciler.observe import agents
from reconciler.observe.agents import KonnectorPlace, Look, Looked, Looks, Places
from reconciler.observe.visits import Visit, Visits

_UNREAD: Final = Unavailable("it was not read")

Findings: TypeAlias = Mapping[tuple[Side, str], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The clusters of a fleet that were reached: app clusters, and control planes.

    `in_app` are the Leases of konnectors that work in their app clusters, `beats` the last
    heartbeats of all, where they are known. On `served` control planes something is to be bound.
    """

    clusters: Collection[AppCluster]
    planes: Collection[str]
    served: Collection[str]
    in_app: Looks
    beats: Mapping[str, Heartbeat | None]


async def findings(
    fleet: Fleet, reached: Reached, visits: Visits, *, task: Task, now: Callable[[], datetime]
) -> Findings:
    """Return the findings about the agents of each cluster, where something is known."""
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
    trouble = stops.backends
    found = [
        *_of_konnectors(places, looked, stops, reached.beats, task),
        *(
            ((Side.CONTROL_PLANE, name), diagnosis.backend(look.namespace, trouble.get(name), task))
            for name, look in looked.backends.items()
            if isinstance(look, LeaseLook)
        ),
    ]
    unused, missing = await _unused(fleet, absent, visits), diagnosis.no_backend()
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
        trouble, beat = stops.konnectors.get(name), beats.get(name)
        if isinstance(trouble, Stopped) and leases.stopped_at(look, look, beat) is None:
            continue
        plane = places[name].control_plane if places[name].space else ""
        judged = task if name in beats else Task.PLAN
        yield (Side.APP_CLUSTER, name), diagnosis.konnector(look.namespace, plane, trouble, judged)


async def _unused(fleet: Fleet, planes: Collection[str], visits: Visits) -> Collection[str]:
    """Return those control planes on which no backend has exported anything yet."""

    async def exported(_: str, visit: Visit) -> bool:
        return await agents.has_exports(visit.reached.cluster)

    found = await visits.control_planes(fleet, planes, exported)
    return [plane for plane, has_some in found.items() if not has_some]
