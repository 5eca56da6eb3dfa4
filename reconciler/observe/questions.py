"""What a snapshot has to answer beforehand: all that a plan made from it might ask. Pure."""

from collections.abc import Iterator

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core.live import Live, Questions, Seen, control_plane_ref_name, instances
from reconciler.core.manifest import name_of, namespace_of
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.fleet.values import Fleet
from reconciler.observe.leaving import Leaver, leavers


def all_questions(fleet: Fleet, live: Live) -> Questions:
    """Return the count of every service bound in a cluster, and the export of every unit."""
    return Questions(in_use=frozenset(_in_use(fleet, live)), bodies=frozenset(_bodies(fleet, live)))


def _in_use(fleet: Fleet, live: Live) -> Iterator[tuple[str, Kind]]:
    planes = {name: cluster.control_plane for name, cluster in fleet.clusters.items()}
    planes |= {
        name: one.control_plane
        for name, one in leavers(fleet, live.control_planes).items()
        if isinstance(one, Leaver)
    }
    for name, verdict in {**live.clusters, **live.leaving}.items():
        plane = live.control_planes.get(planes.get(name, ""))
        if isinstance(verdict, Seen) and isinstance(plane, Seen):
            services = _names(plane, API_SERVICE_EXPORT) | _names(verdict, API_SERVICE_BINDING)
            for service in services & _names(verdict, CRD):
                resource, _, group = service.partition(".")
                yield name, instances(group, resource)


def _bodies(fleet: Fleet, live: Live) -> Iterator[Ref]:
    units = {key.name for key in fleet.units}
    for name, verdict in live.control_planes.items():
        if isinstance(verdict, Seen):
            for export in verdict.objects.get(API_SERVICE_EXPORT, ()):
                if name_of(export) in units:
                    place = control_plane_ref_name(name)
                    yield Ref(place, API_SERVICE_EXPORT, namespace_of(export), name_of(export))


def _names(seen: Seen, kind: Kind) -> set[str]:
    return set(map(name_of, seen.objects.get(kind, ())))
