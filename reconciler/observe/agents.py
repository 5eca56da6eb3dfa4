"""Reads the Leases of konnectors and backends, and reads doubtful ones twice.

What cannot be read says nothing: a role of before has no right on Leases, and a konnector may hold
its Lease elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from reconciler.api import API_SERVICE_EXPORT, Heartbeat, leases
from reconciler.api.leases import LeaseLook, Stops
from reconciler.controller.tasks import SystemClock, a_few
from reconciler.core import names
from reconciler.core.errors import ClusterError
from reconciler.core.live import Unavailable
from reconciler.core.manifest import Manifest
from reconciler.core.refs import LEASE, Ref
from reconciler.fleet.values import Fleet
from reconciler.kube.cluster import Reader
from reconciler.observe.visits import Visit, Visits

_IN_APP: Final = (names.KLUTCH_NAMESPACE, "kube-system")  # of a Pod, and of a bare process
_WIDTH: Final = 8  # Leases of a control plane read at once

Look: TypeAlias = LeaseLook | Unavailable | None  # None: there is no Lease
Looks: TypeAlias = Mapping[str, Look]  # by app cluster, or control plane
Again: TypeAlias = Callable[[str], Awaitable[Look]]  # by app cluster


@dataclass(frozen=True, slots=True)
class KonnectorPlace:
    """The place of a konnector's Lease: "" is in the app cluster itself.

    Else it is in this space. `beat` is its last heartbeat.
    """

    control_plane: str
    space: str = ""
    beat: Heartbeat | None = None


Places: TypeAlias = Mapping[str, KonnectorPlace]  # by app cluster


@dataclass(frozen=True, slots=True)
class Looked:
    """Leases as they were read: of konnectors by app cluster, of backends by control plane."""

    konnectors: Looks
    backends: Looks


async def konnector_in(app: Reader) -> Look:
    """Return the Lease of a konnector that works in its own app cluster."""
    return await _newest(app, names.KONNECTOR_LEASE, _IN_APP)


async def backend_on(plane: Reader) -> Look:
    return await _newest(plane, names.BACKEND_LEASE, leases.BACKEND_NAMESPACES)


async def has_exports(plane: Reader) -> bool:
    """Return whether a backend, of whatever kind, has ever exported something there."""
    return bool((await plane.first_page(API_SERVICE_EXPORT, limit=1, metadata_only=True)).items)


async def missing_backend(visit: Visit) -> Mapping[Ref, Manifest | None]:
    """Return the Lease of a control plane's backend that has stopped, or None for that of none.

    Nothing where one runs, for all we know. Keyed as planning asks for it.
    """
    plane = visit.reached.cluster
    try:
        look = await backend_on(plane)
        if look is None and not await has_exports(plane):
            return {leases.of_backend(plane.name): None}
    except ClusterError:
        return {}
    found = _doubtful({"": look}, SystemClock().now())
    if not found or visit.turn.left < 2 * leases.APART:
        return {}
    await asyncio.sleep(leases.APART)
    if leases.stopped_at(found[""], _read_again({"": await backend_on(plane)}, "")) is None:
        return {}
    return {leases.of_backend(plane.name): found[""].manifest()}


async def on_planes(
    fleet: Fleet, planes: Collection[str], places: Places, visits: Visits
) -> Looked:
    """Return the Leases on these control planes: of konnectors that work there, and of backends."""

    async def look(plane: str, visit: Visit) -> tuple[Looks, Look]:
        here = {name: one for name, one in places.items() if one.control_plane == plane}
        return await _read({name: one.space for name, one in here.items() if one.space}, visit)

    read = await visits.control_planes(fleet, planes, look)
    konnectors = {name: look for looks, _ in read.values() for name, look in looks.items()}
    return Looked(konnectors, {plane: backend for plane, (_, backend) in read.items()})


async def stops(
    fleet: Fleet,
    places: Places,
    visits: Visits,
    first: Looked,
    *,
    again: Again,
    now: Callable[[], datetime],
) -> Stops:
    """Return which agents stopped, and when, and which clocks are behind.

    Doubtful Leases are read once more, `leases.APART` later: those in app clusters by `again`.
    """
    time = now()
    doubtful, backends = _doubtful(first.konnectors, time), _doubtful(first.backends, time)
    if not doubtful and not backends:
        return Stops()
    await asyncio.sleep(leases.APART)
    time = now()  # a look that takes long shows a later renewal, and no clock behind
    hosted = {name: places[name] for name in doubtful if places[name].space}
    in_app = [name for name in doubtful if name not in hosted]
    planes = {*backends, *(one.control_plane for one in hosted.values())}
    second, answers = await asyncio.gather(
        on_planes(fleet, planes, hosted, visits), asyncio.gather(*map(again, in_app))
    )
    looks = {**second.konnectors, **dict(zip(in_app, answers, strict=True))}
    return Stops(
        {
            name: trouble
            for name, look in doubtful.items()
            if (trouble := leases.trouble(look, _read_again(looks, name), places[name].beat, time))
        },
        {
            name: at
            for name, look in backends.items()
            if (at := leases.stopped_at(look, _read_again(second.backends, name)))
        },
    )


def _doubtful(looks: Looks, now: datetime) -> dict[str, LeaseLook]:
    return {
        name: look
        for name, look in looks.items()
        if isinstance(look, LeaseLook) and leases.is_doubtful(look, now)
    }


def _read_again(looks: Looks, name: str) -> LeaseLook | None:
    look = looks.get(name)
    return look if isinstance(look, LeaseLook) else None


async def _read(spaces: Mapping[str, str], visit: Visit) -> tuple[Looks, Look]:
    cluster, within = visit.reached.cluster, ((space,) for space in spaces.values())
    async with visit.turn.slot():
        looks = a_few(_WIDTH, lambda at: _newest(cluster, names.KONNECTOR_LEASE, at), within)
        backend, *found = await asyncio.gather(backend_on(cluster), *looks)
    return dict(zip(spaces, found, strict=True)), backend


async def _newest(cluster: Reader, name: str, namespaces: Collection[str]) -> Look:
    """Return the Lease that was renewed last: one of an agent that was moved stays behind."""
    looks = [await _look(cluster, namespace, name) for namespace in namespaces]
    if leases := [look for look in looks if isinstance(look, LeaseLook)]:
        return max(leases, key=lambda look: look.renewed)
    return next((look for look in looks if look is not None), None)


async def _look(cluster: Reader, namespace: str, name: str) -> Look:
    try:
        return leases.look_of(await cluster.get(Ref(cluster.name, LEASE, namespace, name)))
    except ClusterError as error:
        return Unavailable(error.message)
