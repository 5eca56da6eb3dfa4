"""APIServiceExport: a CRD that a provider offers to one app cluster (protocol-bind A.3).

Named `plural.group`, like the CRD and its APIServiceBinding.
"""

from collections.abc import Sequence
from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.manifest import Manifest, get_maps
from reconciler.core.refs import Kind

API_SERVICE_EXPORT: Final = Kind(KLUTCH_GROUP, API_VERSION, "APIServiceExport", "apiserviceexports")


def permission_claims_of(offer: Manifest) -> Sequence[Manifest]:
    """Return the permission claims that an export, or a template, offers."""
    return get_maps(offer, "spec", "permissionClaims")
