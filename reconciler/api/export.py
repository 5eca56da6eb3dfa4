"""APIServiceExport: a CRD that a provider offers to one app cluster (protocol-bind A.3).

Named `plural.group`, like the CRD and its APIServiceBinding.
"""

from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.refs import Kind

API_SERVICE_EXPORT: Final = Kind(KLUTCH_GROUP, API_VERSION, "APIServiceExport", "apiserviceexports")
