"""Computes the place of a claim's copy, and the parts of an object that are synced.

Isolation `Prefixed` of protocol-konnector.md D: the copy of a namespaced claim keeps its name in
the service namespace; a cluster-scoped copy has the name of the space as prefix. By D.2, E.2 and
H12, content travels, and labels and annotations of an allow list and those that both sides name.
For what comes down, only the app cluster names them. Does not know which objects exist.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from konnector.mass_loss import rules
from reconciler.core import field_set, identity, keys, manifest, names
from reconciler.core.field_set import FieldSet
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import NAMESPACE, Kind, ObjectKey

# Managers of copies: ours, and the original's. Creations by it count as its updates (H10).
WRITERS: Final = (keys.MANAGER_KONNECTOR, keys.MANAGER_ORIGINAL_KONNECTOR)
_MANAGED_FIELDS: Final = ("metadata", "managedFields")
_LABELS: Final = field_set.place_of("metadata", "labels")
_ANNOTATIONS: Final = field_set.place_of("metadata", "annotations")
_ANYBODY: Final = ""  # stands for all other managers
_NOT_CONTENT: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
# By these labels, tools find their objects to prune. On the other side, they would find and delete
# the wrong ones. The rest is ours, or concerns one side only.
_STAYS: Final = (
    f"{keys.KLUTCH_GROUP}/",
    keys.OWN_PREFIX,
    "kubectl.kubernetes.io/",
    "argocd.argoproj.io/",
    "helm.sh/",
    "meta.helm.sh/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "objectset.rio.cattle.io/",
    "applyset.kubernetes.io/",
)
# Descriptions only. Other keys may command a program of the other side.
_TRAVELS: Final = ("app.kubernetes.io/", "servicebinding.io/")
# Our keys for requests to a service, if its export names them; values of so many characters.
_WISHES: Final = frozenset({keys.OSB_RETRY})
_LONGEST_WISH: Final = 63
_NAMED: Final = 100  # keys that an annotation may name
NO_MORE: Final[frozenset[str]] = frozenset()
_BOUND: Final = {keys.BOUND: keys.BOUND_VALUE}


@dataclass(frozen=True, slots=True)
class Pair:
    """`kind` is the same on both sides. `space_uid` is of the space's Namespace, `lives` are that
    and the former ones that a person gave to it.

    `has_status`: the kind has a status subresource, so that its status is written there.
    `carries`: the labels and annotations that go up beside those that always do.
    `adopts_controlled`: instances that another object controls are claims, too.
    `left_out`: the fields that the export leaves out, which go neither way. `has_conditions`: the
    schema of its status has conditions. `docs`: the site with the pages of reasons.
    """

    kind: Kind
    space: str
    space_uid: str
    has_status: bool
    carries: frozenset[str] = frozenset()
    adopts_controlled: bool = False
    left_out: frozenset[tuple[str, ...]] = frozenset()
    has_conditions: bool = False
    docs: str = ""
    lives: frozenset[str] = frozenset()

    def content(self, live: Manifest) -> dict[str, JSON]:
        """Return the part of an instance that travels: all but identity and metadata."""
        found = content(live)
        for path in self.left_out:
            found = manifest.drop(found, *path)
        return found

    @property
    def kept(self) -> Sequence[field_set.Path]:
        return [field_set.place_of(*path) for path in sorted(self.left_out)]

    @property
    def marks(self) -> Mapping[str, str]:
        """The annotations by which a copy is known as a konnector's, and as this space's."""
        space = {keys.CLUSTER_NAMESPACE: self.space, keys.SPACE_UID: self.space_uid}
        return _BOUND if self.kind.namespaced else {**_BOUND, **space}

    @property
    def owners(self) -> list[JSON]:
        """The owner of a cluster-scoped copy: the space."""
        kind = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.kind}
        return [] if self.kind.namespaced else [{**kind, "name": self.space, "uid": self.space_uid}]

    def prefixed(self, name: str) -> ObjectKey:
        """Return where the copy of a cluster-scoped claim is."""
        return ObjectKey("", names.copy_name(self.space, name))

    def is_copy_of(self, copy: Manifest, claim: ObjectKey) -> bool:
        """Return whether an object at the place of a claim's copy is that copy.

        In a service namespace all objects are, but for those that the provider keeps for itself,
        and for parts of a service; a cluster-scoped one has to be of this space.
        """
        notes = manifest.annotations_of(copy)
        is_kept = notes.get(keys.ADOPT) == keys.NOT_ADOPTED or self.is_part(copy)
        if is_kept and keys.BOUND not in notes:
            return False
        return self.kind.namespaced or self.claim_of(copy) == claim

    def is_part(self, copy: Manifest | None) -> bool:
        """Return whether an instance is a part of a service: another object is its controller.

        As a claim, its deletion would take the part from the service, and its presence would make
        the part again after the service is gone.
        """
        return bool(manifest.controller_of(copy or {})) and not self.adopts_controlled

    def claim_of(self, copy: Manifest) -> ObjectKey | None:
        """Return the claim of a cluster-scoped copy; None where it is not of this space.

        Names prove nothing: another space's may begin alike (H3), and an earlier one left it (S1).
        """
        if not identity.is_of_space(copy, self.space, {self.space_uid, *self.lives}):
            return None
        name = names.claim_name(self.space, manifest.identity_of(copy)[1])
        return None if name is None else ObjectKey("", name)

    def way_out(self, other: Manifest) -> str:
        """Return the next step of a person about another object with the name of a copy."""
        former, notes = identity.space_of(other), manifest.annotations_of(other)
        is_ours = self.kind.namespaced or former in {self.space_uid, *self.lives}
        if is_ours or notes.get(keys.CLUSTER_NAMESPACE) != self.space:
            return "Give this claim another name, or ask the provider to remove that object"
        given: Manifest = {keys.CONFIRM_SPACE: ",".join(self.lives)}
        space: Manifest = {"name": self.space, "uid": self.space_uid, "annotations": given}
        return (
            f"It is of an earlier space {self.space}, and may have its data. Give this claim"
            " another name, or ask the provider to give the data of that space to this one:"
            f" {identity.confirmation(NAMESPACE, {'metadata': space}, former)}"
        )


@dataclass(frozen=True, slots=True)
class InstanceTerms:
    """The terms of a binding's instances, by the binding and by its export.

    `recreates`: lost copies are made again, each as a new, empty service. `drains`: it is being
    deleted with all instances, which somebody else deletes. `withdrawn`: why the kind is going.
    `few`: so many deletions at once are never too many.
    """

    recreates: bool = False
    drains: bool = False
    withdrawn: str = ""
    few: int = rules.FEW


def content(live: Manifest) -> dict[str, JSON]:
    """Return an object's content beside identity, metadata and status: `spec`, `data`, `type`."""
    return {key: value for key, value in live.items() if key not in _NOT_CONTENT}


def carried(live: Manifest | None) -> frozenset[str]:
    """Return the keys that an object names as going along: exact, or with `*` at the end."""
    named = manifest.annotations_of(live or {}).get(keys.CARRIES, "").split(",")[:_NAMED]
    return frozenset(filter(None, (one.strip() for one in named)))


def adopts_controlled(export: Manifest | None) -> bool:
    """Return whether the template allows to adopt instances with a controller, by its export."""
    return manifest.annotations_of(export or {}).get(keys.ADOPT_CONTROLLED) == "true"


def travels(key: str, more: Set[str] = NO_MORE) -> bool:
    """Return whether a label or an annotation with this key goes to the other side.

    `more` is what `carried` returned.
    """
    if key.startswith(_STAYS):
        return key in _WISHES and key in more
    ends = tuple(one.removesuffix("*") for one in more if one.endswith("*"))
    return key in more or key.startswith((*_TRAVELS, *ends))


def goes_up(group: str, key: str, more: Set[str] = NO_MORE) -> bool:
    """Return whether a label or annotation of a claim goes up, as labels without a domain do."""
    return travels(key, more) or (group == "labels" and "/" not in key)


def is_left(group: str, key: str, more: Set[str] = NO_MORE) -> bool:
    """Return whether a copy's value under this key stays as it is: nobody carries it any more."""
    return not key.startswith(_STAYS) and not goes_up(group, key, more)


def travelling(group: str, live: Manifest, more: Set[str] = NO_MORE) -> dict[str, str]:
    """Return the `labels` or `annotations` that go to the other side."""
    return {
        key: value
        for key, value in manifest.get_text_map(live, "metadata", group).items()
        if travels(key, more) and (key not in _WISHES or len(value) <= _LONGEST_WISH)
    }


def as_left(copy: Manifest, wanted: Manifest, written: FieldSet, more: Set[str]) -> dict[str, JSON]:
    """Return labels and annotations with those that went up before, and would not any more.

    `wanted` says those that go up, `written` what konnectors wrote of the copy. In an apply only
    what is said again stays; and a service may be found by an annotation ever since.
    """
    found: dict[str, JSON] = {}
    for group in ("labels", "annotations"):
        present = manifest.get_map(copy, "metadata", group)
        ours = field_set.names_at(written, "metadata", group) & present.keys()
        if left := {key: present[key] for key in ours if is_left(group, key, more)}:
            found[group] = {**left, **manifest.get_map(wanted, "metadata", group)}
    return found


def moved(
    live: Manifest, kind: Kind, to: ObjectKey, marks: Mapping[str, str], more: Set[str] = NO_MORE
) -> dict[str, JSON]:
    """Return the object as it is made on the other side, annotated with `marks`.

    Nothing in it is the server's; owners and finalizers of one side mean nothing, or worse, on
    the other (H5); its status comes from the other side or not at all.
    """
    metadata: dict[str, JSON] = {"name": to.name}
    if to.namespace:
        metadata["namespace"] = to.namespace
    if labels := travelling("labels", live, more):
        metadata["labels"] = labels
    metadata["annotations"] = {**travelling("annotations", live, more), **marks}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        **content(live),
    }


def trimmed_claim(live: Manifest) -> Manifest:
    """Return an instance of the app cluster without managedFields, unless only konnectors wrote it.

    Such an instance was brought from the control plane (D.4); no developer has touched it since.
    """
    whole = (entry for entry in field_set.entries_of(live) if not entry.get("subresource"))
    writers = {manifest.get_text(entry, "manager") for entry in whole}
    if writers and writers <= set(WRITERS):
        return manifest.put(live, [{"manager": name} for name in sorted(writers)], *_MANAGED_FIELDS)
    return manifest.drop(live, *_MANAGED_FIELDS)


def is_providers(claim: Manifest) -> bool:
    """Return whether an instance that `trimmed_claim` has trimmed is not a developer's."""
    return bool(field_set.entries_of(claim))


def trimmed_copy(copy: Manifest) -> Manifest:
    """Return the part of a copy to keep in memory: of managedFields only those of konnectors.

    Labels and annotations that others wrote as well are left out, because no apply of ours would
    take them away. The original's apply made it an owner of all that it saw. What others wrote
    inside of what is one value to us is kept, because it tells that it is none.
    """
    entries = field_set.entries_of(copy)
    if not entries:
        return copy
    others = field_set.owned_by_others(copy, *WRITERS)
    shared = field_set.below(others, _LABELS, _ANNOTATIONS)
    kept: list[JSON] = [
        {"manager": entry["manager"], "operation": entry.get("operation"), "fieldsV1": fields}
        for entry in entries
        if field_set.is_by(entry, WRITERS)
        and (fields := field_set.difference(field_set.fields_of(entry), shared))
    ]
    if others and (inside := field_set.inside(field_set.owned(copy, *WRITERS), others)):
        kept.append({"manager": _ANYBODY, "fieldsV1": inside})
    return manifest.put(copy, kept, *_MANAGED_FIELDS)


def is_managed(live: Manifest) -> bool:
    """Return whether the object carries the annotation that a konnector brought it (any value)."""
    return keys.BOUND in manifest.get_map(live, "metadata", "annotations")


def is_joined(claim: Manifest | None, copy: Manifest | None) -> bool:
    """Return whether a claim and the copy at its place were synced, and neither was let go."""
    if claim is None or copy is None or not (is_managed(claim) and is_managed(copy)):
        return False
    goes = manifest.is_deleting(claim) or manifest.is_deleting(copy) or _is_let_go(copy)
    return keys.SYNCER in manifest.finalizers_of(claim) and not goes


def are_stamped(*pair: Manifest | None) -> bool:
    """Return whether each object of a pair bears its claim's uid; an absent one needs none."""
    return all(one is None or keys.CLAIM_UID in manifest.annotations_of(one) for one in pair)


def unstamped(copy: Manifest) -> Sequence[str]:
    """Return the name of a copy that is synced and lacks its claim's uid, as an index does."""
    lacks = is_managed(copy) and not are_stamped(copy)
    goes = lacks and (manifest.is_deleting(copy) or _is_let_go(copy))
    return (manifest.name_of(copy),) if lacks and not goes else ()


def _is_let_go(copy: Manifest) -> bool:
    return bool({keys.ORPHANED, keys.RELEASED} & manifest.annotations_of(copy).keys())


def living(claim: Manifest) -> Sequence[str]:
    """Return the app namespace where a developer wants something, as an index does."""
    stays = not manifest.is_deleting(claim) and not is_providers(claim)
    return (manifest.namespace_of(claim),) if stays else ()


def uid(claim: Manifest) -> Sequence[str]:
    return (manifest.uid_of(claim),)


def owner_of(live: Manifest | None) -> str:
    """Return the owning side of a claimed object, by its annotation; "" without it."""
    return manifest.get_text(live, "metadata", "annotations", keys.RESOURCE_OWNER)
