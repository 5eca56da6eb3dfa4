"""Finds the party of an object in a space, so that parties take turns (law 4). Pure."""

from typing import Final

from bind import bounds
from reconciler.core import field_set, keys, manifest, names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import ObjectKey
from reconciler.kube.store import without_managed_fields
from reconciler.kube.turns import Party

_OWNER: Final = "owner"  # beside `metadata`: no API server sends it, and nobody writes it there
# Others may annotate Namespaces too, and could join the turns of any owner.
_BELIEVED: Final = (keys.MANAGER_BACKEND, keys.MANAGER_CLI, keys.MANAGER_BIND)


def trimmed_namespace(live: Manifest) -> Manifest:
    """Return a Namespace without managedFields, but with the owner that they prove."""
    notes = manifest.annotations_of(live)
    owner = bounds.owner_of(notes.get(keys.IDENTITY, ""))
    fields = field_set.owned(live, *_BELIEVED)
    written = manifest.get_map(fields, "f:metadata", "f:annotations")
    if not owner or f"f:{keys.IDENTITY}" not in written:
        return without_managed_fields(live)
    issuer = notes.get(keys.ISSUER, "") if f"f:{keys.ISSUER}" in written else ""
    return {**without_managed_fields(live), _OWNER: f"{issuer} {owner}"}


def party_of(space: str, namespace: Manifest | None, binding: Manifest | None) -> Party:
    """Return the party of a space; `namespace` as trimmed, `binding` its ClusterBinding."""
    if namespace is not None and bounds.is_of_fleet(namespace):
        return Party(f"fleet {manifest.labels_of(namespace)[keys.FLEET]}", space)
    if author := manifest.labels_of(binding or {}).get(keys.APP_CLUSTER_BINDING_NAMESPACE):
        return Party(f"namespace {author}", space)
    if owner := manifest.get_text(namespace, _OWNER):
        return Party(f"identity {owner}", space)
    return Party(f"space {space}", space)


def party_of_binding(key: ObjectKey) -> Party:
    """Return the party of the AppClusterBinding of a place."""
    space = names.app_cluster_binding_space(*key)
    return Party(f"namespace {key.namespace}", space)
