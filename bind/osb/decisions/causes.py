"""Conditions of claims and brokers, and the causes of False ones."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from bind.osb.decisions.record import Record
from bind.osb.decisions.view import CLOSED, BindingView, InstanceView
from reconciler.api.osb import GeneratedKind
from reconciler.core import keys
from reconciler.core.conditions import DELETES_ALLOWED, ERROR, INFO, WARNING, Cause

# Of instances.
PROVISIONED: Final = "Provisioned"
UP_TO_DATE: Final = "UpToDate"
IN_SYNC: Final = "InSync"

NO_BROKER: Final = Cause(PROVISIONED, WARNING, "NoServiceBroker")
NOT_OFFERED: Final = Cause(PROVISIONED, ERROR, "NotOffered")
INVALID: Final = Cause(PROVISIONED, ERROR, "InvalidParameters")
PREDECESSOR: Final = Cause(PROVISIONED, ERROR, "PredecessorThere")
PENDING: Final = Cause(PROVISIONED, INFO, "Pending")
PROVISIONING: Final = Cause(PROVISIONED, INFO, "Provisioning")
RETRYING: Final = Cause(PROVISIONED, WARNING, "Retrying")
REFUSED: Final = Cause(PROVISIONED, ERROR, "Refused")
FAILED: Final = Cause(PROVISIONED, ERROR, "Failed")
MISSING: Final = Cause(PROVISIONED, ERROR, "Missing")
NOT_USABLE: Final = Cause(PROVISIONED, ERROR, "NotUsable")

UPDATING: Final = Cause(UP_TO_DATE, INFO, "Updating")
MOVED: Final = Cause(UP_TO_DATE, ERROR, "BrokerMoved")
PROVISION_MOVED: Final = Cause(PROVISIONED, ERROR, "BrokerMoved")
MOVED_TO_DELETE: Final = Cause(DELETES_ALLOWED, ERROR, "BrokerMoved")
UPDATE_WAITS: Final = Cause(UP_TO_DATE, INFO, "Pending")
UPDATE_NOT_OFFERED: Final = Cause(UP_TO_DATE, WARNING, "NotOffered")
UPDATE_INVALID: Final = Cause(UP_TO_DATE, WARNING, "InvalidParameters")
UPDATE_REFUSED: Final = Cause(UP_TO_DATE, WARNING, "Refused")
UPDATE_FAILED: Final = Cause(UP_TO_DATE, WARNING, "Failed")

DRIFTED: Final = Cause(IN_SYNC, WARNING, "Drifted")

STILL_BOUND: Final = Cause(DELETES_ALLOWED, WARNING, "StillBound")
MASS_DELETION: Final = Cause(DELETES_ALLOWED, ERROR, "MassDeletion")
CRDS_UNREAD: Final = Cause(DELETES_ALLOWED, WARNING, "CrdsNotRead")
NOT_DELETED: Final = Cause(DELETES_ALLOWED, WARNING, "NotDeleted")
NO_BROKER_TO_DELETE: Final = Cause(DELETES_ALLOWED, ERROR, "NoServiceBroker")

# What goes on only once somebody does something.
HELD: Final = frozenset(
    {
        *(NO_BROKER, NOT_OFFERED, INVALID, UPDATE_INVALID, PREDECESSOR),
        *(STILL_BOUND, MASS_DELETION, NO_BROKER_TO_DELETE),
        *(MOVED, PROVISION_MOVED, MOVED_TO_DELETE),
    }
)

# Of brokers.
REACHABLE: Final = "Reachable"
CATALOG_IN_SYNC: Final = "CatalogInSync"
NO_ORPHANS: Final = "NoOrphans"
KINDS_SERVED: Final = "KindsServed"

UNREACHABLE: Final = Cause(REACHABLE, ERROR, "Unreachable")
CATALOG_UNREAD: Final = Cause(CATALOG_IN_SYNC, WARNING, "NotRead")
CATALOG_DIFFERS: Final = Cause(CATALOG_IN_SYNC, WARNING, "Differs")
ORPHANS: Final = Cause(NO_ORPHANS, WARNING, "Orphans")
CLAIMS_UNREAD: Final = Cause(KINDS_SERVED, ERROR, "ClaimsNotRead")

# Of bindings; DELETES_ALLOWED as of instances.
BOUND: Final = "Bound"
VALID: Final = "Valid"
ROTATED: Final = "Rotated"
PROJECTED: Final = "Projected"

BIND_WAITS: Final = Cause(BOUND, INFO, "Pending")
BINDING: Final = Cause(BOUND, INFO, "Binding")
NO_BROKER_TO_BIND: Final = Cause(BOUND, WARNING, "NoServiceBroker")
NOT_BINDABLE: Final = Cause(BOUND, ERROR, "NotBindable")
BIND_INVALID: Final = Cause(BOUND, ERROR, "InvalidParameters")
BIND_RETRIES: Final = Cause(BOUND, WARNING, "Retrying")
BIND_REFUSED: Final = Cause(BOUND, ERROR, "Refused")
BIND_FAILED: Final = Cause(BOUND, ERROR, "Failed")
NO_CREDENTIALS: Final = Cause(BOUND, ERROR, "NoCredentials")
SECRET_TAKEN: Final = Cause(BOUND, ERROR, "SecretTaken")
SECRET_LOST: Final = Cause(BOUND, WARNING, "SecretLost")
SECRET_NOT_WRITTEN: Final = Cause(BOUND, WARNING, "SecretNotWritten")
INSTANCE_DELETED: Final = Cause(BOUND, INFO, "InstanceDeleted")

EXPIRED: Final = Cause(VALID, ERROR, "Expired")
INSTANCE_LOST: Final = Cause(VALID, ERROR, "InstanceMissing")
SAME_CREDENTIALS: Final = Cause(ROTATED, WARNING, "SameCredentials")


def overdue(problem: str) -> str:
    """Return what is said of what is made past its deadline, of which the broker tells no end."""
    return (
        f"it takes longer than it may, and the broker does not say how it ended: {problem}. "
        "It is kept until the broker does, or its claim is deleted"
    )


def of_rotation(cause: Cause) -> Cause:
    """Return for what cause a rotation is not done; the old credentials stay as they are."""
    return Cause(ROTATED, WARNING, cause.reason)


def mass_deletion(
    view: InstanceView, kind: GeneratedKind, *, crd_is_deleting: bool, undo: str = "delete"
) -> tuple[Cause, str] | None:
    """Return why claims of a kind are held; None where they are not, or that is confirmed."""
    if view.broker is not None and view.broker.confirms_mass_delete:
        return None
    resource = kind.kind.resource
    if crd_is_deleting:
        advice = f"annotate ServiceBroker {kind.broker} with {keys.CONFIRM_MASS_DELETE}"
        return MASS_DELETION, f"CRD {resource} is being deleted; to {undo} all: {advice}"
    if view.unsure:
        message = f"it cannot be seen whether CRD {resource} is being deleted: {view.unsure}"
        return CRDS_UNREAD, message
    return None


def hold(
    view: InstanceView, of: InstanceView | BindingView, *, undo: str = "delete"
) -> tuple[Cause, str] | None:
    """Return why nothing is deleted at a broker for a claim; None where it may be."""
    if view.broker is None:
        return NO_BROKER_TO_DELETE, no_broker(of.records, of.kind.broker)
    if view.broker.moved:
        return MOVED_TO_DELETE, view.broker.moved
    return mass_deletion(view, of.kind, crd_is_deleting=of.crd_is_deleting, undo=undo)


def no_broker(records: Iterable[Record], kind_broker: str) -> str:
    """Return what is said of claims whose ServiceBroker is gone, and what frees a deleted one."""
    one = next(iter(records), None)
    if one is None:
        return f"there is no ServiceBroker {kind_broker}"
    return (
        f"there is no ServiceBroker {one.broker}; apply it again, or have a deleted claim go "
        f"without it: annotate BrokerRecord {one.id} with {keys.OSB_ORPHAN}: {keys.ORPHAN_FORGET}"
    )


def looked_at_again(cause: Cause) -> timedelta | None:
    """Return when it is looked at looked_at_again what is held; None where a change leads there."""
    return CLOSED if cause == CRDS_UNREAD else None
