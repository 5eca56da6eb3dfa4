"""Builds the CRD of the app cluster from a provider's export.

Of protocol-konnector.md C.3, C.4. Compared before it is written, mended where somebody edited its
spec, taken over from a binding of the same name that is gone (H15), and left alone where it is
anybody else's. Does not know what is synced, and what conditions say of all this.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from konnector import APP_CLUSTER
from konnector.binding import crd_form
from reconciler import api
from reconciler.api import claim_status
from reconciler.blueprints.export import OF_VERSION
from reconciler.blueprints.objects import Marks, build
from reconciler.core import conditions, keys, manifest
from reconciler.core.decision import Create, Patch, merge_diff, preconditions_of
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.names import resource_name
from reconciler.core.refs import CRD, Kind

_OF_SPEC: Final = ("group", "scope")
_OF_VERSION: Final = (*OF_VERSION, "storage")
_NO_CONVERSION: Final[Manifest] = {"strategy": "None"}

Standing: TypeAlias = Literal["absent", "ours", "left", "foreign"]
"""Whose a CRD is: "left" by a binding of this name that is gone."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of the CRD: an APIServiceBinding, with its marks on the CRD.

    `live` are the uids of all APIServiceBindings that can be seen, which need not be all that live:
    those of other konnectors may be on their control planes. `owned_crd` is the uid of the CRD that
    this binding owned: if another binding owns that now, it lives. `space_uid` is that of the
    space, "" if not known; `marks`, in control-plane mode: the CRD bears it in an annotation, by
    which konnectors of other spaces know that it is not theirs. Not `referenced`: there is no
    ownerReference, because the app cluster's garbage collector would look for the owner, find none
    there, and delete the CRD with every claim (mapping.md 8).
    """

    binding: Manifest = field(repr=False)
    live: Set[str] = frozenset()
    space_uid: str = ""
    owned_crd: str = ""
    marks: bool = False
    referenced: bool = True

    @property
    def reference(self) -> Manifest:
        """The ownerReference, in the form that the originals look for."""
        return manifest.controller_to(api.API_SERVICE_BINDING, self.binding)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for the CRD.

    `same_spec`: the live one carries what the export says. `kept_version`: it does not, and
    keeps its spec, because claims are stored in this version. `replaced`: it never will, and why.
    """

    standing: Standing
    step: Create | Patch | None = None
    same_spec: bool = False
    kept_version: str = ""
    replaced: str = ""


def plan(export: Manifest, live: Manifest | None, owner: Owner, *, unclaimed: bool = False) -> Plan:
    """Return the one write that makes the CRD follow the export, if any.

    A CRD that is being deleted is not written: it is made again when it is gone. `unclaimed`: it
    is known that no claim is stored.
    """
    standing = _standing(live, owner)
    if live is None:
        return Plan(standing, Create(CRD, wanted(export, owner), APP_CLUSTER))
    if standing == "foreign":
        return Plan(standing)
    replaced = replaced_kind(export, live)
    confirmed = manifest.annotations_of(owner.binding).get(keys.CONFIRM_VERSION)
    keeps = replaced or unclaimed or confirmed == synced_version(export)
    kept = "" if keeps else replaced_version(export, live)
    stays = kept or replaced
    change = {} if stays else _spec_change(manifest.get_map(live, "spec"), spec(export, live))
    marks = _marks_change(live, owner, _notes(export, owner))
    found = Plan(standing, None, not (change or stays), kept, replaced)
    if manifest.is_deleting(live) or not (change or marks):
        return found
    body: dict[str, JSON] = {"metadata": {**preconditions_of(live), **marks}}
    if change:
        body["spec"] = change
    return replace(found, step=Patch(manifest.ref_of(APP_CLUSTER, CRD, live), body))


def replaced_kind(export: Manifest, live: Manifest) -> str:
    """Return why a CRD cannot follow an export, or "": no API server changes scope and kind."""
    there, here = (
        (manifest.get_text(one, "spec", "scope"), manifest.get_text(one, "spec", "names", "kind"))
        for one in (export, live)
    )
    if there == here or not api.is_established(live):
        return ""
    return f"it is {' '.join(there)} on the control plane now, and {' '.join(here)} here"


def replaced_version(export: Manifest, live: Manifest) -> str:
    """Return the version whose stored claims a CRD of this export would read otherwise, or "".

    The app cluster converts nothing: what a claim says in fields of that version alone would be
    gone from it. Of a version that stays on offer, the provider says the same of its own objects.
    """
    offered = _schemas(manifest.get_maps(export, "spec", "versions"))
    served = _schemas(api.served_versions(live))
    stored = manifest.get_list(live, "status", "storedVersions")
    lost = (
        name
        for name, old in served.items()
        if name in stored and name not in offered
        if not all(crd_form.keeps(new, old) for new in offered.values())
    )
    return next(lost, "")


def _schemas(versions: Iterable[Manifest]) -> dict[str, Manifest]:
    return {
        manifest.get_text(one, "name"): manifest.get_map(crd_form.plain(one), "schema")
        for one in versions
    }


def wanted(export: Manifest, owner: Owner) -> Manifest:
    """Return the CRD as it is made (C.3)."""
    marks = Marks(annotations=_notes(export, owner))
    made = build(CRD, manifest.name_of(export), marks=marks, spec=spec(export))
    if not owner.referenced:
        return made
    return manifest.put(made, [owner.reference], "metadata", "ownerReferences")


def _notes(export: Manifest, owner: Owner) -> dict[str, str]:
    """Return the annotations of the CRD: an API server asks for the approval of some groups."""
    approval = manifest.annotations_of(export).get(keys.API_APPROVED)
    notes = {} if approval is None else {keys.API_APPROVED: approval}
    return {**notes, keys.SPACE_UID: owner.space_uid} if owner.marks else notes


def spec(export: Manifest, live: Manifest | None = None) -> Manifest:
    """Return the spec of the CRD; conversion is left to the server's default, None.

    `live` is the CRD that is to say so: versions that it may hold objects in stay, unserved.
    """
    stated = manifest.get_map(export, "spec")
    names = crd_form.filled(manifest.get_map(stated, "names"), manifest.get_map(stated, "names"))
    versions = [_version(one) for one in manifest.get_maps(stated, "versions")]
    kept = _kept(live or {}, {manifest.get_text(one, "name") for one in versions})
    spec_of_crd = {key: stated.get(key) for key in _OF_SPEC}
    return {**spec_of_crd, "names": names, "versions": [*versions, *kept]}


def problem(export: Manifest) -> str:
    """Return why no CRD follows from an export, as a sentence, or ""."""
    name, versions = manifest.name_of(export), manifest.get_maps(export, "spec", "versions")
    own_name = resource_name(
        manifest.get_text(export, "spec", "names", "plural"),
        manifest.get_text(export, "spec", "group"),
    )
    if own_name != name:
        return f"APIServiceExport {name} is of {own_name}: they have to be named alike."
    if not api.served_versions(export):
        return f"APIServiceExport {name} serves no version."
    for version in versions:
        if not manifest.get_map(version, "schema", "openAPIV3Schema"):
            version_name = manifest.get_text(version, "name")
            return f"APIServiceExport {name}: version {version_name} has no schema."
    return ""


def isolation_problem(export: Manifest) -> str:
    """Return why cluster-scoped objects cannot be kept apart as the export wants it, or "" (H32).

    An export that does not say is of before isolation, which is Prefixed.
    """
    isolation = manifest.get_text(export, "spec", "clusterScopedIsolation")
    if manifest.get_text(export, "spec", "scope") != "Cluster" or isolation in ("", "Prefixed"):
        return ""
    return (
        f"APIServiceExport {manifest.name_of(export)} wants clusterScopedIsolation {isolation}, and"
        " this konnector supports Prefixed only: nothing is synced."
    )


def synced_version(export: Manifest, live: Manifest | None = None) -> str:
    """Return the version in which instances are synced, "" where none is served.

    The preferred one (H14). With the CRD of the app cluster, only what that serves, too: until it
    has followed an export that serves other versions, one that both know, or at least the one that
    it was synced in.
    """
    offered = api.served_versions(export)
    best = api.preferred_version(offered)
    if live is None:
        return best
    there = api.served_versions(live)
    if any(manifest.get_text(one, "name") == best for one in there):
        return best
    known = {manifest.get_text(one, "name") for one in offered}
    both = [one for one in there if manifest.get_text(one, "name") in known]
    return api.preferred_version(both or there)


def instance_kind(export: Manifest, live: Manifest | None = None) -> Kind:
    """Return the kind of an export's instances, on both sides, in the version that is synced."""
    return api.kind_of(export if live is None else live, synced_version(export, live))


def has_status(served: Manifest, version: str) -> bool:
    """Return whether instances have /status in a version (H13), as an export or a CRD has it."""
    return any(
        manifest.get(one, "subresources", "status") is not None
        for one in manifest.get_maps(served, "spec", "versions")
        if manifest.get_text(one, "name") == version
    )


def lossy_versions(export: Manifest) -> tuple[str, ...]:
    """Return the served versions whose schema is not that of the synced one, in their order.

    What only such a version knows does not get to the other side.
    """
    schemas = _schemas(api.served_versions(export))
    synced = manifest.canonical(schemas.get(synced_version(export)))
    return tuple(name for name, schema in schemas.items() if manifest.canonical(schema) != synced)


def is_anothers(live: Manifest, owner: Owner) -> bool:
    """Return whether a CRD, and so its instances, belong to another binding of this name.

    In control-plane mode an owner that cannot be seen may live, for another space.
    """
    uids = owners(live, owner)
    if manifest.uid_of(owner.binding) in uids or _is_of_space(live, owner):
        return False
    return bool(uids & owner.live or (uids and owner.marks) or _is_of_another_space(live, owner))


def owners(live: Manifest, owner: Owner) -> Set[str]:
    """Return the uids of the bindings of this name that a CRD names as its owners."""
    return {manifest.get_text(one, "uid") for one in _references(live, owner)}


def was_made(live: Manifest, *, space_uid: str) -> bool:
    """Return whether a binding of this space brought a CRD; with "", one of the app cluster."""
    if space_uid or keys.SPACE_UID in manifest.annotations_of(live):
        return manifest.annotations_of(live).get(keys.SPACE_UID) == space_uid
    return bool(_references(live, Owner(live)))


def name_conflict(live: Manifest) -> str:
    """Return why the API server does not accept the CRD's names, or ""."""
    refused = conditions.get(live, "NamesAccepted", conditions.FALSE)
    return "" if refused is None else refused.message or "another CRD has the same names"


def _kept(live: Manifest, offered: Set[str]) -> list[Manifest]:
    """Return the versions that are on offer no more, and that objects may still be stored in.

    An API server lets none of these go, and refuses the whole change (422). What is converted by
    webhook is exported in its storage version alone, so another one comes without the last.
    """
    stored = manifest.get_list(live, "status", "storedVersions")
    return [
        {**one, "served": False, "storage": False}
        for one in manifest.get_maps(live, "spec", "versions")
        if one.get("name") in stored and one.get("name") not in offered
    ]


def _standing(live: Manifest | None, owner: Owner) -> Standing:
    if live is None:
        return "absent"
    uids = owners(live, owner)
    if manifest.uid_of(owner.binding) in uids or _is_of_space(live, owner):
        return "ours"
    if _is_of_another_space(live, owner):
        return "foreign"
    taken = manifest.uid_of(live) == owner.owned_crd
    # A binding that goes with `propagationPolicy: Orphan` takes its ownerReference along.
    left = not uids & owner.live if uids else claim_status.is_unserved(live)
    return "left" if left and not taken else "foreign"


def _is_of_space(live: Manifest, owner: Owner) -> bool:
    mark = manifest.annotations_of(live).get(keys.SPACE_UID, "")
    return bool(mark) and mark == owner.space_uid


def _is_of_another_space(live: Manifest, owner: Owner) -> bool:
    mark = manifest.annotations_of(live).get(keys.SPACE_UID, "")
    return bool(mark and owner.space_uid) and mark != owner.space_uid


def _references(live: Manifest, owner: Owner) -> list[Manifest]:
    """Return the ownerReferences to any binding of this name, now or before."""
    name = manifest.name_of(owner.binding)
    return [
        reference for reference in api.binding_references(live) if reference.get("name") == name
    ]


def _marks_change(live: Manifest, owner: Owner, notes: Mapping[str, str]) -> dict[str, JSON]:
    """Return the metadata that the CRD lacks: its owner, and these annotations; others stay."""
    of_name = _references(live, owner)
    others = [
        one for one in manifest.get_list(live, "metadata", "ownerReferences") if one not in of_name
    ]
    change: dict[str, JSON] = {}
    present = manifest.annotations_of(live)
    if missing := {key: value for key, value in notes.items() if present.get(key) != value}:
        change["annotations"] = missing
    if owner.referenced and owners(live, owner) != {manifest.uid_of(owner.binding)}:
        change["ownerReferences"] = [*others, owner.reference]
    elif of_name and not owner.referenced:
        change["ownerReferences"] = others or None
    return change


def _spec_change(live: Manifest, stated: Manifest) -> dict[str, JSON]:
    """Return the merge patch from a live spec to that of the export; {} where they agree."""
    kind = manifest.get_text(stated, "names", "kind")
    defaults: Manifest = {"singular": kind.lower(), "listKind": f"{kind}List"}
    target = {
        **live,
        **stated,
        "names": manifest.fill(manifest.get_map(stated, "names"), defaults),
        "conversion": _NO_CONVERSION,
        "preserveUnknownFields": None,
    }
    if crd_form.alike(live.get("versions"), stated.get("versions")):
        target["versions"] = live.get("versions")
    # An absent conversion means None; no default decides it.
    present = {"conversion": _NO_CONVERSION, **live}
    if present.get("preserveUnknownFields") is False:
        target["preserveUnknownFields"] = False
    return merge_diff(present, target)


def _version(version: Manifest) -> Manifest:
    kept = {key: version[key] for key in _OF_VERSION if version.get(key) is not None}
    return {**kept, "subresources": manifest.get_map(version, "subresources")}
