"""The kind FleetStatus, in which a controller reports the state of its fleet: names, a reader."""

from typing import Final

from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of, get_int, get_text
from reconciler.core.refs import Kind

FLEET_GROUP: Final = "fleet.klutchctl.dev"
FLEET_STATUS: Final = Kind(FLEET_GROUP, keys.API_VERSION, "FleetStatus", "fleetstatuses")


def accepted_commit(live: Manifest | None) -> str:
    """Return the last commit that was accepted, "" where there is none."""
    return get_text(live, "status", "accepted")


def observed_generation(live: Manifest, files: str) -> int:
    """Return the generation that a new status is about, where the tree `files` was looked at.

    While the object asks for another tree, it is about what was asked for before: a Ready of the
    files before is no answer to a commit.
    """
    generation = get_int(live, "metadata", "generation") or 1
    before = get_int(live, "status", "observedGeneration")
    if get_text(live, "spec", "files") in ("", files):
        return generation
    return generation - 1 if before is None else min(before, generation)


def suspension(live: Manifest | None) -> str:
    """Return why nothing is to be written to clusters, or ""."""
    found = None if live is None else annotations_of(live).get(keys.SUSPEND)
    return "" if found is None else found.strip() or "no reason is given"
