"""APIServiceExport: a CRD that a provider offers to one app cluster (protocol-bind A.3).

Named `plural.group`, like the CRD and its APIServiceBinding.
"""

from collections.abc import Sequence
from typing import Final

from reconciler.core import conditions, reasons
from reconciler.core.conditions import Condition
from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.manifest import Manifest, get_list, get_maps
from reconciler.core.refs import Kind

API_SERVICE_EXPORT: Final = Kind(KLUTCH_GROUP, API_VERSION, "APIServiceExport", "apiserviceexports")


def permission_claims_of(offer: Manifest) -> Sequence[Manifest]:
    """Return the permission claims that an export, or a template, offers."""
    return get_maps(offer, "spec", "permissionClaims")


def connected_of(export: Manifest | None) -> Condition | None:
    """Return the condition in which a konnector reports its sync; None where none ever came."""
    present = conditions.parse(get_list(export, "status", "conditions"))
    return conditions.find(present, reasons.CONNECTED)


def reports_sync(export: Manifest | None) -> bool:
    """Tell whether a konnector reports that it syncs the objects of an export."""
    connected = connected_of(export)
    return connected is not None and connected.status == conditions.TRUE


def reports_end_of_sync(export: Manifest | None) -> bool:
    """Tell whether a konnector reports that it has stopped, because the binding is gone."""
    connected = connected_of(export)
    reason = reasons.BINDING_NOT_FOUND.reason
    return connected is not None and (connected.status, connected.reason) == (
        conditions.FALSE,
        reason,
    )
