"""What follows from one look at a claim and its copy: the next writes, as few as there can be.

protocol-konnector.md D, F.3 and H.2: the claim decides about the spec and the copy about the
status. The claim is held by a finalizer before its copy exists and until it is gone, and marked
once it has one: a claim that is marked and has none lost it. A copy goes when its claim is being
deleted while we hold it, and never because the claim is absent: that makes it an orphan. Refuses
to know how objects are read and written; what must be read first is said as a `Read`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.claim import copies, orphans
from konnector.claim.copies import WRITERS, Pair
from konnector.claim.orphans import Terms
from reconciler.api import claim_status
from reconciler.core import decision, field_set, keys, manifest, server_side_apply
from reconciler.core.decision import NOTHING, Decision, Note, Step, writes
from reconciler.core.field_set import FieldSet
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import ObjectKey
from reconciler.core.times import moment

NAME_TAKEN: Final = "NameTaken"


class Read(Enum):
    """What has to be read from the API server itself before it can be decided."""

    CLAIM = "claim"  # whether it is gone: a view may be behind
    COPY = "copy"  # all of it, with who wrote which field


@dataclass(frozen=True, slots=True)
class Seen:
    """A claim and its copy, as the views have them; None: absent.

    `claim_gone`: the API server says so too. `copy_whole`: the copy was just read, with all
    managedFields; otherwise only those of WRITERS are there. `deletes_held`, `creates_held`: why
    the copy of a claim that is being deleted is kept, and one that was lost is not made again.
    `terms`: on which an orphan goes at the time `now`. `settled`: the last apply of the same claim
    changed nothing in the same copy. `taken`: there is no copy, because an object that is not of
    this space has its name. `homeless`: the app namespace is not there, or on its way out.
    """

    place: ObjectKey
    copy_place: ObjectKey
    claim: Manifest | None
    copy: Manifest | None
    terms: Terms
    now: datetime
    claim_gone: bool = False
    copy_whole: bool = False
    deletes_held: str = ""
    creates_held: str = ""
    settled: bool = False
    taken: bool = False
    homeless: bool = False


def state_of(seen: Seen, *, refused: bool) -> str | None:
    """Return the state of a claim, one of `metrics.STATES`; None where there is no claim."""
    if seen.claim is None:
        return None
    if seen.taken or seen.creates_held or seen.deletes_held:
        return "held"
    if manifest.is_deleting(seen.claim):
        return "deleting"
    if refused:
        return "refused"
    return "pending" if seen.copy is None else "synced"


def decide(pair: Pair, seen: Seen) -> Decision | Read:
    """Return what to write now, or what has to be read first."""
    if seen.claim is None:
        return _without_claim(pair, seen)
    if manifest.is_deleting(seen.claim):
        return _leaving(pair, seen, seen.claim)
    if seen.copy is None:
        return _without_copy(pair, seen, seen.claim)
    return _joined(pair, seen, seen.claim, seen.copy)


def waited(seen: Seen, claim: Manifest) -> timedelta:
    """Return for how long a claim has been going."""
    since = moment(manifest.get_text(claim, "metadata", "deletionTimestamp"))
    return timedelta() if since is None else seen.now - since


def stated(pair: Pair, claim: Manifest) -> dict[str, JSON]:
    """Return the fields of the copy that the claim decides about, without identity."""
    metadata: dict[str, JSON] = {
        "annotations": {**copies.travelling_annotations(claim, pair.carries), **pair.marks}
    }
    if labels := copies.travelling_labels(claim, pair.carries):
        metadata["labels"] = labels
    return {"metadata": metadata, **copies.content(claim)}


def _without_claim(pair: Pair, seen: Seen) -> Decision | Read:
    """Keep a copy whose claim is absent, as an orphan; bring down what no konnector made (D.4)."""
    copy = seen.copy
    if copy is None or manifest.is_deleting(copy):
        return NOTHING
    if not copies.is_managed(copy):
        return NOTHING if seen.homeless else _adopted(pair, seen, copy)
    orphan = orphans.is_orphan(copy)
    if orphan and not orphans.may_go(copy, seen.terms, seen.now):
        return NOTHING
    if not seen.claim_gone:
        return Read.CLAIM
    if orphan:
        return writes(decision.deletion(CONTROL_PLANE, pair.kind, copy))
    return writes(orphans.mark(pair.kind, copy, seen.terms, seen.now))


def _adopted(pair: Pair, seen: Seen, copy: Manifest) -> Decision:
    """Make the claim first: a copy that is marked, and has none, is an orphan."""
    claim = copies.moved(copy, pair.kind, seen.place, {keys.BOUND: keys.BOUND_VALUE})
    claim["metadata"] = {**manifest.get_map(claim, "metadata"), "finalizers": [keys.SYNCER]}
    return writes(decision.Create(pair.kind, claim, APP_CLUSTER), _joining(pair, copy))


def _leaving(pair: Pair, seen: Seen, claim: Manifest) -> Decision:
    """Hold a claim that is being deleted until its copy is really gone (H11).

    Without our finalizer it may be gone before we know what became of the copy: that is kept.
    """
    copy, freed = seen.copy, decision.unheld(APP_CLUSTER, pair.kind, claim, keys.SYNCER)
    if freed is None:
        return NOTHING
    if copy is None or _is_let_go(claim, copy):
        waits = "The copy is gone: the claim waits until they are removed"
        return replace(writes(freed), notes=_finalizer_notes(claim, waits))
    if manifest.is_deleting(copy):
        note = claim_status.deletion_note(copy, waited(seen, claim))
        carried = _decision(_status_down(pair, claim, copy))
        return carried if note is None else replace(carried, notes=(note,))
    if seen.deletes_held:
        note = Note("DeletionHeld", seen.deletes_held, "Warning")
        return Decision(notes=(note,))
    return writes(decision.deletion(CONTROL_PLANE, pair.kind, copy))


def _is_let_go(claim: Manifest, copy: Manifest) -> bool:
    """Tell whether a copy stays when its claim goes.

    It was released, or never was this claim's. The original marks no copy that it adopted, but
    it marks and holds the claim.
    """
    if keys.RELEASED in manifest.annotations_of(copy):
        return True
    ours = copies.is_managed(claim) and keys.SYNCER in manifest.finalizers_of(claim)
    return not copies.is_managed(copy) and not ours


def _without_copy(pair: Pair, seen: Seen, claim: Manifest) -> Decision:
    if seen.taken:
        return replace(_decision(_resumed(pair, claim)), notes=(_taken(seen),))
    if copies.is_managed(claim) and seen.creates_held:
        note = Note("RecreationHeld", seen.creates_held, "Warning")
        return replace(_decision(_resumed(pair, claim)), notes=(note,))
    made = copies.moved(claim, pair.kind, seen.copy_place, pair.marks, pair.carries)
    if owners := pair.owners:
        made["metadata"] = {**manifest.get_map(made, "metadata"), "ownerReferences": owners}
    made_there = decision.Create(pair.kind, made, CONTROL_PLANE)
    held = _patch_claim(pair, claim, _finalizer(claim))
    steps = (*held, made_there, *_patch_claim(pair, claim, _mark(claim)))
    return replace(writes(*steps), notes=_finalizer_notes(claim, "The copy goes without them"))


def _finalizer_notes(claim: Manifest, consequence: str) -> tuple[Note, ...]:
    """Return the Event about finalizers of others, which may be meant for the provider (H5)."""
    held = manifest.finalizers_of(claim)
    others = [one for one in held if "/" in one and one != keys.SYNCER]
    message = f"Finalizers do not reach the provider: {', '.join(others)}. {consequence}"
    return (Note("FinalizersStay", message, "Warning"),) if others else ()


def _taken(seen: Seen) -> Note:
    where = "/".join(filter(None, seen.copy_place))
    message = (
        f"The control plane has an object {where} that was not made for this space, and stays as"
        " it is. Give this claim another name, or ask the provider to let that object go"
    )
    return Note(NAME_TAKEN, message, "Warning")


def _joined(pair: Pair, seen: Seen, claim: Manifest, copy: Manifest) -> Decision | Read:
    tasks = [_held(pair, claim), _status_down(pair, claim, copy)]
    if manifest.is_deleting(copy):
        return _decision(*tasks)
    if not copies.is_managed(copy) or _joining_notes(copy):
        return _decision(*tasks, (_joining(pair, copy),))
    wanted = stated(pair, claim)
    written = field_set.owned(copy, *WRITERS)
    is_left = _holds_unstated(pair, copy, written, wanted)
    if not is_left and (seen.settled or _agrees(copy, wanted, written)):
        return _decision(*tasks)
    if is_left and not seen.copy_whole:
        return Read.COPY
    return _decision(*tasks, _spec_up(pair, copy, wanted))


def _spec_up(pair: Pair, copy: Manifest, wanted: Manifest) -> tuple[Step, ...]:
    """Apply what the claim says, forced; fields of others stay, such as Crossplane's.

    What we, or the original, wrote by creating can be taken back only once it counts as applied.
    """
    steps: list[Step] = []
    if before := _before_apply(pair, copy, wanted):
        steps.append(
            decision.JsonPatch(manifest.ref_of(CONTROL_PLANE, pair.kind, copy), tuple(before))
        )
    identity: dict[str, JSON] = {"name": manifest.name_of(copy), **decision.preconditions_of(copy)}
    if namespace := manifest.namespace_of(copy):
        identity["namespace"] = namespace
    if owners := pair.owners:
        identity["ownerReferences"] = owners
    left = copies.as_left(copy, wanted, field_set.owned(copy, *WRITERS), pair.carries)
    body: dict[str, JSON] = {
        "apiVersion": pair.kind.api_version,
        "kind": pair.kind.kind,
        **wanted,
        "metadata": {**identity, **manifest.get_map(wanted, "metadata"), **left},
    }
    return (*steps, decision.Apply(pair.kind, body, CONTROL_PLANE))


def _before_apply(pair: Pair, copy: Manifest, wanted: Manifest) -> Sequence[Manifest]:
    """Return the JSON Patch without which an apply would not take back what it has to."""
    writer, *others = WRITERS
    taken_over = field_set.created_to_applied(copy, manager=writer, from_managers=others) or []
    ours, theirs = field_set.owned(copy, *WRITERS), field_set.owned_by_others(copy, *WRITERS)
    if taken_over:
        created = field_set.owned(copy, *WRITERS, operation="Update")
        if not _holds_unstated(pair, copy, created, wanted):
            taken_over = []
    removed = server_side_apply.removals(copy, wanted, ours=ours, others=theirs)
    if removed and not taken_over:
        taken_over = [decision.unchanged(copy)]
    return [*taken_over, *removed]


def _holds_unstated(pair: Pair, copy: Manifest, written: FieldSet, wanted: Manifest) -> bool:
    """Tell whether the copy holds fields that a konnector wrote and the claim does not state."""
    paths = server_side_apply.unstated(written, live=copy, stated=wanted, empty_is_absent=False)
    return any(_travels(pair, path) for path in paths)


def _agrees(copy: Manifest, wanted: Manifest, written: FieldSet) -> bool:
    """Tell whether an apply of `wanted` would change nothing in the copy."""
    others = field_set.owned_by_others(copy, *WRITERS)
    return server_side_apply.agrees(copy, wanted, field_set.union(written, others) or None)


def _travels(pair: Pair, path: field_set.Path) -> bool:
    """Tell whether the claim decides about a field; finalizers, owners and status are others'."""
    match path:
        case ("f:metadata", "f:labels" | "f:annotations", key):
            return copies.travels(key.removeprefix("f:"), pair.carries)
        case ("f:metadata" | "f:status", *_):
            return False
        case _:
            return True


def _held(pair: Pair, claim: Manifest) -> tuple[Step, ...]:
    """Return the patch with finalizer and mark, where one of them is missing."""
    return _patch_claim(pair, claim, {**_finalizer(claim), **_mark(claim)})


def _finalizer(claim: Manifest) -> dict[str, JSON]:
    held = manifest.finalizers_of(claim)
    return {} if keys.SYNCER in held else {"finalizers": [*held, keys.SYNCER]}


def _mark(claim: Manifest) -> dict[str, JSON]:
    return {} if copies.is_managed(claim) else {"annotations": {keys.BOUND: keys.BOUND_VALUE}}


def _joining_notes(copy: Manifest) -> dict[str, JSON]:
    """Return what takes the annotations off that say that a copy has no claim."""
    released: dict[str, JSON] = (
        {keys.RELEASED: None} if keys.RELEASED in manifest.annotations_of(copy) else {}
    )
    return released | orphans.unmarks(copy)


def _joining(pair: Pair, copy: Manifest) -> decision.Patch:
    """Mark a copy as this claim's, and as one that is neither let go nor an orphan."""
    marks: dict[str, JSON] = {**pair.marks, **_joining_notes(copy)}
    return decision.modification(CONTROL_PLANE, pair.kind, copy, metadata={"annotations": marks})


def _status_down(pair: Pair, claim: Manifest, copy: Manifest) -> tuple[Step, ...]:
    """Return the patch that makes the status the copy's, which it is alone."""
    return _patch_status(pair, claim, copy.get("status"))


def _resumed(pair: Pair, claim: Manifest) -> tuple[Step, ...]:
    """Return the patch of a claim without copy that still says that the sync has stopped."""
    if (change := claim_status.resumed(claim)) is None:
        return ()
    return _patch_status(pair, claim, {**manifest.get_map(claim, "status"), **change})


def _patch_status(pair: Pair, claim: Manifest, status: JSON) -> tuple[Step, ...]:
    """Return the patch to this status: a JSON patch, since a merge patch cannot set a null.

    A custom resource's status is patched whatever uid the patch states, so only the test of the
    resourceVersion keeps it from a claim that was made again.
    """
    changes = _status_changes(claim.get("status"), status)
    if not changes:
        return ()
    ref = manifest.ref_of(APP_CLUSTER, pair.kind, claim)
    subresource = "status" if pair.has_status else ""
    return (decision.JsonPatch(ref, (decision.unchanged(claim), *changes), subresource),)


def _status_changes(before: JSON, after: JSON) -> list[Manifest]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return decision.changes(before, after, "status")
    there, wanted = ({} if one is None else {"status": one} for one in (before, after))
    return decision.changes(there, wanted)


def _patch_claim(pair: Pair, claim: Manifest, metadata: Manifest) -> tuple[Step, ...]:
    """Return the patch of a claim's metadata; nothing where there is nothing to say."""
    if not metadata:
        return ()
    return (decision.modification(APP_CLUSTER, pair.kind, claim, metadata=metadata),)


def _decision(*tasks: tuple[Step, ...]) -> Decision:
    """Return a decision of these tasks, none of which waits for another."""
    found = tuple(decision.Task(steps) for steps in tasks if steps)
    return Decision(tasks=found) if found else NOTHING
