"""APIServiceNamespace: an app namespace's counterpart at the provider (protocol-bind A.5).

Named like the namespace in the app cluster; lives in the binding space.
"""

from typing import Final

from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of
from reconciler.core.refs import Kind

API_SERVICE_NAMESPACE: Final = Kind(
    keys.KLUTCH_GROUP, keys.API_VERSION, "APIServiceNamespace", "apiservicenamespaces"
)


def released_kinds(mapping: Manifest) -> frozenset[str]:
    """Return the resources of which released copies are, or were, behind a mapping."""
    text = annotations_of(mapping).get(keys.RELEASED_KINDS, "")
    return frozenset(filter(None, text.split(",")))
