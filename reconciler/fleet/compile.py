"""Compiles a fleet to the objects that it wants in its clusters (mapping.md 3 and 8).

Decides which objects, in which order, by which rule, and where each comes from in the files.
Refuses to know what is live beyond the placement that it is given.

The content of the CRD `apiservicebindings` is in the files that klutchctl brings along
(`kube.crds`): its manifest here only names it, and the code that writes or prints it puts the rest
in. A manifest may hold the payload of a Secret. No repr shows it, and whatever shows or stores a
manifest passes it through `core.secret.redact`.
"""

from collections.abc import Collection, Mapping, Sequence

from reconciler.fleet import app_cluster_binding_mode, direct_mode
from reconciler.fleet.values import AppCluster, Claim, Fleet, Mode, Unit
from reconciler.fleet.wanted import Placement, Rule, Wanted, default_placement

__all__ = [
    "Rule",
    "Wanted",
    "cluster_objects",
    "desired",
    "unit_objects",
    "units_by_cluster",
]


def cluster_objects(
    fleet: Fleet, cluster: AppCluster, placement: Placement, *, units: Sequence[Unit]
) -> tuple[Wanted, ...]:
    """Return what a cluster needs once, in order. `units` are all that it is to have.

    They decide the rights of a konnector, and all that an AppClusterBinding lists.
    """
    if _is_direct(fleet, cluster):
        return direct_mode.cluster_objects(fleet, cluster, placement, units=units)
    return app_cluster_binding_mode.cluster_objects(fleet, cluster, placement, units=units)


def unit_objects(
    fleet: Fleet,
    unit: Unit,
    placement: Placement,
    *,
    claims: Sequence[Claim],
    required: Collection[Claim] = (),
) -> tuple[Wanted, ...]:
    """Return what one unit needs, in order: in Direct mode its request and its binding.

    `claims` are those of its Binding that the provider offers for its resource, `required` those
    among them that the provider calls so.
    """
    cluster = fleet.clusters[unit.key.cluster]
    if _is_direct(fleet, cluster):
        make = direct_mode.unit_objects
    else:
        make = app_cluster_binding_mode.unit_objects
    return make(fleet, unit, placement, claims=claims, required=required)


def desired(fleet: Fleet, *, clusters: Collection[str] | None = None) -> tuple[Wanted, ...]:
    """Return what a first apply would make, for all or some app clusters: by name, then in order.

    What several of them share comes once. Which claims a provider offers is not known here, so
    each unit has all of its Binding's.
    """
    units = units_by_cluster(fleet)
    listed = [
        wanted
        for name in sorted(fleet.clusters if clusters is None else clusters)
        for wanted in _of_cluster(fleet, fleet.clusters[name], units.get(name, ()))
    ]
    first = {wanted.ref: wanted for wanted in reversed(listed)}
    return tuple(wanted for wanted in listed if first[wanted.ref] is wanted)


def units_by_cluster(fleet: Fleet) -> Mapping[str, Sequence[Unit]]:
    """Return the units of each cluster that has any, in the order of their keys."""
    grouped: dict[str, list[Unit]] = {}
    for key, unit in fleet.units.items():
        grouped.setdefault(key.cluster, []).append(unit)
    return {name: sorted(grouped[name], key=_place) for name in sorted(grouped)}


def _place(unit: Unit) -> tuple[str, str]:
    return unit.key.group, unit.key.resource


def _of_cluster(fleet: Fleet, cluster: AppCluster, units: Sequence[Unit]) -> list[Wanted]:
    placement = default_placement(fleet, cluster)
    objects = [*cluster_objects(fleet, cluster, placement, units=units)]
    for unit in units:
        objects += unit_objects(fleet, unit, placement, claims=unit.claims)
    return sorted(objects, key=lambda wanted: wanted.step)


def _is_direct(fleet: Fleet, cluster: AppCluster) -> bool:
    return fleet.control_planes[cluster.control_plane].mode is Mode.DIRECT
