"""AppClusterBinding: an app cluster bound from the control plane (protocol-bind A.7)."""

from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.refs import Kind

APP_CLUSTER_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "AppClusterBinding", "appclusterbindings"
)
