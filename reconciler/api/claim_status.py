"""Reports the sync of a claim in its status, in addition to the provider's status.

A status is the provider's (protocol-konnector.md D.3), so what is said beside it is an Event while
there is a sync, and a condition once there is none: the next sync replaces it by the provider's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reconciler import api
from reconciler.core import conditions, manifest, times
from reconciler.core.conditions import FALSE, TRUE, Condition
from reconciler.core.decision import Note
from reconciler.core.manifest import JSON, Manifest

SYNCED: Final = "Synced"  # as in Crossplane's, which `kubectl get` shows


@dataclass(frozen=True, slots=True)
class Stop:
    """Why nothing is synced any more: the reason of a condition, and the message."""

    reason: str
    message: str
    page: str = ""

    @property
    def note(self) -> Note:
        return Note("SyncStopped", self.message, "Warning")


RELEASED: Final = Stop(
    "BindingReleased",
    "The binding of this kind was released. Changes here do not reach the service provider, and the"
    " status is no longer up to date. The service itself stays. The sync continues once the kind is"
    " bound again",
)
WITHDRAWN: Final = Stop(
    "ExportWithdrawn",
    "The control plane no longer exports this kind to this cluster. Changes and deletions wait,"
    " and the status is no longer up to date. The sync continues once it is exported again",
)
_WAITING: Final = ("DeletionHeld", "NameTaken", "NotServed", "RecreationHeld")
_REASONS: Final = frozenset({RELEASED.reason, WITHDRAWN.reason, *_WAITING})

_USUAL: Final = timedelta(seconds=10)  # for a deletion of which nobody says why it takes longer
_REMINDER: Final = timedelta(minutes=30)  # Events live for an hour
_LONGEST_WARNING: Final = 256  # characters; the API takes no more


def takes_conditions(crd: Manifest, version: str) -> bool:
    """Return whether the schema of a kind keeps conditions in the status, in a version."""
    schemas = (
        manifest.get(one, "schema", "openAPIV3Schema")
        for one in manifest.get_maps(crd, "spec", "versions")
        if one.get("name") == version
    )
    schema = next(schemas, None)
    for step in ("status", "conditions"):
        if manifest.get_bool(schema, "x-kubernetes-preserve-unknown-fields"):
            return True
        schema = manifest.get(schema, "properties", step)
    return schema is not None


def stopped(claim: Manifest, stop: Stop, *, now: datetime) -> dict[str, JSON] | None:
    """Return the patch of a status that reports the end of the sync.

    None where it says so, or has conditions of its own form.
    """
    if not isinstance(manifest.get(claim, "status", "conditions") or [], list | tuple):
        return None
    if _reason(claim) == stop.reason:
        return None
    new = Condition(SYNCED, FALSE, "", stop.reason, stop.message, page=stop.page)
    updated = conditions.set_condition(conditions.of(claim), new, now=now)
    return {"conditions": conditions.dump(updated)}


def resumed(claim: Manifest) -> dict[str, JSON] | None:
    """Return the patch of a status that no longer reports the end of the sync; None: it does not.

    For a claim without copy: a copy's status takes the place of all that the claim's says.
    """
    if _reason(claim) not in _REASONS:
        return None
    rest = (one for one in conditions.of(claim) if one.type != SYNCED)
    return {"conditions": conditions.dump(rest)}


def unserved(crd: Manifest) -> dict[str, JSON] | None:
    """Return the patch of a CRD's spec after which an API server warns everyone who uses its kind.

    For claims that are made when no konnector looks at them any more. None where it does so, and
    where no konnector made it.
    """
    if manifest.is_deleting(crd) or not api.is_from_konnector(crd):
        return None
    served = {manifest.get_text(one, "name") for one in api.served_versions(crd)}
    name = manifest.name_of(crd)
    warning = f"{name} is not synced any more: what is written here reaches no service provider"
    deprecation: Manifest = {"deprecated": True, "deprecationWarning": warning[:_LONGEST_WARNING]}
    versions: list[JSON] = [*manifest.get_maps(crd, "spec", "versions")]
    changed: list[JSON] = [
        {**one, **deprecation} if one.get("name") in served else one
        for one in manifest.get_maps(crd, "spec", "versions")
    ]
    return None if changed == versions else {"versions": changed}


def is_unserved(crd: Manifest) -> bool:
    """Return whether a CRD of a konnector warns of the end of its sync, or goes."""
    known = api.is_from_konnector(crd) and unserved(crd) is None
    return known and bool(api.served_versions(crd))


def deletion_note(copy: Manifest, waited: timedelta) -> Note | None:
    """Return the Event about the ongoing deletion of a claim's copy; None where it is early."""
    if why := _reason_for_waiting(copy):
        message = f"The control plane is still deleting it: {why}"
        return Note("DeletionPending", message, "Warning", action="Delete")
    if waited < _USUAL:
        return None
    holders = ", ".join(manifest.finalizers_of(copy))
    message = f"The control plane is still deleting it, and gives no reason. Finalizers: {holders}"
    return Note("DeletionPending", message, action="Delete")


def unready_for(copy: Manifest, now: datetime) -> timedelta | None:
    """Return how long a copy has not been ready, as its provider reports; None where it is."""
    present = manifest.get_maps(copy, "status", "conditions")
    unmet = {manifest.get_text(one, "type") for one in present if one.get("status") != TRUE}
    found = (conditions.current(copy, one) for one in unmet & {conditions.READY, SYNCED})
    since = (
        times.moment(one.last_transition_time) or times.created(copy)
        for one in found
        if one is not None and one.status != TRUE
    )
    return max((now - one for one in since if one is not None), default=None)


def unready_note(copy: Manifest, now: datetime) -> Note | None:
    """Return the Event about a claim without a ready copy; None where it is ready, or early.

    A composite resource repeats the conditions of what it is composed of, with the cause.
    """
    if (unready_for(copy, now) or timedelta()) < _USUAL:
        return None
    parts = manifest.get_map(copy, "status").values()
    below = ({"status": part} for part in parts if isinstance(part, Mapping))
    reasons = dict.fromkeys(filter(None, map(_reason_for_waiting, (copy, *below))))
    return Note("NotReady", f"Not ready: {'; '.join(reasons) or 'the provider gives no reason'}")


def noted_in(waited: timedelta) -> timedelta:
    """Return when to look again at a claim that waits for its copy."""
    return _REMINDER if waited >= _USUAL else _USUAL - max(waited, timedelta())


def _reason(claim: Manifest) -> str:
    """Return the reason why a claim is not synced, by its status, or ""."""
    condition = conditions.get(claim, SYNCED, FALSE)
    return "" if condition is None else condition.reason


def _reason_for_waiting(copy: Manifest) -> str:
    """Return the messages of the copy's conditions, Ready before others; "" where there is none."""
    found = conditions.ordered(conditions.of(copy))
    spoken = (one for one in found if one.status != TRUE and one.message)
    return next((": ".join(filter(None, (one.reason, one.message))) for one in spoken), "")
