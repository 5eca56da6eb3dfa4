"""How the wire kinds follow from each other: an export's CRD, and an instance's copy.

Pure; protocol-konnector.md C.3, D.2, D.4.
"""

from collections.abc import Mapping
from typing import Final

from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import keys
from reconciler.core.manifest import (
    JSON,
    Manifest,
    drop,
    get,
    get_map,
    get_maps,
    get_text,
    name_of,
    put,
    strip_server_fields,
    uid_of,
)
from reconciler.core.refs import CRD, Kind

_OF_VERSION: Final = (
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "schema",
    "additionalPrinterColumns",
)


def consumer_crd(export: Manifest, binding: Manifest) -> Manifest:
    """Return the CRD that a konnector installs in the app cluster."""
    spec = get_map(export, "spec")
    versions = [_version(one) for one in get_maps(spec, "versions")]
    copied = {key: spec.get(key) for key in ("group", "names", "scope")}
    owner: Manifest = {
        "apiVersion": API_SERVICE_BINDING.api_version,
        "kind": API_SERVICE_BINDING.kind,
        "name": name_of(binding),
        "uid": uid_of(binding),
        "controller": True,
    }
    metadata: Manifest = {"name": name_of(export), "ownerReferences": [owner]}
    return _typed(CRD, metadata) | {"spec": copied | {"versions": versions}}


def owns(binding: Manifest, crd: Manifest) -> bool:
    """Tell whether a CRD is this binding's: another uid is another binding."""
    return any(
        get_text(one, "apiVersion").partition("/")[0] == keys.KLUTCH_GROUP
        and one.get("kind") == API_SERVICE_BINDING.kind
        and (one.get("name"), one.get("uid")) == (name_of(binding), uid_of(binding))
        for one in get_maps(crd, "metadata", "ownerReferences")
    )


def instance_kind(export: Manifest) -> Kind:
    """Return what an export's instances are, in its first served version."""
    versions = [get_text(one, "name") for one in get_maps(export, "spec", "versions")]
    return Kind(
        get_text(export, "spec", "group"),
        versions[0],
        get_text(export, "spec", "names", "kind"),
        get_text(export, "spec", "names", "plural"),
        namespaced=get_text(export, "spec", "scope") == "Namespaced",
    )


def has_status(export: Manifest) -> bool:
    """Tell whether the instances have a status of their own."""
    return get(export, "spec", "versions", 0, "subresources", "status") is not None


def moved(live: Manifest, namespace: str, name: str, annotations: Mapping[str, str]) -> Manifest:
    """Return a copy for the other side: nothing of it is the server's, an owner's or held."""
    made: Manifest = strip_server_fields(live, keep_status=False)
    for key in ("ownerReferences", "finalizers"):
        made = drop(made, "metadata", key)
    made = put(made, name, "metadata", "name")
    if namespace:
        made = put(made, namespace, "metadata", "namespace")
    both = {**get_map(live, "metadata", "annotations"), **annotations}
    return put(made, both, "metadata", "annotations")


def _version(version: Manifest) -> Manifest:
    said = {key: version[key] for key in _OF_VERSION if key in version}
    return said | {"subresources": get_map(version, "subresources")}


def _typed(kind: Kind, metadata: Manifest) -> dict[str, JSON]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
