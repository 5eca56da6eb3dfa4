"""APIServiceExportTemplate: what may be exported, and with which claims (protocol-bind A.8)."""

from typing import Final, Literal

from pydantic import Field

from reconciler.api.common import (
    VERSION,
    GroupResource,
    ObjectMeta,
    PermissionClaim,
    WireModel,
)
from reconciler.core.refs import Kind

API_SERVICE_EXPORT_TEMPLATE: Final = Kind(
    "example-backend.klutch.anynines.com",
    VERSION,
    "APIServiceExportTemplate",
    "apiserviceexporttemplates",
)


class APIServiceSelector(GroupResource):
    """`version` is never evaluated."""

    version: str = ""


class APIServiceExportTemplateSpec(WireModel):
    """The claims are copied into exports and offered to the user."""

    # The one wire name with upper-case initials.
    api_service_selector: APIServiceSelector = Field(alias="APIServiceSelector")
    permission_claims: tuple[PermissionClaim, ...] = ()


class APIServiceExportTemplateStatus(WireModel):
    """Empty."""


class APIServiceExportTemplate(WireModel):
    """May live in any namespace; it is the only permission to export its resource."""

    api_version: Literal["example-backend.klutch.anynines.com/v1alpha1"] = (
        "example-backend.klutch.anynines.com/v1alpha1"
    )
    kind: Literal["APIServiceExportTemplate"] = "APIServiceExportTemplate"
    metadata: ObjectMeta = ObjectMeta()
    spec: APIServiceExportTemplateSpec
    status: APIServiceExportTemplateStatus = APIServiceExportTemplateStatus()
