"""AppClusterBinding: an app cluster bound from the control plane (protocol-bind A.7)."""

from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.manifest import Manifest, get_maps, get_text
from reconciler.core.refs import GroupResource, Kind

APP_CLUSTER_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "AppClusterBinding", "appclusterbindings"
)


def listed_resource(listed: Manifest) -> GroupResource:
    """Return what one item of spec.apiExports names; blanks around it do not count (C.6)."""
    return GroupResource(get_text(listed, "group").strip(), get_text(listed, "resource").strip())


def listed_resources(app_cluster_binding: Manifest) -> frozenset[GroupResource]:
    """Return what spec.apiExports lists."""
    return frozenset(map(listed_resource, get_maps(app_cluster_binding, "spec", "apiExports")))
