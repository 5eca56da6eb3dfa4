"""One exported kind between an app cluster and a space: where the copy of a claim is, and back.

Isolation `Prefixed` of protocol-konnector.md D: a namespaced claim's copy has its name in the
service namespace of its own; a cluster-scoped one has the space's name before its own. Refuses to
know which objects exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, annotations_of, identity_of
from reconciler.core.refs import NAMESPACE, Kind, ObjectKey


@dataclass(frozen=True, slots=True)
class Pair:
    """`kind` is the same on both sides. `space_uid` is of the space's Namespace.

    `has_status`: the kind has a status subresource, so that its status is written there.
    `carries`: the labels and annotations that go up beside those that always do.
    """

    kind: Kind
    space: str
    space_uid: str
    has_status: bool
    carries: frozenset[str] = frozenset()

    @property
    def marks(self) -> Mapping[str, str]:
        """The annotations by which a copy is known as a konnector's, and as this space's."""
        if self.kind.namespaced:
            return _BOUND
        return {**_BOUND, keys.CLUSTER_NAMESPACE: self.space}

    @property
    def owners(self) -> list[JSON]:
        """What a cluster-scoped copy goes with: the space."""
        if self.kind.namespaced:
            return []
        owner: dict[str, JSON] = {
            "apiVersion": NAMESPACE.api_version,
            "kind": NAMESPACE.kind,
            "name": self.space,
            "uid": self.space_uid,
        }
        return [owner]

    def prefixed(self, name: str) -> ObjectKey:
        """Return where the copy of a cluster-scoped claim is."""
        return ObjectKey("", names.copy_name(self.space, name))

    def is_copy_of(self, copy: Manifest, claim: ObjectKey) -> bool:
        """Tell whether an object at the place of a claim's copy is that copy.

        In a service namespace all objects are, but for those that the provider keeps for itself;
        a cluster-scoped one has to be of this space.
        """
        notes = annotations_of(copy)
        if notes.get(keys.ADOPT) == keys.NOT_ADOPTED and keys.BOUND not in notes:
            return False
        return self.kind.namespaced or self.claim_of(copy) == claim

    def claim_of(self, copy: Manifest) -> ObjectKey | None:
        """Return whose copy a cluster-scoped object is; None where it is not of this space.

        The name alone proves nothing: another space's may begin with this one's (H3).
        """
        if annotations_of(copy).get(keys.CLUSTER_NAMESPACE) != self.space:
            return None
        name = names.claim_name(self.space, identity_of(copy)[1])
        return None if name is None else ObjectKey("", name)


_BOUND: Final = {keys.BOUND: keys.BOUND_VALUE}
