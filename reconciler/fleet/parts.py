"""Makes of a fleet what is kept of it at one place: one shard, or nothing while it is suspended."""

from collections.abc import Collection
from dataclasses import replace

from reconciler.core.errors import ConfigError
from reconciler.fleet.values import Fleet, Guards


def shard(fleet: Fleet, planes: Collection[str]) -> Fleet:
    """Return the fleet of some control planes alone, with its share of the deletes of a run.

    The clusters of the others have not left: they are `elsewhere`. Raises ConfigError.
    """
    unknown = sorted(set(planes) - fleet.control_planes.keys())
    if unknown:
        known = ", ".join(sorted(fleet.control_planes))
        message = f"no such control plane: {', '.join(unknown)}"
        raise ConfigError(message, where="--control-plane", hint=f"There are: {known}")
    clusters = {name: one for name, one in fleet.clusters.items() if one.control_plane in planes}
    units = {key: one for key, one in fleet.units.items() if key.cluster in clusters}
    others = [one for name, one in sorted(fleet.clusters.items()) if name not in clusters]
    return replace(
        fleet,
        control_planes={name: fleet.control_planes[name] for name in sorted(planes)},
        clusters=clusters,
        units=units,
        guards=_share(fleet.guards, len(units), len(fleet.units)),
        elsewhere={one.name: one.identity for one in others},
        ways_elsewhere={str(one.access): one.name for one in others if not one.identity},
    )


def suspended(fleet: Fleet, reason: str) -> Fleet:
    """Return the fleet with every cluster left alone, as if its document said so."""
    clusters = {
        name: one if one.suspended is not None else replace(one, suspended=reason)
        for name, one in fleet.clusters.items()
    }
    return replace(fleet, clusters=clusters, suspended=reason)


def _share(guards: Guards, units: int, total: int) -> Guards:
    """Return guards whose budget is the share of so many units: shards together spend no more."""
    share = guards.max_deletes * units // total if total else guards.max_deletes
    return replace(guards, max_deletes=max(1, share) if guards.max_deletes else 0)
