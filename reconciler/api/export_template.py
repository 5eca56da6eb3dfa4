"""APIServiceExportTemplate: what may be exported, and with which claims (protocol-bind A.8)."""

from typing import Final

from reconciler.core.keys import API_VERSION, TEMPLATE_GROUP
from reconciler.core.refs import Kind

API_SERVICE_EXPORT_TEMPLATE: Final = Kind(
    TEMPLATE_GROUP, API_VERSION, "APIServiceExportTemplate", "apiserviceexporttemplates"
)
