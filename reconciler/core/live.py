"""What is live, per cluster: seen completely, or unseen. There is nothing in between.

`observe` makes these from API servers, `livefile` from a snapshot; planning reads only these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref


@dataclass(frozen=True, slots=True)
class Address:
    """How we reach a cluster ourselves: what others are told where the files name nothing."""

    server: str
    ca: str
    tls_server_name: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One cluster, read completely for every kind in `objects` (mapping.md 12).

    `uid` is that of its kube-system namespace. Kinds in `unserved` have no CRD there, which
    the cluster's discovery confirmed; they are known to be empty. `objects` of Namespaces,
    exports and CRDs are metadata only; Secret values are as read, or digests in a snapshot.
    `in_use` counts the instances of a kind, where planning asked for it, and `bodies` holds
    whole exports, likewise.
    """

    uid: str
    address: Address
    objects: Mapping[Kind, Sequence[Manifest]]
    unserved: frozenset[Kind] = frozenset()
    in_use: Mapping[Kind, int] = field(default_factory=dict)
    bodies: Mapping[Ref, Manifest | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unseen:
    """One cluster that could not be read completely: why, and what to do about it."""

    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """All clusters of a fleet, by their names in the files.

    `leaving` are app clusters that no document names any more, found by our labels and reached
    by the annotation `access`.
    """

    control_planes: Mapping[str, Seen | Unseen]
    clusters: Mapping[str, Seen | Unseen]
    leaving: Mapping[str, Seen | Unseen] = field(default_factory=dict)


def control_plane_ref_name(name: str) -> str:
    """Return the `Ref.cluster` of a control plane; app clusters have their bare name there.

    Both kinds of document may bear one name, and "/" is in neither.
    """
    return f"control-plane/{name}"
