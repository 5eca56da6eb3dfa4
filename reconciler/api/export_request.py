"""APIServiceExportRequest: an app cluster's wish for exports (protocol-bind A.4, A.12)."""

from typing import Final, Literal

from pydantic import Field, JsonValue

from reconciler.api.common import (
    GROUP,
    KLUTCH_VERSION,
    VERSION,
    Condition,
    GroupResource,
    KlutchVersion,
    ObjectMeta,
    PermissionClaim,
    WireModel,
)
from reconciler.core.refs import Kind

API_SERVICE_EXPORT_REQUEST: Final = Kind(
    GROUP, VERSION, "APIServiceExportRequest", "apiserviceexportrequests"
)


class RequestedResource(GroupResource):
    """`permission_claims` inform; the template's are what counts."""

    versions: tuple[str, ...] = ()
    permission_claims: tuple[PermissionClaim, ...] = ()


class APIServiceExportRequestSpec(WireModel):
    """Neither field can be changed."""

    parameters: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    resources: tuple[RequestedResource, ...]


class APIServiceExportRequestStatus(WireModel):
    """Never sent on create: the API server sets `phase` to Pending."""

    phase: Literal["Pending", "Failed", "Succeeded"] = "Pending"
    terminal_message: str = ""
    conditions: tuple[Condition, ...] = ()


class APIServiceExportRequest(WireModel):
    """Stored on the control plane, and an element of a BindingResponse (named, not stored)."""

    api_version: KlutchVersion = KLUTCH_VERSION
    kind: Literal["APIServiceExportRequest"] = "APIServiceExportRequest"
    metadata: ObjectMeta = ObjectMeta()
    spec: APIServiceExportRequestSpec
    status: APIServiceExportRequestStatus = APIServiceExportRequestStatus()
