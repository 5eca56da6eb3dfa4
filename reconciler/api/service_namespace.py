"""APIServiceNamespace: an app namespace's counterpart at the provider (protocol-bind A.5)."""

from typing import Final, Literal

from reconciler.api.common import (
    GROUP,
    KLUTCH_VERSION,
    VERSION,
    KlutchVersion,
    ObjectMeta,
    WireModel,
)
from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of
from reconciler.core.refs import Kind

API_SERVICE_NAMESPACE: Final = Kind(GROUP, VERSION, "APIServiceNamespace", "apiservicenamespaces")


class APIServiceNamespaceSpec(WireModel):
    """Empty."""


class APIServiceNamespaceStatus(WireModel):
    """`namespace` is "" until the provider has made it."""

    namespace: str = ""


class APIServiceNamespace(WireModel):
    """Named like the namespace in the app cluster; lives in the binding space."""

    api_version: KlutchVersion = KLUTCH_VERSION
    kind: Literal["APIServiceNamespace"] = "APIServiceNamespace"
    metadata: ObjectMeta = ObjectMeta()
    spec: APIServiceNamespaceSpec = APIServiceNamespaceSpec()
    status: APIServiceNamespaceStatus = APIServiceNamespaceStatus()


def released_kinds(mapping: Manifest) -> frozenset[str]:
    """Return the resources of which released copies are, or were, behind a mapping."""
    text = annotations_of(mapping).get(keys.RELEASED_KINDS, "")
    return frozenset(filter(None, text.split(",")))
