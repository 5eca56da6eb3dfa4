"""The kinds by which services are offered and exported, and what the rest reads of them.

They are in protocol-bind A.3, A.4, A.5 and A.8. An APIServiceExport is named `plural.group`, like
its CRD, and says group, names, scope and versions in the same words: what reads a
CustomResourceDefinition here reads exports, too.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from reconciler.api.bindings import API_SERVICE_BINDING
from reconciler.core import conditions, field_set, keys, manifest, reasons
from reconciler.core.conditions import Condition
from reconciler.core.keys import API_VERSION, KLUTCH_GROUP, TEMPLATE_GROUP
from reconciler.core.refs import GroupResource, Kind

API_SERVICE_EXPORT: Final = Kind(KLUTCH_GROUP, API_VERSION, "APIServiceExport", "apiserviceexports")
API_SERVICE_EXPORT_REQUEST: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceExportRequest", "apiserviceexportrequests"
)
API_SERVICE_EXPORT_TEMPLATE: Final = Kind(
    TEMPLATE_GROUP, API_VERSION, "APIServiceExportTemplate", "apiserviceexporttemplates"
)
API_SERVICE_NAMESPACE: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceNamespace", "apiservicenamespaces"
)


def permission_claims_of(offer: manifest.Manifest) -> Sequence[manifest.Manifest]:
    """Return the permission claims that an export, or a template, offers."""
    return manifest.get_maps(offer, "spec", "permissionClaims")


def connected_of(export: manifest.Manifest | None) -> Condition | None:
    """Return the condition in which a konnector reports its sync; None where none ever came."""
    present = conditions.parse(manifest.get_list(export, "status", "conditions"))
    return conditions.find(present, reasons.CONNECTED)


def reports_sync(export: manifest.Manifest | None) -> bool:
    """Tell whether a konnector reports that it syncs the objects of an export."""
    connected = connected_of(export)
    return connected is not None and connected.status == conditions.TRUE


def reports_end_of_sync(export: manifest.Manifest | None) -> bool:
    """Tell whether a konnector reports that it has stopped, because the binding is gone."""
    connected = connected_of(export)
    reason = reasons.BINDING_NOT_FOUND.reason
    return connected is not None and (connected.status, connected.reason) == (
        conditions.FALSE,
        reason,
    )


def offered_resource(template: manifest.Manifest) -> GroupResource:
    """Return what a template lets be exported."""
    selector = manifest.get_map(template, "spec", "APIServiceSelector")
    return GroupResource(
        manifest.get_text(selector, "group"), manifest.get_text(selector, "resource")
    )


def by_resource(templates: Iterable[manifest.Manifest]) -> dict[GroupResource, manifest.Manifest]:
    """Return the template of each resource that counts: the first by namespace and name (B.3).

    A template that is being deleted offers nothing any more.
    """
    counting: dict[GroupResource, manifest.Manifest] = {}
    for template in sorted(templates, key=manifest.identity_of):
        if not manifest.is_deleting(template):
            counting.setdefault(offered_resource(template), template)
    return counting


def released_kinds(mapping: manifest.Manifest) -> frozenset[str]:
    """Return the resources of which released copies are, or were, behind a mapping."""
    text = manifest.annotations_of(mapping).get(keys.RELEASED_KINDS, "")
    return frozenset(filter(None, text.split(",")))


def served_versions(definition: manifest.Manifest) -> list[manifest.Manifest]:
    """Return the versions that are served, in their order."""
    versions = manifest.get_maps(definition, "spec", "versions")
    return [version for version in versions if manifest.get_bool(version, "served")]


def preferred_version(served: Sequence[manifest.Manifest]) -> str:
    """Return the version to read and write objects in, "" where none is served.

    That is the storage version, in which nothing is lost; where it is not served, the first that
    is, as in the original's konnector (C.6).
    """
    stored = [version for version in served if manifest.get_bool(version, "storage")]
    return manifest.get_text((stored or served or [{}])[0], "name")


def kind_of(definition: manifest.Manifest, version: str) -> Kind:
    """Return the kind that is defined, in one version."""
    return Kind(
        manifest.get_text(definition, "spec", "group"),
        version,
        manifest.get_text(definition, "spec", "names", "kind"),
        manifest.get_text(definition, "spec", "names", "plural"),
        namespaced=manifest.get_text(definition, "spec", "scope") != "Cluster",
    )


def is_established(crd: manifest.Manifest | None) -> bool:
    """Tell whether the API server serves what a CRD defines."""
    present = conditions.parse(manifest.get_list(crd, "status", "conditions"))
    established = conditions.find(present, "Established")
    return established is not None and established.status == conditions.TRUE


def is_from_konnector(crd: manifest.Manifest) -> bool:
    """Tell whether a konnector made a CRD in the app cluster; the original's counts."""
    return not field_set.managers_of(crd).isdisjoint(keys.KONNECTORS)


def is_binding_reference(owner: manifest.Manifest) -> bool:
    """Tell whether an ownerReference is to an APIServiceBinding."""
    group = manifest.get_text(owner, "apiVersion").partition("/")[0]
    binding = API_SERVICE_BINDING
    return (group, manifest.get_text(owner, "kind")) == (binding.group, binding.kind)


def binding_references(crd: manifest.Manifest) -> list[manifest.Manifest]:
    """Return the ownerReferences to APIServiceBindings."""
    return list(filter(is_binding_reference, manifest.get_maps(crd, "metadata", "ownerReferences")))
