"""Decides which clusters are read, and which parts of them.

Pure. App clusters that left the files are found by our labels, with their kubeconfig (mapping.md
1, 9). A control plane has objects of hundreds of clusters. A decision about one cluster needs its
binding space, other candidates for that space, and the objects for all clusters.

"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT, leases, secret_of
from reconciler.core import keys, names, refs
from reconciler.core import manifest as m
from reconciler.core.live import (
    ClusterState,
    Live,
    Questions,
    Unavailable,
    control_plane_ref_name,
    instances,
)
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.fleet import base_model
from reconciler.fleet.values import Access, AppCluster, Fleet, Mode, PruneMode
from reconciler.planning import placement, roots
from reconciler.planning.site import Index

# A look at all that a control plane holds costs less than so many looks at a space. There are
# more of them than clusters where bindings lead to several spaces, real ones or not.
MANY_SPACES: Final = 16
_MANY: Final = 8
SECRETS: Final = (names.KUBECONFIG, names.BINDER)
_NAMESPACE: Final = base_model.Form(base_model.NAME.pattern, base_model.NAME.rule, most=63)
_OBJECT: Final = base_model.OBJECT


@dataclass(frozen=True, slots=True)
class RemovedCluster:
    """A cluster that was removed, the control plane that still knows it, and the way to it."""

    name: str
    control_plane: str
    access: Access


def removed_clusters(
    fleet: Fleet, control_planes: Mapping[str, ClusterState | Unavailable]
) -> Mapping[str, RemovedCluster | Unavailable]:
    """Return the clusters that left, by name; Unavailable where there is no one way to reach them.

    A cluster that is released left long ago. None with pruning off, nor in a suspended fleet.
    """
    if fleet.guards.mode is PruneMode.OFF or fleet.suspended is not None:
        return {}
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for plane, live in control_planes.items():
        if isinstance(live, ClusterState):
            documents = roots.documents_of(control_planes, live.uid)
            for name, access in _marked(fleet, documents, live):
                found[name].add((plane, access))
    return {name: _removed(name, sorted(found[name])) for name in sorted(found)}


def access_of(text: str) -> Access | None:
    """Read the annotation `access` (mapping.md 1), or None where it is not of that form."""
    form, _, rest = text.partition("/")
    if text == "in-cluster":
        return Access(in_cluster=True)
    if form == "context" and rest:
        return Access(context=rest)
    name, _, key = rest.partition("/")
    if form == "secret" and name and key and "/" not in key:
        return Access(secret=(name, key))
    return None


def in_part(fleet: Fleet, chosen: Sequence[AppCluster]) -> Mapping[str, Sequence[AppCluster]]:
    """Return the control planes to read in part, each with those of `chosen` behind it.

    None in AppClusterBinding mode: any of these objects may turn out to be the cluster's.
    """
    parts = {}
    for name in sorted({cluster.control_plane for cluster in chosen}):
        behind = [cluster for cluster in chosen if cluster.control_plane == name]
        everyone = sum(cluster.control_plane == name for cluster in fleet.clusters.values())
        few = len(behind) == 1 or len(behind) * _MANY <= min(everyone, _MANY * _MANY)
        if few and fleet.control_planes[name].mode is Mode.DIRECT:
            parts[name] = behind
    return parts


def spaces(
    fleet: Fleet, cluster: str, namespaces: Sequence[Manifest], app: ClusterState | Unavailable
) -> frozenset[str] | None:
    """Return the namespaces that a plan of one cluster may look into; None is all of them.

    `namespaces` are those of its control plane, at least all that bear the fleet's label; `app`
    is what is known of the cluster itself.
    """
    document = fleet.clusters[cluster]
    uids = {document.identity, app.uid if isinstance(app, ClusterState) else ""} - {""}
    own = {
        m.name_of(namespace) for namespace in namespaces if _is_own(namespace, fleet, cluster, uids)
    }
    own |= {document.adopt} - {""}
    # Where another document binds the same cluster, it is held back.
    noted = {m.name_of(namespace) for namespace in namespaces if _notes(namespace, fleet, uids)}
    if own:
        return frozenset(own | noted)
    # mapping.md 4: what bindings that are there lead to, else a new one.
    index = Index(cluster, app) if isinstance(app, ClusterState) else None
    if index is not None and index.blind and placement.bindings(index):
        return None
    led = _led_to(index) if index is not None else ()
    return frozenset({names.direct_space(fleet.name, cluster), *noted, *led})


def _is_own(namespace: Manifest, fleet: Fleet, cluster: str, uids: Collection[str]) -> bool:
    """Compare the identity too: the cluster may have had another name."""
    labels = m.labels_of(namespace)
    if labels.get(keys.FLEET) != fleet.name:
        return False
    owner = labels.get(keys.CLUSTER, "")
    return owner == cluster if fleet.has_document(owner) else _notes(namespace, fleet, uids)


def _notes(namespace: Manifest, fleet: Fleet, uids: Collection[str]) -> bool:
    """Return whether a space of ours is for a cluster of one of these identities."""
    ours = m.labels_of(namespace).get(keys.FLEET) == fleet.name
    return ours and placement.recorded(namespace) in uids


def _led_to(app: Index) -> Iterator[str]:
    """Yield the namespaces of kubeconfigs, which anybody there may have written."""
    for secret in {secret_of(binding) for binding in placement.bindings(app)}:
        space = placement.leads_to(app.get(refs.SECRET, *secret))
        if space and not _NAMESPACE.problem_of(space):
            yield space


def follow_up_reads(fleet: Fleet, live: Live) -> Questions:
    """Return the count of every service bound in a cluster, and the export of every unit.

    And whether the backends run.
    """
    backends = (
        leases.of_backend(control_plane_ref_name(name))
        for name, seen in live.control_planes.items()
        if isinstance(seen, ClusterState)
    )
    bodies = frozenset((*_bodies(fleet, live), *_accounts(fleet, live), *backends))
    return Questions(in_use=frozenset(_in_use(fleet, live)), bodies=bodies)


def konnector_objects(fleet: Fleet, cluster: str) -> tuple[tuple[Kind, str], ...]:
    """Return a konnector and its rights where klutchctl writes them (mapping.md 3, 8).

    A cluster that no document names may have them from before.
    """
    known = fleet.clusters.get(cluster)
    deployed = (
        (refs.DEPLOYMENT, names.KONNECTOR),
        *_rights(names.KONNECTOR, names.KONNECTOR_CLUSTER_ROLE),
    )
    agentless = _rights(names.AGENTLESS_SERVICE_ACCOUNT, names.AGENTLESS_SERVICE_ACCOUNT)
    if known is None:
        return (*deployed, *agentless)
    if fleet.control_planes[known.control_plane].mode is Mode.APP_CLUSTER_BINDING:
        return agentless
    return deployed if known.konnector.deploy else ()


def _rights(account: str, role: str) -> tuple[tuple[Kind, str], ...]:
    return (
        (refs.SERVICE_ACCOUNT, account),
        (refs.CLUSTER_ROLE, role),
        (refs.CLUSTER_ROLE_BINDING, role),
    )


def secrets_of_cluster_bindings(bindings: Iterable[Manifest]) -> set[tuple[str, str]]:
    """Return (namespace, name) of the kubeconfigs in binding spaces that have other names.

    In the space of an AppClusterBinding it is the kubeconfig of an app cluster, whatever its
    name: no plan needs that, and no role for klutchctl reads it.
    """
    return {
        (m.namespace_of(binding), name)
        for binding in bindings
        if keys.APP_CLUSTER_BINDING_NAME not in m.labels_of(binding)
        and (name := secret_of(binding).name)
        and name not in SECRETS
    }


def may_be_secret(namespace: str, name: str) -> bool:
    """Return whether a Secret may have this namespace and name, which anybody may have written."""
    return not (_NAMESPACE.problem_of(namespace) or _OBJECT.problem_of(name))


def secrets_of_app_cluster_bindings(
    bindings: Collection[Manifest],
    fleet: Fleet,
    control_plane: str,
    namespaces: Iterable[Manifest],
) -> Iterator[tuple[str, str]]:
    """Yield (namespace, name) of the app clusters' kubeconfigs: live ones of ours, and planned.

    An AppClusterBinding that is none of ours may refer to what we have no right to read.
    """
    ours = {
        cluster.app_cluster_binding: names.app_cluster_kubeconfig_secret(cluster.name)
        for cluster in fleet.clusters.values()
        if cluster.control_plane == control_plane
        and fleet.control_planes[control_plane].mode is Mode.APP_CLUSTER_BINDING
    }
    yield from ((namespace, secret) for (namespace, _), secret in ours.items())
    kept = roots.places(fleet, [control_plane], namespaces, bindings)
    for binding in bindings:
        identity = m.namespace_of(binding), m.name_of(binding)
        labelled = m.labels_of(binding).get(keys.FLEET) == fleet.name
        if identity in ours or (labelled and kept.contains(binding)):
            namespace, secret = secret_of(binding)
            if secret and namespace:
                yield namespace, secret


def _in_use(fleet: Fleet, live: Live) -> Iterator[tuple[str, Kind]]:
    planes = {name: cluster.control_plane for name, cluster in fleet.clusters.items()}
    planes |= {
        name: removed.control_plane
        for name, removed in removed_clusters(fleet, live.control_planes).items()
        if isinstance(removed, RemovedCluster)
    }
    for name, verdict in {**live.clusters, **live.leaving}.items():
        plane = live.control_planes.get(planes.get(name, ""))
        if isinstance(verdict, ClusterState) and isinstance(plane, ClusterState):
            services = _names(plane, API_SERVICE_EXPORT) | _names(verdict, API_SERVICE_BINDING)
            for service in services & _names(verdict, refs.CRD):
                resource, _, group = service.partition(".")
                yield name, instances(group, resource)


def _bodies(fleet: Fleet, live: Live) -> Iterator[Ref]:
    units = {key.name for key in fleet.units}
    for name, verdict in live.control_planes.items():
        if isinstance(verdict, ClusterState):
            for export in verdict.objects.get(API_SERVICE_EXPORT, ()):
                if m.name_of(export) in units:
                    place = control_plane_ref_name(name)
                    yield Ref(place, API_SERVICE_EXPORT, m.namespace_of(export), m.name_of(export))


def _accounts(fleet: Fleet, live: Live) -> Iterator[Ref]:
    """Yield the accounts of spaces that a plan may want to make."""
    for cluster in fleet.clusters.values():
        plane, seen = cluster.control_plane, live.control_planes.get(cluster.control_plane)
        if isinstance(seen, ClusterState) and fleet.control_planes[plane].mode is Mode.DIRECT:
            space = names.direct_space(fleet.name, cluster.name)
            if space not in map(m.namespace_of, seen.objects.get(refs.SERVICE_ACCOUNT, ())):
                yield Ref(control_plane_ref_name(plane), refs.SERVICE_ACCOUNT, space, names.BINDER)


def _names(seen: ClusterState, kind: Kind) -> set[str]:
    return set(map(m.name_of, seen.objects.get(kind, ())))


def _marked(fleet: Fleet, documents: Collection[str], live: ClusterState) -> set[tuple[str, str]]:
    """Return (cluster, access) of every space and AppClusterBinding that lost its document."""
    return {
        (name, m.annotations_of(carrier).get(keys.ACCESS, ""))
        for _, carrier in roots.carriers(fleet, documents, live)
        if (name := m.labels_of(carrier).get(keys.CLUSTER, ""))
        and not fleet.has_document(name)
        and keys.RELEASED not in m.annotations_of(carrier)
    }


def _removed(name: str, ways: list[tuple[str, str]]) -> RemovedCluster | Unavailable:
    """Spaces without the annotation count for nothing; all others must agree."""
    known = [(plane, access) for plane, text in ways if (access := access_of(text)) is not None]
    texts = sorted({text for _, text in ways})
    if not known or len({(access, access.secret and plane) for plane, access in known}) > 1:
        return _contradictory(texts)
    return RemovedCluster(name, *known[0])


def _contradictory(accesses: Sequence[str]) -> Unavailable:
    """Return the verdict on a leaving cluster with annotations that contradict each other."""
    if not any(accesses):
        return Unavailable(
            "no document names it any more, and no note names its kubeconfig",
            "Bring its Cluster document back until its units are released",
        )
    return Unavailable(
        f"no document names it any more, and the note of its kubeconfig is unclear: "
        f"{', '.join(repr(access) for access in accesses)}",
        "Bring its Cluster document back until its units are released",
    )
