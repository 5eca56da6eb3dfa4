"""CustomResourceDefinition: which version to use, and the kind that follows.

An APIServiceExport says group, names, scope and versions in the same words, so all of this holds
for exports, too.
"""

from collections.abc import Sequence

from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import conditions, field_set, keys
from reconciler.core.manifest import Manifest, get_bool, get_list, get_maps, get_text
from reconciler.core.refs import Kind


def served_versions(definition: Manifest) -> list[Manifest]:
    """Return the versions that are served, in their order."""
    versions = get_maps(definition, "spec", "versions")
    return [version for version in versions if get_bool(version, "served")]


def preferred_version(served: Sequence[Manifest]) -> str:
    """Return the version to read and write objects in, "" where none is served.

    That is the storage version, in which nothing is lost; where it is not served, the first that
    is, as in the original's konnector (C.6).
    """
    stored = [version for version in served if get_bool(version, "storage")]
    return get_text((stored or served or [{}])[0], "name")


def kind_of(definition: Manifest, version: str) -> Kind:
    """Return the kind that is defined, in one version."""
    return Kind(
        get_text(definition, "spec", "group"),
        version,
        get_text(definition, "spec", "names", "kind"),
        get_text(definition, "spec", "names", "plural"),
        namespaced=get_text(definition, "spec", "scope") != "Cluster",
    )


def is_established(crd: Manifest | None) -> bool:
    """Tell whether the API server serves what a CRD defines."""
    present = conditions.parse(get_list(crd, "status", "conditions"))
    established = conditions.find(present, "Established")
    return established is not None and established.status == conditions.TRUE


def is_from_konnector(crd: Manifest) -> bool:
    """Tell whether a konnector made a CRD in the app cluster; the original's counts."""
    return not field_set.managers_of(crd).isdisjoint(keys.KONNECTORS)


def is_binding_reference(owner: Manifest) -> bool:
    """Tell whether an ownerReference is to an APIServiceBinding."""
    group = get_text(owner, "apiVersion").partition("/")[0]
    binding = API_SERVICE_BINDING
    return (group, get_text(owner, "kind")) == (binding.group, binding.kind)


def binding_references(crd: Manifest) -> list[Manifest]:
    """Return the ownerReferences to APIServiceBindings."""
    return list(filter(is_binding_reference, get_maps(crd, "metadata", "ownerReferences")))
