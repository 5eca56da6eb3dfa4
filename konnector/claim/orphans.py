"""Decides about copies without an origin: each stays until a person confirms. Pure.

An absent object was deleted, or lost with a restored or cloned cluster. Only an origin in deletion
that our finalizer still holds proves a deletion. So a copy without its origin is marked as an
orphan, until the origin is back, or a person confirms the orphans of a resource.

A confirmation covers the orphans of its moment. Times of two clocks cannot tell that, so a later
orphan remembers the confirmation that it found; it needs another one, or the same one again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from konnector import CONTROL_PLANE
from reconciler.api import CLUSTER_BINDING
from reconciler.core import keys, names
from reconciler.core.decision import Patch, modification
from reconciler.core.documents import first_of
from reconciler.core.manifest import JSON, Manifest, annotations_of, get_map
from reconciler.core.refs import Kind, ObjectKey
from reconciler.core.times import format_time, moment

_WITHOUT_ORIGIN: Final = (keys.ORPHANED, keys.ORPHANED_UNDER, keys.RELEASED, keys.DELETION_HELD)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The annotation `confirm-orphans` as it stands, "" for none.

    `came` is when it was seen to come, or to come again, and was written by then: one that a
    restore brings back is old. None where it stood there at first.
    """

    value: str = ""
    came: datetime | None = None

    def names(self, resource: str) -> bool:
        return resource in {one.strip() for one in self.value.split(",")}


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which orphans of a resource go; `grace`: how long after, None: never so."""

    resource: str
    confirmation: Confirmation = Confirmation()
    grace: timedelta | None = None


def follow(
    before: Confirmation | None, value: str, written: datetime | None, now: datetime
) -> Confirmation:
    """Return the confirmation after one more look at its annotation; None: at the first look.

    `written` is when that was written, in whole seconds; None where nobody knows.
    """
    if before is None:
        return Confirmation(value)
    if before.value == value:
        return before
    came = None if written is None else min(written + _SECOND, now)
    return Confirmation(value, came if value else None)


def is_orphan(copy: Manifest | None) -> bool:
    return copy is not None and keys.ORPHANED in annotations_of(copy)


def mark(
    kind: Kind, copy: Manifest, terms: Terms, now: datetime, *, cluster: str = CONTROL_PLANE
) -> Patch:
    stands = terms.confirmation.names(terms.resource)
    marks: dict[str, JSON] = {keys.ORPHANED: format_time(now)}
    if stands:
        marks[keys.ORPHANED_UNDER] = terms.confirmation.value
    return modification(cluster, kind, copy, metadata={"annotations": marks})


def unmarks(copy: Manifest) -> dict[str, JSON]:
    """Return the annotations of a merge patch after which a copy has an origin that lives."""
    return {key: None for key in _WITHOUT_ORIGIN if key in get_map(copy, "metadata", "annotations")}


def may_go(copy: Manifest, terms: Terms, now: datetime) -> bool:
    """Return whether an orphan may be deleted: it is meant, or its grace is over."""
    notes = annotations_of(copy)
    since = moment(notes.get(keys.ORPHANED, ""))
    if since is None:
        return False
    if terms.grace is not None and now - since >= terms.grace:
        return True
    confirmation = terms.confirmation
    if not confirmation.names(terms.resource):
        return False
    if notes.get(keys.ORPHANED_UNDER, "") != confirmation.value:
        return True
    # Marks have whole seconds.
    return confirmation.came is not None and since + _SECOND <= confirmation.came


def changes_in(copy: Manifest, terms: Terms, now: datetime) -> timedelta | None:
    """Return when the grace of an orphan is over; None: never, or long ago."""
    since = moment(annotations_of(copy).get(keys.ORPHANED, ""))
    if since is None or terms.grace is None or now - since >= terms.grace:
        return None
    return terms.grace - (now - since)


def sentence(resource: str, places: Collection[ObjectKey], space: str) -> str:
    """Return a sentence about the orphans of one resource; "" where there is none."""
    if not places:
        return ""
    some = first_of("/".join(filter(None, one)) for one in sorted(places))
    subject = "1 copy of" if len(places) == 1 else f"{len(places)} copies of"
    return (
        f"{subject} {resource} lack their origin, and are kept: {some}. Bring the origin back, or"
        f" have exactly these deleted, on the control plane: {command(space, resource)}"
    )


def command(space: str, resources: str) -> str:
    """Return the command that confirms the orphans of resources; one that stands is taken off."""
    annotate = (
        f"kubectl annotate {CLUSTER_BINDING.resource} {names.CLUSTER_BINDING} -n {space}"
        f" {keys.CONFIRM_ORPHANS}"
    )
    return f"{annotate}- && {annotate}={resources}"
