"""Conditions of claims and brokers, and the causes for which they are False."""

from typing import Final

from reconciler.core.conditions import DELETES_ALLOWED, ERROR, INFO, WARNING, Cause

# Of instances.
PROVISIONED: Final = "Provisioned"
UP_TO_DATE: Final = "UpToDate"
IN_SYNC: Final = "InSync"

NO_BROKER: Final = Cause(PROVISIONED, WARNING, "NoServiceBroker")
NOT_OFFERED: Final = Cause(PROVISIONED, ERROR, "NotOffered")
PREDECESSOR: Final = Cause(PROVISIONED, ERROR, "PredecessorThere")
PENDING: Final = Cause(PROVISIONED, INFO, "Pending")
PROVISIONING: Final = Cause(PROVISIONED, INFO, "Provisioning")
RETRYING: Final = Cause(PROVISIONED, WARNING, "Retrying")
REFUSED: Final = Cause(PROVISIONED, ERROR, "Refused")
FAILED: Final = Cause(PROVISIONED, ERROR, "Failed")
MISSING: Final = Cause(PROVISIONED, ERROR, "Missing")
NOT_USABLE: Final = Cause(PROVISIONED, ERROR, "NotUsable")

UPDATING: Final = Cause(UP_TO_DATE, INFO, "Updating")
UPDATE_WAITS: Final = Cause(UP_TO_DATE, INFO, "Pending")
UPDATE_NOT_OFFERED: Final = Cause(UP_TO_DATE, WARNING, "NotOffered")
UPDATE_REFUSED: Final = Cause(UP_TO_DATE, WARNING, "Refused")
UPDATE_FAILED: Final = Cause(UP_TO_DATE, WARNING, "Failed")

DRIFTED: Final = Cause(IN_SYNC, WARNING, "Drifted")

STILL_BOUND: Final = Cause(DELETES_ALLOWED, WARNING, "StillBound")
MASS_DELETION: Final = Cause(DELETES_ALLOWED, ERROR, "MassDeletion")
NOT_DELETED: Final = Cause(DELETES_ALLOWED, WARNING, "NotDeleted")
NO_BROKER_TO_DELETE: Final = Cause(DELETES_ALLOWED, ERROR, "NoServiceBroker")

# Of brokers.
REACHABLE: Final = "Reachable"
CATALOG_IN_SYNC: Final = "CatalogInSync"
NO_ORPHANS: Final = "NoOrphans"

UNREACHABLE: Final = Cause(REACHABLE, ERROR, "Unreachable")
CATALOG_UNREAD: Final = Cause(CATALOG_IN_SYNC, WARNING, "NotRead")
CATALOG_DIFFERS: Final = Cause(CATALOG_IN_SYNC, WARNING, "Differs")
ORPHANS: Final = Cause(NO_ORPHANS, WARNING, "Orphans")
