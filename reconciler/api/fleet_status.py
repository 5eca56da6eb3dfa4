"""The kind FleetStatus, in which a controller shows how its fleet is, and what is read of it."""

from typing import Final

from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of, get_text
from reconciler.core.refs import Kind

FLEET_GROUP: Final = "fleet.klutchctl.dev"
FLEET_STATUS: Final = Kind(FLEET_GROUP, keys.API_VERSION, "FleetStatus", "fleetstatuses")


def accepted_commit(live: Manifest | None) -> str:
    """Return the last commit that was accepted, "" where there is none."""
    return get_text(live, "status", "accepted")


def suspension(live: Manifest | None) -> str:
    """Return why nothing is to be written to clusters, or ""."""
    found = None if live is None else annotations_of(live).get(keys.SUSPEND)
    return "" if found is None else found.strip() or "no reason is given"
