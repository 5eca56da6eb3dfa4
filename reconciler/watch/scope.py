"""Which app clusters have to be looked at because the files say something new. Pure.

A narrow look is quick and sees less: it must decide what a look at everything would. So it is
only for what lies within one app cluster. Which clusters there are, where they lead and who
may lose what are questions about all of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from reconciler.core.origin import Origin
from reconciler.fleet.values import AppCluster, ControlPlane, Fleet, Unit

Scope: TypeAlias = frozenset[str] | None  # names of app clusters; None is everything

_NOWHERE: Final = Origin("")
K = TypeVar("K")
V = TypeVar("V", AppCluster, Unit)


def concerned(before: Fleet, after: Fleet) -> Scope:
    """Return the app clusters that the difference of two fleets is about; empty where none is."""
    if before.digest == after.digest:
        return frozenset()
    if _together(before) != _together(after):
        return None
    units = _differing(before.units, after.units)
    return frozenset(one.cluster for one in units) | _differing(before.clusters, after.clusters)


def union(one: Scope, other: Scope) -> Scope:
    """Return what either of them asks for."""
    return None if one is None or other is None else one | other


def _together(fleet: Fleet) -> object:
    """Return what is decided by a look at all clusters at once."""
    planes = {name: _plane(one) for name, one in fleet.control_planes.items()}
    ways = {name: _way(one) for name, one in fleet.clusters.items()}
    return fleet.name, fleet.guards, planes, ways


def _plane(plane: ControlPlane) -> ControlPlane:
    return replace(plane, origin=_NOWHERE)


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
    """What did not change is often the same object, and there are tens of thousands."""
    if old is new:
        return False
    return old is None or (old != new and _bare(old) != _bare(new))


def _bare(value: AppCluster | Unit) -> AppCluster | Unit:
    """Return it without places, which move with every line above them."""
    if isinstance(value, AppCluster):
        return replace(value, origin=_NOWHERE)
    claimed = tuple(replace(one, origin=_NOWHERE) for one in value.claims)
    return replace(value, origin=_NOWHERE, claims=claimed)
