"""What is live, per cluster: seen completely, or unseen. There is nothing in between.

`observe` makes these from API servers, `livefile` from a snapshot; planning reads only these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.manifest import Manifest
from reconciler.core.names import resource_name
from reconciler.core.refs import Kind, Ref


@dataclass(frozen=True, slots=True)
class Address:
    """How we reach a cluster ourselves: what others are told where the files name nothing."""

    server: str
    ca: str
    tls_server_name: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One cluster, read completely for every kind in `objects` (mapping.md 12).

    `uid` is that of its kube-system namespace. Kinds in `unserved` have no CRD there, which
    the cluster's discovery confirmed; they are known to be empty. `objects` of Namespaces,
    exports and CRDs are metadata only. No Secret holds a value: digests stand there instead, and
    `api`. managedFields are those of our managers, without times; there is no
    resourceVersion. `in_use` counts the instances of a kind by `instances`, where planning asked
    for it, and `bodies` holds exports without their versions, likewise.
    `silent` are the spaces of a control plane whose konnector had sent no heartbeat for longer
    than `cluster_binding.SILENCE` when they were read, or never. `bindings_cluster_scoped` is the
    scope of the live CRD `apiservicebindings` of an app cluster.
    """

    uid: str
    address: Address
    objects: Mapping[Kind, Sequence[Manifest]] = field(repr=False)
    unserved: frozenset[Kind] = frozenset()
    in_use: Mapping[Kind, int] = field(default_factory=dict)
    bodies: Mapping[Ref, Manifest | None] = field(default_factory=dict, repr=False)
    bindings_cluster_scoped: bool = False
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Unavailable:
    """One cluster that could not be read completely: why, and what to do about it."""

    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """All clusters of a fleet, by their names in the files.

    `leaving` are app clusters that no document names any more, found by our labels and reached
    by the annotation `access`.
    """

    control_planes: Mapping[str, ClusterState | Unavailable] = field(repr=False)
    clusters: Mapping[str, ClusterState | Unavailable] = field(repr=False)
    leaving: Mapping[str, ClusterState | Unavailable] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Questions:
    """What planning needs to know beyond the reads that every plan makes.

    `in_use`: app clusters by name, and a kind whose instances there are to be counted; the
    version in it is not looked at. `bodies`: exports to be read whole, or known to be absent.
    """

    in_use: frozenset[tuple[str, Kind]] = frozenset()
    bodies: frozenset[Ref] = frozenset()


def control_plane_ref_name(name: str) -> str:
    """Return the `Ref.cluster` of a control plane; app clusters have their bare name there.

    Both kinds of document may bear one name, and "/" is in neither.
    """
    return f"control-plane/{name}"


def instances(group: str, resource: str) -> Kind:
    """Return the kind that stands for a service in `Questions.in_use` and `ClusterState.in_use`.

    It has no version: that is for the live CRD to say.
    """
    return Kind(group, "", resource_name(resource, group), resource)
