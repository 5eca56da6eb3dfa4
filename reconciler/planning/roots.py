"""Finds the trusted AppClusterBindings of a fleet's clusters (trust.md, law 2).

A tenant may write an AppClusterBinding with any labels into a namespace of its own. So only those
in the namespaces that the files list count. Operators make Namespaces, so their labels are trusted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core import keys, names
from reconciler.core.documents import first_of
from reconciler.core.live import ClusterState, Unavailable
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    grouped,
    identity_of,
    labels_of,
    name_of,
)
from reconciler.core.refs import NAMESPACE, Kind
from reconciler.fleet.values import AppCluster, Fleet, Mode
from reconciler.fleet.wanted import default_placement
from reconciler.planning.placement import Blocked

_OWN = ("", names.KLUTCH_NAMESPACE)  # of a control plane that is an app cluster too: no space


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a fleet's AppClusterBindings on one control plane.

    `named` are those of Cluster documents; `adopted` are those with the space that a document
    adopts, by the name of its cluster.
    """

    namespaces: frozenset[str]
    named: frozenset[tuple[str, str]]
    adopted: Mapping[str, Sequence[Manifest]] = field(default_factory=dict)

    def contains(self, binding: Manifest) -> bool:
        """Return whether an AppClusterBinding is in one of them, whatever its labels are."""
        if self.keep(binding):
            return True
        cluster = labels_of(binding).get(keys.CLUSTER, "")
        return identity_of(binding) in map(identity_of, self.adopted.get(cluster, ()))

    def keep(self, binding: Manifest) -> bool:
        """Return whether it stands where only operators write."""
        identity = identity_of(binding)
        return identity[0] in self.namespaces or identity in self.named


def places(
    fleet: Fleet,
    documents: Iterable[str],
    namespaces: Iterable[Manifest],
    bindings: Iterable[Manifest],
) -> Places:
    """Return the places on the control plane that these documents name.

    Where klutchctl made a namespace for them, it bears the fleet's label, also once the files
    name another. That of a tenant's space is no such place. `bindings` are all AppClusterBindings.
    """
    planes = [fleet.control_planes[name] for name in documents if name in fleet.control_planes]
    kept = {one.name: one.namespace for one in planes if one.mode is Mode.APP_CLUSTER_BINDING}
    clusters = [one for one in fleet.clusters.values() if one.control_plane in kept]
    made = {name_of(one) for one in namespaces if _is_shared(one, fleet)}
    known = Places(
        namespaces=frozenset(made.union(kept.values())),
        named=frozenset(one.app_cluster_binding for one in clusters),
    )
    by_space = grouped(bindings, lambda one: names.app_cluster_binding_space(*identity_of(one)))
    adopted = {
        one.name: _adopted(one, known, by_space.get(one.adopt, ())) for one in clusters if one.adopt
    }
    return replace(known, adopted=adopted)


def _adopted(
    cluster: AppCluster, known: Places, of_space: Sequence[Manifest]
) -> Sequence[Manifest]:
    """Return which of those with the space that a document adopts are meant.

    `klutch/fleet-shop` of a tenant has the space of `klutch-fleet/shop`, which is kept by us.
    """
    if cluster.adopt == names.app_cluster_binding_space(*cluster.app_cluster_binding):
        return [one for one in of_space if identity_of(one) == cluster.app_cluster_binding]
    return [one for one in of_space if known.keep(one)] or of_space


def _is_shared(namespace: Manifest, fleet: Fleet) -> bool:
    labels = labels_of(namespace)
    return labels.get(keys.FLEET) == fleet.name and keys.CLUSTER not in labels


def documents_of(planes: Mapping[str, ClusterState | Unavailable], uid: str) -> frozenset[str]:
    return frozenset(
        name for name, seen in planes.items() if isinstance(seen, ClusterState) and seen.uid == uid
    )


def carriers(
    fleet: Fleet, documents: Iterable[str], seen: ClusterState
) -> Iterator[tuple[Kind, Manifest]]:
    """Yield the spaces and AppClusterBindings of a fleet, each with its kind."""
    kept, _ = by_place(fleet, documents, seen)
    for kind, found in ((NAMESPACE, seen.objects.get(NAMESPACE, ())), (APP_CLUSTER_BINDING, kept)):
        for one in found:
            if labels_of(one).get(keys.FLEET) == fleet.name and identity_of(one) != _OWN:
                yield kind, one


def carriers_of_others(
    fleet: Fleet, documents: Iterable[str], seen: ClusterState
) -> Iterator[tuple[str, Manifest]]:
    """Yield the spaces and roots of other fleets' app clusters, each with the name of its fleet."""
    namespaces = seen.objects.get(NAMESPACE, ())
    bindings = seen.objects.get(APP_CLUSTER_BINDING, ())
    known = places(fleet, documents, namespaces, bindings)
    shared = {
        name_of(one): labels_of(one).get(keys.FLEET)
        for one in namespaces
        if keys.CLUSTER not in labels_of(one)
    }
    for one in (*namespaces, *bindings):
        owner, (namespace, _) = labels_of(one).get(keys.FLEET, ""), identity_of(one)
        believed = not namespace or known.keep(one) or shared.get(namespace) == owner
        if owner and owner != fleet.name and believed and identity_of(one) != _OWN:
            yield owner, one


def by_place(
    fleet: Fleet, documents: Iterable[str], seen: ClusterState
) -> tuple[Sequence[Manifest], Sequence[Manifest]]:
    """Return the AppClusterBindings in the places of a fleet, and others with its labels."""
    everything = seen.objects.get(APP_CLUSTER_BINDING, ())
    known = places(fleet, documents, seen.objects.get(NAMESPACE, ()), everything)
    labelled = [one for one in everything if labels_of(one).get(keys.FLEET) == fleet.name]
    kept = [one for one in everything if known.contains(one)]
    return kept, [one for one in labelled if not known.contains(one)]


def unproved(fleet: Fleet, cluster: AppCluster, candidate: Manifest) -> Blocked:
    """Hold a cluster without a root that is known, of which one elsewhere may have the data."""
    namespace, name = identity_of(candidate)
    fresh = default_placement(fleet, cluster).space
    yes = f"label Namespace {namespace} {keys.FLEET}={fleet.name}"
    if fleet.control_planes[cluster.control_plane].mode is Mode.APP_CLUSTER_BINDING:
        place = f"{{namespace: {namespace}, name: {name}}}"
        yes = f"add `appClusterBinding: {place}` to the spec of its Cluster document"
    return Blocked(
        "unproved-space",
        f"AppClusterBinding {namespace}/{name} is labelled as that of {cluster.name}, and stands "
        f"where the files keep none; if it is, {yes}; if not, delete it, or add "
        f"`adopt: {{space: {fresh}}}` there, which gives {cluster.name} a new one",
    )


def warnings(fleet: Fleet, planes: Mapping[str, ClusterState]) -> Iterator[str]:
    """Yield a sentence about objects with the fleet's labels alone, for each control plane."""
    for name, seen in planes.items():
        documents = documents_of(planes, seen.uid)
        found = sorted(
            "/".join(identity_of(one))
            for one in by_place(fleet, documents, seen)[1]
            if keys.RELEASED not in annotations_of(one)
            and labels_of(one).get(keys.CLUSTER) not in fleet.elsewhere
        )
        if found and name == min(documents):
            yield (
                f"control plane {name}: left alone, for they have our labels and stand where the "
                f"files keep no AppClusterBinding: {first_of(found)}; if only "
                f"operators write there, label that Namespace {keys.FLEET}={fleet.name}"
            )
