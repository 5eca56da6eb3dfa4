"""The CRD in the app cluster, as it follows from a provider's export.

Of protocol-konnector.md C.3, C.4. Compared before it is written, mended where somebody edited its
spec, taken over from a binding of the same name that is gone (H15), and left alone where it is
anybody else's. Refuses to know what is synced, and what conditions say of all this.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from konnector.decisions.sides import APP_CLUSTER
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import conditions, keys
from reconciler.core.decision import Create, Patch, preconditions_of
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    canonical,
    fill,
    get,
    get_bool,
    get_list,
    get_map,
    get_maps,
    get_text,
    is_deleting,
    name_of,
    put,
    ref_of,
    uid_of,
)
from reconciler.core.merge import merge_diff
from reconciler.core.names import resource_name
from reconciler.core.refs import CRD, Kind

_OF_SPEC: Final = ("group", "scope")
_OF_VERSION: Final = (
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "schema",
    "additionalPrinterColumns",
)
_NO_CONVERSION: Final[Manifest] = {"strategy": "None"}
# Fields of a JSON schema that an API server drops where they are empty; its types make it so.
_SCHEMAS: Final = frozenset({"properties", "patternProperties", "definitions"})
_SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf"})
_SCHEMA_VALUES: Final = frozenset({"items", "additionalProperties", "additionalItems", "not"})
_FLOATS: Final = frozenset({"maximum", "minimum", "multipleOf"})
_DROPPED: Final = (
    _SCHEMAS
    | _SCHEMA_LISTS
    | {"$schema", "description", "format", "id", "pattern", "title", "type"}
    | {"exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems"}
    | {"x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"}
    | {"enum", "required", "x-kubernetes-list-map-keys", "x-kubernetes-validations"}
)

Standing: TypeAlias = Literal["absent", "ours", "left", "foreign"]
"""Whose a CRD is: "left" by a binding of this name that is gone."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns the CRD: an APIServiceBinding, and how the CRD tells of it.

    `live` are the uids of all APIServiceBindings that can be seen, which need not be all that
    live: those of other konnectors may be on their control planes. `held` is the uid of a CRD that
    was this binding's: if another binding owns that now, it lives. `space_uid` is that of the
    space, "" if not known; `marks`, in control-plane mode: the CRD bears it in an annotation, by
    which konnectors of other spaces know that it is not theirs. Not `referenced`: there is no
    ownerReference, because the app cluster's garbage collector would look for the owner, find none
    there, and delete the CRD with every claim (mapping.md 8).
    """

    binding: Manifest = field(repr=False)
    live: Set[str] = frozenset()
    space_uid: str = ""
    held: str = ""
    marks: bool = False
    referenced: bool = True

    @property
    def reference(self) -> Manifest:
        """The ownerReference, in the form that the originals look for."""
        return {
            "apiVersion": API_SERVICE_BINDING.api_version,
            "kind": API_SERVICE_BINDING.kind,
            "name": name_of(self.binding),
            "uid": uid_of(self.binding),
            "controller": True,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done about the CRD.

    `same_spec`: the live one carries what the export says.
    """

    standing: Standing
    step: Create | Patch | None = None
    same_spec: bool = False


def plan(export: Manifest, live: Manifest | None, owner: Owner) -> Plan:
    """Return the one write that makes the CRD follow the export, if any.

    A CRD that is being deleted is not written: it is made again when it is gone.
    """
    standing = _standing(live, owner)
    if live is None:
        return Plan(standing, Create(CRD, wanted(export, owner), APP_CLUSTER))
    if standing == "foreign":
        return Plan(standing)
    change = _spec_change(get_map(live, "spec"), spec(export))
    marks = _marks_change(live, owner)
    if is_deleting(live) or not (change or marks):
        return Plan(standing, same_spec=not change)
    body: dict[str, JSON] = {"metadata": {**preconditions_of(live), **marks}}
    if change:
        body["spec"] = change
    return Plan(standing, Patch(ref_of(APP_CLUSTER, CRD, live), body), same_spec=not change)


def wanted(export: Manifest, owner: Owner) -> Manifest:
    """Return the CRD as it is made (C.3)."""
    marks = Marks(annotations={keys.SPACE_UID: owner.space_uid}) if owner.marks else UNMARKED
    made = build(CRD, name_of(export), marks=marks, spec=spec(export))
    if not owner.referenced:
        return made
    return put(made, [owner.reference], "metadata", "ownerReferences")


def spec(export: Manifest) -> Manifest:
    """Return the spec of the CRD; conversion is left to the server's default, None."""
    said = get_map(export, "spec")
    names = _filled(get_map(said, "names"), get_map(said, "names"))
    versions = [_version(one) for one in get_maps(said, "versions")]
    return {key: said.get(key) for key in _OF_SPEC} | {"names": names, "versions": versions}


def problem(export: Manifest) -> str:
    """Return why no CRD follows from an export, as a sentence, or ""."""
    name, versions = name_of(export), get_maps(export, "spec", "versions")
    own_name = resource_name(
        get_text(export, "spec", "names", "plural"), get_text(export, "spec", "group")
    )
    if own_name != name:
        return f"APIServiceExport {name} is of {own_name}: they have to be named alike."
    if not any(get_bool(one, "served") for one in versions):
        return f"APIServiceExport {name} serves no version."
    for version in versions:
        if not get_map(version, "schema", "openAPIV3Schema"):
            return f"APIServiceExport {name}: version {get_text(version, 'name')} has no schema."
    return ""


def isolation_problem(export: Manifest) -> str:
    """Return why cluster-scoped objects cannot be kept apart as the export wants it, or "" (H32).

    An export that does not say is of before isolation, which is Prefixed.
    """
    isolation = get_text(export, "spec", "clusterScopedIsolation")
    if get_text(export, "spec", "scope") != "Cluster" or isolation in ("", "Prefixed"):
        return ""
    return (
        f"APIServiceExport {name_of(export)} wants clusterScopedIsolation {isolation}, and this "
        "konnector supports Prefixed only: nothing is synced."
    )


def synced_version(export: Manifest) -> str:
    """Return the version in which instances are synced, "" where none is served.

    The storage version if it is served, since nothing is lost in it (H14), else the first.
    """
    served = [one for one in get_maps(export, "spec", "versions") if get_bool(one, "served")]
    stored = [one for one in served if get_bool(one, "storage")]
    return get_text((stored or served or [{}])[0], "name")


def instance_kind(export: Manifest) -> Kind:
    """Return what an export's instances are, on both sides, in the version that is synced."""
    return Kind(
        get_text(export, "spec", "group"),
        synced_version(export),
        get_text(export, "spec", "names", "kind"),
        get_text(export, "spec", "names", "plural"),
        namespaced=get_text(export, "spec", "scope") == "Namespaced",
    )


def has_status(export: Manifest) -> bool:
    """Tell whether instances have /status in the version that is synced (H13)."""
    version = synced_version(export)
    return any(
        get(one, "subresources", "status") is not None
        for one in get_maps(export, "spec", "versions")
        if get_text(one, "name") == version
    )


def lossy_versions(export: Manifest) -> tuple[str, ...]:
    """Return the served versions whose schema is not that of the synced one, in their order.

    What only such a version knows does not get to the other side.
    """
    versions = [one for one in get_maps(export, "spec", "versions") if get_bool(one, "served")]
    schemas = {get_text(one, "name"): canonical(_plain(one).get("schema")) for one in versions}
    synced = schemas.get(synced_version(export))
    return tuple(name for name, schema in schemas.items() if schema != synced)


def is_anothers(live: Manifest, owner: Owner) -> bool:
    """Tell whether a CRD, and so its instances, belong to another binding of this name.

    In control-plane mode an owner that cannot be seen may live, for another space.
    """
    uids = owners(live, owner)
    if uid_of(owner.binding) in uids or _is_of_space(live, owner):
        return False
    return bool(uids & owner.live or (uids and owner.marks) or _is_of_another_space(live, owner))


def owners(live: Manifest, owner: Owner) -> Set[str]:
    """Return the uids of the bindings of this name that a CRD names as its owners."""
    return {get_text(one, "uid") for one in _references(live, owner)}


def is_established(live: Manifest) -> bool:
    """Tell whether the API server serves the CRD."""
    return _condition(live, "Established") == conditions.TRUE


def name_conflict(live: Manifest) -> str:
    """Return why the API server does not accept the CRD's names, or ""."""
    if _condition(live, "NamesAccepted") != conditions.FALSE:
        return ""
    found = conditions.find(_conditions(live), "NamesAccepted")
    return found.message if found and found.message else "another CRD has the same names"


def _condition(live: Manifest, condition_type: str) -> str:
    found = conditions.find(_conditions(live), condition_type)
    return "" if found is None else found.status


def _conditions(live: Manifest) -> conditions.Conditions:
    return conditions.parse(get_list(live, "status", "conditions"))


def _standing(live: Manifest | None, owner: Owner) -> Standing:
    if live is None:
        return "absent"
    uids = owners(live, owner)
    if uid_of(owner.binding) in uids or _is_of_space(live, owner):
        return "ours"
    if _is_of_another_space(live, owner):
        return "foreign"
    taken = uid_of(live) == owner.held
    return "left" if uids and not uids & owner.live and not taken else "foreign"


def _is_of_space(live: Manifest, owner: Owner) -> bool:
    mark = annotations_of(live).get(keys.SPACE_UID, "")
    return bool(mark) and mark == owner.space_uid


def _is_of_another_space(live: Manifest, owner: Owner) -> bool:
    mark = annotations_of(live).get(keys.SPACE_UID, "")
    return bool(mark and owner.space_uid) and mark != owner.space_uid


def _references(live: Manifest, owner: Owner) -> list[Manifest]:
    """Return the ownerReferences to any binding of this name, now or before."""
    return [
        one
        for one in get_maps(live, "metadata", "ownerReferences")
        if get_text(one, "apiVersion").partition("/")[0] == keys.KLUTCH_GROUP
        and one.get("kind") == API_SERVICE_BINDING.kind
        and one.get("name") == name_of(owner.binding)
    ]


def _marks_change(live: Manifest, owner: Owner) -> dict[str, JSON]:
    """Return the metadata by which the CRD tells whose it is, where it does not; others stay."""
    of_name = _references(live, owner)
    others = [one for one in get_list(live, "metadata", "ownerReferences") if one not in of_name]
    change: dict[str, JSON] = {}
    if owner.marks and not _is_of_space(live, owner):
        change["annotations"] = {keys.SPACE_UID: owner.space_uid}
    if owner.referenced and owners(live, owner) != {uid_of(owner.binding)}:
        change["ownerReferences"] = [*others, owner.reference]
    elif of_name and not owner.referenced:
        change["ownerReferences"] = others or None
    return change


def _spec_change(live: Manifest, said: Manifest) -> dict[str, JSON]:
    """Return the merge patch that makes a live spec say what the export says; {} where it does."""
    kind = get_text(said, "names", "kind")
    defaults: Manifest = {"singular": kind.lower(), "listKind": f"{kind}List"}
    target = {
        **live,
        **said,
        "names": fill(get_map(said, "names"), defaults),
        "conversion": _NO_CONVERSION,
        "preserveUnknownFields": None,
    }
    if _alike(live.get("versions"), said.get("versions")):
        target["versions"] = live.get("versions")
    # Absent means None, and not to be told what it is by default.
    held = {"conversion": _NO_CONVERSION, **live}
    if held.get("preserveUnknownFields") is False:
        target["preserveUnknownFields"] = False
    return merge_diff(held, target)


def _alike(one: JSON, other: JSON) -> bool:
    return canonical(_plain_versions(one)) == canonical(_plain_versions(other))


def _plain_versions(versions: JSON) -> JSON:
    if not isinstance(versions, list | tuple):
        return None
    return [_plain(one) if isinstance(one, Mapping) else one for one in versions]


def _version(version: Manifest) -> Manifest:
    said = {key: version[key] for key in _OF_VERSION if version.get(key) is not None}
    return {**said, "subresources": get_map(version, "subresources")}


def _plain(version: Manifest) -> dict[str, JSON]:
    """Return a version without what an API server drops: empty texts and lists, false, zero."""
    said = _filled(version, version.keys() - {"name", "served", "storage", "subresources"})
    subresources = get_map(version, "subresources")
    if "scale" in subresources:
        scale = _filled(get_map(subresources, "scale"), {"labelSelectorPath"})
        subresources = {**subresources, "scale": scale}
    columns = get(said, "additionalPrinterColumns")
    if isinstance(columns, list | tuple):
        said["additionalPrinterColumns"] = [
            _filled(one, one.keys()) if isinstance(one, Mapping) else one for one in columns
        ]
    schema = get_map(version, "schema", "openAPIV3Schema")
    return {**said, "subresources": subresources, "schema": _plain_schema(schema)}


def _plain_schema(schema: JSON) -> JSON:
    if not isinstance(schema, Mapping):
        return schema
    plain = _filled(schema, _DROPPED)
    for key, value in plain.items():
        if key in _FLOATS:
            plain[key] = _as_float(value)
        elif key in _SCHEMAS and isinstance(value, Mapping):
            plain[key] = {name: _plain_schema(item) for name, item in value.items()}
        elif isinstance(value, list | tuple) and key in _SCHEMA_LISTS | _SCHEMA_VALUES:
            plain[key] = [_plain_schema(item) for item in value]
        elif key in _SCHEMA_VALUES:
            plain[key] = _plain_schema(value)
        elif key == "x-kubernetes-validations" and isinstance(value, list | tuple):
            plain[key] = [
                _filled(item, item.keys()) if isinstance(item, Mapping) else item for item in value
            ]
    return plain


def _as_float(value: JSON) -> JSON:
    """Return a number as an API server holds it, which rounds large integers."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def _filled(value: Manifest, keys_: Iterable[str]) -> dict[str, JSON]:
    """Return the object without those of these fields that are empty, and without nulls."""
    optional = frozenset(keys_)
    return {
        key: item
        for key, item in value.items()
        if item is not None and not (key in optional and _is_empty(item))
    }


def _is_empty(value: JSON) -> bool:
    return value in ("", False, [], {}) if not isinstance(value, float) else value == 0
