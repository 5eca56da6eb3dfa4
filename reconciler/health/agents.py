"""Looks at the Leases of konnectors and backends, and once more at those that are doubtful.

What cannot be read says nothing: a role of before has no right on Leases, and a konnector may hold
its Lease elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from reconciler.core import names
from reconciler.core.errors import ClusterError
from reconciler.core.refs import LEASE, Ref
from reconciler.fleet.values import Access, Mode
from reconciler.health import leases
from reconciler.health.board import FleetView, Stops
from reconciler.health.leases import LeaseLook
from reconciler.kube.cluster import Reader
from reconciler.observe.visits import Visit, Visits

# Of a Pod, and of a process that was started by hand.
_IN_APP: Final = (names.KLUTCH_NAMESPACE, "kube-system")
_ON_PLANE: Final = (names.KLUTCH_NAMESPACE, "default")
_WIDTH: Final = 8  # Leases of a control plane read at once

Looks: TypeAlias = Mapping[str, LeaseLook | None]  # by app cluster, or control plane
Again: TypeAlias = Callable[[str], Awaitable[LeaseLook | None]]  # by app cluster


async def konnector_in(app: Reader) -> LeaseLook | None:
    """Return the Lease of a konnector that works in its own app cluster."""
    return await _newest(app, names.KONNECTOR_LEASE, _IN_APP)


def works_in_app(view: FleetView, name: str) -> bool:
    """Tell whether the konnector of an app cluster holds its Lease there."""
    return view.clusters[name].live.location.mode is Mode.DIRECT


async def on_planes(view: FleetView, visits: Visits) -> tuple[Looks, Looks]:
    """Return the Leases on control planes: of konnectors that work there, and of backends."""
    hosted = [name for name in view.clusters if not works_in_app(view, name)]
    return await _on_some(view, visits, view.planes, hosted)


async def stops(
    view: FleetView,
    visits: Visits,
    konnectors: Looks,
    backends: Looks,
    *,
    again: Again,
    now: Callable[[], datetime],
) -> Stops:
    """Return which agents stopped, and when.

    Doubtful Leases are read once more, `leases.APART` later: those in app clusters by `again`.
    """
    time = now()
    doubtful = {name: look for name, look in konnectors.items() if leases.is_doubtful(look, time)}
    planes = {name for name, look in backends.items() if leases.is_doubtful(look, time)}
    if not doubtful and not planes:
        return Stops()
    await asyncio.sleep(leases.APART)
    hosted = [name for name in doubtful if not works_in_app(view, name)]
    in_app = [name for name in doubtful if works_in_app(view, name)]
    planes |= {view.clusters[name].control_plane for name in hosted}
    (hosts, again_backends), answers = await asyncio.gather(
        _on_some(view, visits, planes, hosted), asyncio.gather(*map(again, in_app))
    )
    looks = {**hosts, **dict(zip(in_app, answers, strict=True))}
    return Stops(
        {
            name: at
            for name, look in doubtful.items()
            if look is not None
            and (at := leases.stopped_at(look, looks.get(name), view.clusters[name].live.beat))
        },
        {
            name: at
            for name, look in backends.items()
            if look is not None and (at := leases.stopped_at(look, again_backends.get(name)))
        },
    )


async def _on_some(
    view: FleetView, visits: Visits, planes: Iterable[str], hosted: Collection[str]
) -> tuple[Looks, Looks]:
    chosen = sorted(planes)
    found = await asyncio.gather(
        *(
            _on_plane(
                view,
                visits,
                plane,
                [name for name in hosted if view.clusters[name].control_plane == plane],
            )
            for plane in chosen
        )
    )
    konnectors = {name: look for looks, _ in found for name, look in looks.items()}
    return konnectors, {plane: one for plane, (_, one) in zip(chosen, found, strict=True)}


async def _on_plane(
    view: FleetView, visits: Visits, plane: str, hosted: Collection[str]
) -> tuple[Looks, LeaseLook | None]:
    access: Access = view.fleet.control_planes[plane].access
    found = await visits.control_plane(plane, access, partial(_read, view, hosted))
    return found if isinstance(found, tuple) else ({}, None)


async def _read(
    view: FleetView, hosted: Collection[str], visit: Visit
) -> tuple[Looks, LeaseLook | None]:
    width = asyncio.Semaphore(_WIDTH)

    async def look(name: str, *namespaces: str) -> LeaseLook | None:
        async with width:
            return await _newest(visit.reached.cluster, name, namespaces)

    spaces = {name: view.clusters[name].live.location.space for name in hosted}
    async with visit.turn.slot():
        backend, *found = await asyncio.gather(
            look(names.BACKEND_LEASE, *_ON_PLANE),
            *(look(names.KONNECTOR_LEASE, space) for space in spaces.values()),
        )
    return dict(zip(spaces, found, strict=True)), backend


async def _newest(cluster: Reader, name: str, namespaces: Iterable[str]) -> LeaseLook | None:
    """Return the Lease that was renewed last: one of an agent that was moved stays behind."""
    looks = [await _look(cluster, namespace, name) for namespace in namespaces]
    return max(filter(None, looks), key=lambda look: look.renewed, default=None)


async def _look(cluster: Reader, namespace: str, name: str) -> LeaseLook | None:
    try:
        return leases.look_of(await cluster.get(Ref(cluster.name, LEASE, namespace, name)))
    except ClusterError:
        return None
