"""APIServiceBinding: a provider's service in an app cluster (protocol-bind A.2).

Named `plural.group`, like the CRD and its export.
"""

from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.refs import Kind

# Klutch up to 1.5.0 serves it cluster-scoped: the live CRD decides which path is right.
API_SERVICE_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceBinding", "apiservicebindings"
)
