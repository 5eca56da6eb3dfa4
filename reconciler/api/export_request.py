"""APIServiceExportRequest: an app cluster's wish for exports (protocol-bind A.4, A.12)."""

from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.refs import Kind

API_SERVICE_EXPORT_REQUEST: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceExportRequest", "apiserviceexportrequests"
)
