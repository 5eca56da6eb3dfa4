"""What a claim in an app cluster says of its sync, beside what its provider says."""

from datetime import timedelta
from typing import Final

from reconciler.core import conditions, manifest
from reconciler.core.conditions import TRUE
from reconciler.core.decision import Note
from reconciler.core.manifest import Manifest

_USUAL: Final = timedelta(seconds=10)  # for a deletion of which nobody says why it takes longer
_REMINDER: Final = timedelta(minutes=30)  # Events live for an hour


def deletion_note(copy: Manifest, waited: timedelta) -> Note | None:
    """Return the Event about a claim whose copy is still being deleted; None where it is early."""
    why = _reason_for_waiting(copy)
    if why:
        message = f"The control plane is still deleting it: {why}"
        return Note("DeletionPending", message, "Warning", action="Delete")
    if waited < _USUAL:
        return None
    holders = ", ".join(manifest.finalizers_of(copy))
    message = f"The control plane is still deleting it, and does not say why: {holders} hold it"
    return Note("DeletionPending", message, action="Delete")


def deletion_noted_in(waited: timedelta) -> timedelta:
    """Return when to look again at a claim whose copy is still being deleted."""
    return _REMINDER if waited >= _USUAL else _USUAL - max(waited, timedelta())


def _reason_for_waiting(copy: Manifest) -> str:
    """Return what the copy's conditions say, Ready before others; "" where they give no words."""
    said = conditions.ordered(conditions.of(copy))
    spoken = (one for one in said if one.status != TRUE and one.message)
    return next((": ".join(filter(None, (one.reason, one.message))) for one in spoken), "")
