"""Finds live bindings of a fleet's clusters that no file names (mapping.md 0, Ownership).

What is not ours of it is listed and never touched; `klutchctl import` writes files for it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from reconciler.api.bindings import API_SERVICE_BINDING, listed_resources
from reconciler.api.exports import API_SERVICE_EXPORT_REQUEST
from reconciler.core.live import Live
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import SECRET
from reconciler.fleet.values import Fleet, UnitKey
from reconciler.planning import app_cluster_bindings, placement, preflight, prune_units
from reconciler.planning.objects import is_of
from reconciler.planning.preflight import Preflight
from reconciler.planning.prune_units import unit_of
from reconciler.planning.site import Site


@dataclass(frozen=True, slots=True)
class UnnamedBinding:
    """A live binding that no file names. `ours`: it left the files.

    `binding` is the APIServiceBinding, None where the backend has not made it. `request` is its
    live request. `elsewhere`: its kubeconfig leads to another space than the cluster's own, ""
    where it leads there.
    """

    unit: UnitKey
    binding: Manifest | None
    request: Manifest | None
    elsewhere: str = ""
    ours: bool = False


def preflights(
    fleet: Fleet, live: Live, *, only: Collection[str] | None = None
) -> Mapping[str, Preflight]:
    """Return where each app cluster, or `only` some, stands, of those that were seen."""
    planes = preflight.control_planes(fleet, live)
    names = sorted(name for name in fleet.clusters if only is None or name in only)
    return preflight.preflights(fleet, live, planes, names)


def unmanaged_bindings(
    fleet: Fleet, live: Live, *, only: Collection[str] | None = None
) -> tuple[UnnamedBinding, ...]:
    """Return what is bound beside the files, by unit. What left the files is ours, and not here."""
    return tuple(
        binding for binding in unnamed_bindings(fleet, live, only=only) if not binding.ours
    )


def unnamed_bindings(
    fleet: Fleet, live: Live, *, only: Collection[str] | None = None
) -> tuple[UnnamedBinding, ...]:
    """Return what is bound and no file names, by unit: beside the files, or since it left them."""
    found = [
        one
        for name, site in preflights(fleet, live, only=only).items()
        if isinstance(site, Site)
        for one in _of_site(fleet, name, site)
    ]
    return tuple(sorted(found, key=lambda one: one.unit))


def _of_site(fleet: Fleet, cluster: str, site: Site) -> Iterator[UnnamedBinding]:
    if site.is_direct:
        unnamed = prune_units.unnamed_bindings(site, cluster)
        yield from (_direct(site, one, cluster) for one in unnamed)
    else:
        yield from _listed(fleet, cluster, site)


def _direct(site: Site, binding: Manifest, cluster: str) -> UnnamedBinding:
    unit, space = unit_of(cluster, name_of(binding)), site.placement.space
    secret = site.app.get(SECRET, *placement.secret_of(binding))
    unread = site.app.blind and secret is None
    there = placement.leads_to(secret) or (space if unread else "a place that cannot be told")
    request = site.control_plane.get(API_SERVICE_EXPORT_REQUEST, space, unit.name)
    ours = is_of(binding, site.fleet, cluster)
    return UnnamedBinding(unit, binding, request, "" if there == space else there, ours)


def _listed(fleet: Fleet, cluster: str, site: Site) -> Iterator[UnnamedBinding]:
    """Yield what the cluster's AppClusterBinding lists."""
    live = app_cluster_bindings.live_of(
        fleet, fleet.clusters[cluster], site.control_plane, site.app
    )
    if live is None:
        return
    ours = {prune.key for prune in app_cluster_bindings.prunes(site, cluster)}
    for resource in listed_resources(live):
        unit = UnitKey(cluster, resource.group, resource.plural)
        if unit not in fleet.units:
            bound = site.control_plane.get(API_SERVICE_BINDING, site.placement.space, unit.name)
            yield UnnamedBinding(unit, bound, None, ours=unit in ours)
