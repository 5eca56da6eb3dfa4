"""Why no claim of a kind is undone at its broker now: its CRD goes with all of them, or may."""

from collections.abc import Iterable
from datetime import timedelta

from bind.osb.decisions import causes
from bind.osb.decisions.record import Record
from bind.osb.decisions.view import CLOSED, InstanceView
from reconciler.api.osb import GeneratedKind
from reconciler.core import keys
from reconciler.core.conditions import Cause


def mass_deletion(
    view: InstanceView, kind: GeneratedKind, *, crd_is_deleting: bool, undo: str = "delete"
) -> tuple[Cause, str] | None:
    """Return why claims of a kind are held; None where they are not, or that is confirmed."""
    if view.broker is not None and view.broker.confirms_mass_delete:
        return None
    resource = kind.kind.resource
    if crd_is_deleting:
        advice = f"annotate ServiceBroker {kind.broker} with {keys.CONFIRM_MASS_DELETE}"
        return causes.MASS_DELETION, f"CRD {resource} is being deleted; to {undo} all: {advice}"
    if view.unsure:
        message = f"it cannot be seen whether CRD {resource} is being deleted: {view.unsure}"
        return causes.CRDS_UNREAD, message
    return None


def no_broker(records: Iterable[Record], kind_broker: str) -> str:
    """Return what is said of claims whose ServiceBroker is gone, and what frees a deleted one."""
    one = next(iter(records), None)
    if one is None:
        return f"there is no ServiceBroker {kind_broker}"
    return (
        f"there is no ServiceBroker {one.broker}; apply it again, or have a deleted claim go "
        f"without it: annotate BrokerRecord {one.id} with {keys.OSB_ORPHAN}: {keys.ORPHAN_FORGET}"
    )


def again(cause: Cause) -> timedelta | None:
    """Return when it is looked at again what is held; None where a change leads there."""
    return CLOSED if cause == causes.CRDS_UNREAD else None
