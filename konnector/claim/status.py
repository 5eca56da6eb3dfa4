"""Computes the status of a claim from its copy, and removes outdated sync reports.

Numbers of generations are the claim's, by which `kubectl wait` and kstatus know a status as new.
protocol-konnector.md D.3. Does not know when it is written.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from konnector import APP_CLUSTER
from konnector.claim.copies import Pair
from reconciler.api import claim_status
from reconciler.api.claim_status import Stop
from reconciler.core import decision, manifest
from reconciler.core.decision import Note, Step, page_of
from reconciler.core.manifest import JSON, Manifest, digest
from reconciler.core.refs import ObjectKey


def carried(pair: Pair, claim: Manifest, copy: Manifest, *, is_up: bool) -> tuple[Step, ...]:
    """Return the patch that makes the status the copy's, which it is alone.

    `is_up`: the copy says what the claim says.
    """
    return _patch(
        pair, claim, _observed(claim, copy, is_up) if pair.has_status else copy.get("status")
    )


def _observed(claim: Manifest, copy: Manifest, is_up: bool) -> JSON:
    """Return the copy's status, which observed a generation of the copy, for the claim's.

    The newest is the claim's, too, if the claim's spec is up. Of older ones any number tells
    enough, so a number of the claim that is old already stays: no edit is a write by itself.
    """
    status = copy.get("status")
    if not isinstance(status, Mapping):
        return status
    own, newest = (manifest.get_int(one, "metadata", "generation") for one in (claim, copy))

    def of_claim(observing: Manifest, before: Manifest) -> Manifest:
        observed, known = (manifest.get_int(one, _OBSERVED) for one in (observing, before))
        if observed is None or own is None or newest is None:
            return observing
        if is_up and observed >= newest:
            return {**observing, _OBSERVED: own}
        return {**observing, _OBSERVED: own - 1 if known is None or known >= own else known}

    shown = manifest.get_map(claim, "status")
    types = {manifest.get_text(one, "type"): one for one in manifest.get_maps(shown, "conditions")}
    return manifest.map_items(
        of_claim(status, shown),
        lambda one: of_claim(one, types.get(manifest.get_text(one, "type"), {})),
        "conditions",
    )


_OBSERVED: Final = "observedGeneration"


def waiting(pair: Pair, claim: Manifest, note: Note, now: datetime) -> tuple[Step, ...]:
    """Return the patch with the reason why a claim waits, where its status has conditions.

    Another look that finds a copy in sync, or being deleted, replaces it by the copy's status.
    """
    if not pair.has_conditions:
        return resumed(pair, claim)
    stop = Stop(note.reason, note.message, page_of(note.reason, pair.docs))
    before, change = manifest.get_map(claim, "status"), claim_status.stopped(claim, stop, now=now)
    return () if change is None else _patch(pair, claim, {**before, **change})


def resumed(pair: Pair, claim: Manifest) -> tuple[Step, ...]:
    """Return the patch of a claim without copy that still reports the end of its sync."""
    before, change = manifest.get_map(claim, "status"), claim_status.resumed(claim)
    return () if change is None else _patch(pair, claim, {**before, **change})


def unready_in(copy: Manifest, now: datetime) -> timedelta | None:
    """Return the time of the next look; None where the copy is ready, or has no conditions."""
    waited = claim_status.unready_for(copy, now) if copy.get("status") else None
    return None if waited is None else claim_status.noted_in(waited)


def _patch(pair: Pair, claim: Manifest, status: JSON) -> tuple[Step, ...]:
    """Return the patch to this status: a JSON patch, since a merge patch cannot set a null.

    A custom resource's status is patched whatever uid the patch states, so only the test of the
    resourceVersion keeps it from a claim that was made again.
    """
    before, after = ({} if s is None else {"status": s} for s in (claim.get("status"), status))
    changes = decision.changes(before, after)
    if not changes:
        return ()
    ref = manifest.ref_of(APP_CLUSTER, pair.kind, claim)
    subresource = "status" if pair.has_status else ""
    return (decision.JsonPatch(ref, (decision.unchanged(claim), *changes), subresource),)


# Detects fields that the provider removes as often as the konnector sends them.
#
# Otherwise both sides would write for ever. A field that was sent that often within an hour, with
# the same value, stays as the provider has it until the claim gets another value. A new process
# begins to count at zero.

_MOST: Final = 3
_WINDOW: Final = timedelta(hours=1)
LEFT_OUT: Final = Note(
    "FieldsLeftOut",
    "Fields that the export leaves out (its ProviderInSync names them) are the provider's: the copy"
    " keeps them as they are, and this claim does not show them",
)


class Returns:
    """The fields that copies lacked, by the places of their claims.

    `content` returns what of a claim goes up: a field is a key of that.
    """

    def __init__(self, content: Callable[[Manifest], Manifest]) -> None:
        self._content = content
        # Of each field: the digest of its value, and when that was brought.
        self._brought: dict[ObjectKey, dict[str, tuple[str, tuple[datetime, ...]]]] = {}

    def left(self, place: ObjectKey, claim: Manifest | None) -> frozenset[str]:
        """Return the fields of a claim that are the provider's; forget a claim that is gone."""
        if place not in self._brought:
            return frozenset()
        known = self._brought[place] if claim is not None else self._brought.pop(place)
        stated = self._content(claim or {})
        return frozenset(
            key
            for key, (value, times) in known.items()
            if len(times) >= _MOST and key in stated and digest(stated[key]) == value
        )

    def note(self, place: ObjectKey, claim: Manifest, copy: Manifest, now: datetime) -> None:
        """Note that all content of a claim was brought to a copy, which was like this before."""
        stated = self._content(claim)
        for key in stated.keys() - copy.keys() - self.left(place, claim):
            known, value = self._brought.setdefault(place, {}), digest(stated[key])
            before, times = known.get(key, ("", ()))
            recent = [one for one in times if value == before and now - one < _WINDOW]
            known[key] = (value, (*recent, now))


def left_to_provider(key: str) -> Note:
    """Return the Event of a claim about a field that is left to the provider."""
    message = (
        f"The provider takes {key} away each time: it is the provider's until this claim has"
        " another value there"
    )
    return Note("FieldLeft", message, "Warning")
