"""Rules for deletions of many claims, or of their namespace or CRD. Pure."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from konnector import CONTROL_PLANE
from reconciler.core import identity, keys, manifest
from reconciler.core.decision import Patch, modification
from reconciler.core.identity import Life
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.core.times import moment

FEW: Final = 5  # so many deletions at once are never too many, unless a binding sets another number
AT_ONCE: Final = timedelta(minutes=1)
_DIGITS: Final = 6


def few_of(binding: Manifest) -> int:
    """Return the number of deletions at once that are never too many, by the binding."""
    return _number(manifest.annotations_of(binding).get(keys.DELETIONS_AT_ONCE, ""), FEW)


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else otherwise


def deletion_mark(kind: Kind, copy: Manifest, claim: Manifest, few: int) -> Patch | None:
    """Return the mark of a held deletion, for later processes; None where it is there."""
    if was_guarded(copy, claim, few):
        return None
    notes: Manifest = {keys.DELETION_HELD: f"{manifest.uid_of(claim)}/{few}"}
    return modification(CONTROL_PLANE, kind, copy, metadata={"annotations": notes})


def was_guarded(copy: Manifest | None, claim: Manifest, few: int) -> bool:
    """Return whether the deletion of a claim was one of too many, and no more are allowed since."""
    uid, _, allowed = manifest.annotations_of(copy or {}).get(keys.DELETION_HELD, "").partition("/")
    return uid == manifest.uid_of(claim) and few <= _number(allowed, -1)


def too_many(
    times: Iterable[datetime], mine: datetime, living: Callable[[], int], few: int = FEW
) -> bool:
    """Return whether a deletion is one of more at once than can be meant.

    `times` are when all that are known were asked for; `living` returns how many others there are.
    """
    near = sorted(time for time in times if abs(time - mine) < AT_ONCE)
    if len(near) <= few:
        return False
    most = max(few, (living() + len(near)) // 2)
    return any(later - first < AT_ONCE for first, later in zip(near, near[most:], strict=False))


def deleted_at(live: Manifest) -> datetime | None:
    return moment(manifest.get_text(live, "metadata", "deletionTimestamp"))


def goes_with(namespace: Manifest, mapping: Manifest | None, claim: Manifest) -> bool:
    """Return whether the deletion of a claim was asked for with that of its Namespace.

    It has to be the one that was mapped, and may not be younger than the claim's deletion.
    """
    began, mine = deleted_at(namespace), deleted_at(claim)
    uid = manifest.uid_of(namespace)
    is_mapped = mapping is not None and (
        identity.of_mark(uid, mapping, keys.APP_NAMESPACE_UID) is Life.SAME
    )
    return is_mapped and began is not None and mine is not None and began <= mine


def is_being_deleted(space: Manifest, resource: str) -> bool:
    """Return whether klutchctl deletes all instances of a resource, as it notes on the space."""
    return f"{resource}=Delete" in manifest.annotations_of(space).get(keys.LEAVING, "").split(",")
