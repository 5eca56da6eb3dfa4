"""APIServiceExport: a CRD that a provider offers to one app cluster (protocol-bind A.3)."""

from typing import Final, Literal

from pydantic import Field, JsonValue, StrictBool, StrictInt

from reconciler.api.common import (
    GROUP,
    KLUTCH_VERSION,
    VERSION,
    Condition,
    KlutchVersion,
    ObjectMeta,
    PermissionClaim,
    WireModel,
)
from reconciler.core.refs import Kind

API_SERVICE_EXPORT: Final = Kind(GROUP, VERSION, "APIServiceExport", "apiserviceexports")


class ResourceNames(WireModel):
    """The `names` of a CRD."""

    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class VersionSchema(WireModel):
    """The schema stays JSON: it is carried, not read."""

    open_api_v3_schema: dict[str, JsonValue] = Field(alias="openAPIV3Schema", repr=False)


class ScaleSubresource(WireModel):
    """JSON paths that make /scale work."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class Subresources(WireModel):
    """Each is None where it is not served; an empty `status` is served."""

    status: dict[str, JsonValue] | None = None
    scale: ScaleSubresource | None = None


class PrinterColumn(WireModel):
    """A column of tables; those of a priority above 0 are shown on demand."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: StrictInt = 0


class ExportVersion(WireModel):
    """One version of the CRD."""

    name: str
    served: StrictBool = True
    storage: StrictBool
    deprecated: StrictBool = False
    deprecation_warning: str = ""
    schema_: VersionSchema = Field(alias="schema")
    subresources: Subresources = Subresources()
    additional_printer_columns: tuple[PrinterColumn, ...] = ()


class APIServiceExportSpec(WireModel):
    """`cluster_scoped_isolation` is there exactly where `scope` is Cluster."""

    group: str
    names: ResourceNames
    scope: Literal["Cluster", "Namespaced"]
    versions: tuple[ExportVersion, ...]
    permission_claims: tuple[PermissionClaim, ...] = ()
    informer_scope: Literal["Cluster", "Namespaced"]
    cluster_scoped_isolation: Literal["Prefixed", "Namespaced", "None"] | None = None


class APIServiceExportStatus(WireModel):
    """Mirrors the CRD in the app cluster. `accepted_names` is None until there is one."""

    accepted_names: ResourceNames | None = None
    stored_versions: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


class APIServiceExport(WireModel):
    """Named `plural.group`, like the CRD and its APIServiceBinding."""

    api_version: KlutchVersion = KLUTCH_VERSION
    kind: Literal["APIServiceExport"] = "APIServiceExport"
    metadata: ObjectMeta = ObjectMeta()
    spec: APIServiceExportSpec
    status: APIServiceExportStatus = APIServiceExportStatus()
