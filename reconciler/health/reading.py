"""The units of one app cluster as they are now: four reads, and the CRDs of those nearly Ready.

For whoever waits: every call looks again. Ask only about units that were not Ready before, so
that the CRD of a Ready one is not read again and again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import names
from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest, namespace_of
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.fleet.values import Mode, UnitKey
from reconciler.health.place import Found, Place
from reconciler.health.verdict import State, UnitHealth, awaits_definition, judge
from reconciler.kube.cluster import Reader
from reconciler.observe.reading import Incomplete, together

_WIDTH: Final = 4  # CRDs that are read at once; each takes a connection of its own


async def health_of(
    units: Collection[UnitKey],
    *,
    place: Place,
    control_plane: Reader,
    app: Reader,
    now: Callable[[], datetime],
) -> Mapping[UnitKey, UnitHealth]:
    """Return how each of the units, all of one app cluster, is now.

    `now` is asked after the reads, and gives UTC. Where a read fails, all are Unknown with the
    failure as the message: whoever waits may ask again. Raises nothing of its own.
    """
    try:
        found = await _found(place, control_plane, app)
        nearly = [unit for unit in units if awaits_definition(unit, found.facts(unit))]
        crds = await definitions(app, {unit.name for unit in nearly})
    except Incomplete as error:
        return {unit: _unread(unit, str(error.errors[0])) for unit in units}
    time = now()
    return {unit: judge(unit, found.facts(unit, crds.get(unit.name)), now=time) for unit in units}


def _unread(unit: UnitKey, reason: str) -> UnitHealth:
    """Return the health of a unit in a cluster that could not be read."""
    return UnitHealth(unit, State.UNKNOWN, "NotRead", reason)


async def definitions(app: Reader, units: Collection[str]) -> Mapping[str, Manifest | None]:
    """Return the CRDs of these names, None where absent. A list would hold all their schemas too.

    Raises Incomplete.
    """
    width = asyncio.Semaphore(_WIDTH)

    async def read(name: str) -> Manifest | None:
        async with width:
            return await app.get(Ref(app.name, CRD, "", name))

    ordered = sorted(units)
    return dict(zip(ordered, await together(*map(read, ordered)), strict=True))


async def _found(place: Place, control_plane: Reader, app: Reader) -> Found:
    """List what is around a place. Raises Incomplete."""
    direct = place.mode is Mode.DIRECT
    beats = Ref(control_plane.name, CLUSTER_BINDING, place.space, names.CLUSTER_BINDING)
    whole = Ref(control_plane.name, APP_CLUSTER_BINDING, *place.app_cluster_binding)
    holder = app if direct else control_plane
    exports, bindings, asked, clusters = await together(
        _list(control_plane, API_SERVICE_EXPORT, place.space, metadata_only=True),
        _list(holder, API_SERVICE_BINDING, place.bindings_namespace),
        _list(control_plane, API_SERVICE_EXPORT_REQUEST, place.space)
        if direct
        else _one(control_plane, whole),
        _one(control_plane, beats),
    )
    read = {
        API_SERVICE_EXPORT: exports,
        API_SERVICE_BINDING: bindings,
        API_SERVICE_EXPORT_REQUEST if direct else APP_CLUSTER_BINDING: asked,
        CLUSTER_BINDING: clusters,
    }

    def inside(kind: Kind, namespace: str) -> Sequence[Manifest]:
        return [one for one in read.get(kind, ()) if namespace_of(one) == namespace]

    return Found(place, on_plane=inside, in_app=inside)


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
        found = await cluster.get(ref)
    except NotServed:
        return ()
    return () if found is None else (found,)
