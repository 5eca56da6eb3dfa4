"""Decides the next writes for a claim and its copy, as few as possible.

protocol-konnector.md D, F.3 and H.2: the claim decides about the spec, and the copy about the
status. A finalizer holds the claim before its copy exists and until it is gone. The claim is marked
with the copy's first status, or soon: a marked claim without a copy lost it. A copy names its claim
by uid. It is deleted when that claim is in deletion and has our finalizer. An absent claim makes
the copy an orphan. Another claim of that name gets the copy, but cannot end it. Does not know how
objects are read and written; a `Read` names what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.claim import copies, orphans, status
from konnector.claim.copies import WRITERS, Pair
from konnector.claim.orphans import Terms
from konnector.mass_loss import rules
from konnector.mass_loss.decide import NOT_YET
from reconciler.api import claim_status
from reconciler.core import decision, field_set, identity, keys, manifest, server_side_apply
from reconciler.core.decision import NOTHING, Decision, Note, Step, writes
from reconciler.core.field_set import FieldSet
from reconciler.core.identity import Life
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import ObjectKey
from reconciler.core.times import moment

NAME_TAKEN: Final = "NameTaken"
AT_ONCE: Final = timedelta()
MARKED_WITHIN: Final = timedelta(seconds=10)  # of the copy's creation, where no status comes


class Read(Enum):
    """A read of the API server that a decision needs."""

    CLAIM = "claim"  # whether it is gone: an informer may be behind
    COPY = "copy"  # the whole object, with managedFields
    NAMESPACE = "namespace"  # whether it is the mapped one, if its uid may have changed


@dataclass(frozen=True, slots=True)
class Seen:
    """A claim and its copy, as the views have them; None: absent.

    `claim_gone`: the API server says so too. `copy_whole`: the copy was just read, with all
    managedFields; otherwise only those of WRITERS are there. `delete_guard`, `create_guard`: why
    the copy of a claim that is being deleted is kept, and a lost copy is not made again.
    `terms`: on which an orphan goes at the time `now`. `settled`: the last apply of the same claim
    changed nothing in the same copy. `taken`: there is no copy, because an object that is not of
    this space has its name; it is a person's next step. `unmapped`: the app namespace is not
    there, or ends. `stamped`: each copy of this app namespace has its claim's uid. `stamps_in`:
    when this one may get it without another reason, None: it has it. `copied`: the claim's marks
    are those of another claim, which lives. `withdrawn`: the kind is going: no copy is made at all.
    `left`: fields that the provider takes away each time, so that they are its own.
    `few`: so many deletions at once are never too many. `same_namespace`: the API server says that
    the app namespace is the mapped one. `beside` deletes what came for the claim; None: unknown.
    `rests`: no other claim of the kind waits for a sync.
    """

    place: ObjectKey
    copy_place: ObjectKey
    claim: Manifest | None
    copy: Manifest | None
    terms: Terms
    now: datetime
    claim_gone: bool = False
    copy_whole: bool = False
    delete_guard: str = ""
    create_guard: str = ""
    settled: bool = False
    taken: str = ""
    unmapped: bool = False
    stamped: bool = False
    stamps_in: timedelta | None = None
    copied: bool = False
    withdrawn: bool = False
    left: frozenset[str] = frozenset()
    same_namespace: bool = False
    few: int = rules.FEW
    beside: Sequence[Step] | None = ()
    rests: bool = True


def state_of(seen: Seen, *, refused: bool) -> str | None:
    """Return the state of a claim, one of `metrics.STATES`; None where there is no claim."""
    if seen.claim is None:
        return None
    if seen.taken or seen.create_guard or seen.delete_guard:
        return "held"
    if manifest.is_deleting(seen.claim):
        return "deleting"
    if refused:
        return "refused"
    return "pending" if seen.copy is None else "synced"


def decide(pair: Pair, seen: Seen) -> Decision | Read:
    """Return the next writes, or the read that has to come first."""
    if seen.claim is None:
        return _without_claim(pair, seen)
    if manifest.is_deleting(seen.claim):
        return _leaving(pair, seen, seen.claim)
    if seen.copy is None:
        return _without_copy(pair, seen, seen.claim)
    return _joined(pair, seen, seen.claim, seen.copy)


def waited(seen: Seen, claim: Manifest) -> timedelta:
    since = rules.deleted_at(claim)
    return timedelta() if since is None else seen.now - since


def marks_in(seen: Seen, claim: Manifest, copy: Manifest) -> timedelta:
    """Return how long a claim goes without marks: so long a lost copy counts as never had."""
    if copies.is_managed(claim) and _own_life(claim) is not Life.ANOTHER:
        return seen.stamps_in or AT_ONCE
    made = moment(manifest.get_text(copy, "metadata", "creationTimestamp"))
    age = MARKED_WITHIN if made is None else seen.now - made
    is_new = AT_ONCE <= age < MARKED_WITHIN and _life(seen, claim, copy) is Life.SAME
    # People wait for a status, and nobody for marks: they do not go before the statuses of others.
    is_due = seen.rests and claim.get("status")
    return MARKED_WITHIN - age if is_new and not is_due else AT_ONCE


def waiting(pair: Pair, seen: Seen, claim: Manifest, note: Note) -> Decision:
    """Report at a claim why it waits: by an Event, and by a condition where that takes a person."""
    write = () if note.message == NOT_YET else status.waiting(pair, claim, note, seen.now)
    return replace(_decision(write), notes=(note,))


def stated(pair: Pair, claim: Manifest) -> dict[str, JSON]:
    """Return the fields of the copy that the claim decides about, without identity."""
    metadata: dict[str, JSON] = {
        "annotations": {**copies.travelling("annotations", claim, pair.carries), **pair.marks}
    }
    labels = manifest.labels_of(claim)
    if up := {key: labels[key] for key in labels if copies.goes_up("labels", key, pair.carries)}:
        metadata["labels"] = up
    return {"metadata": metadata, **pair.content(claim)}


def _without_claim(pair: Pair, seen: Seen) -> Decision | Read:
    """Keep a copy without its claim, as an orphan; bring down objects of no konnector (D.4)."""
    copy = seen.copy
    if copy is None or manifest.is_deleting(copy):
        return NOTHING
    if not copies.is_managed(copy):
        return NOTHING if seen.unmapped else _adopted(pair, seen, copy)
    orphan = orphans.is_orphan(copy)
    if orphan and not orphans.may_go(copy, seen.terms, seen.now):
        return NOTHING
    if not seen.claim_gone:
        return Read.CLAIM
    if orphan:
        return writes(decision.deletion(CONTROL_PLANE, pair.kind, copy))
    return writes(orphans.mark(pair.kind, copy, seen.terms, seen.now))


def _adopted(pair: Pair, seen: Seen, copy: Manifest) -> Decision:
    """Make the claim, which gets the copy once it has a uid."""
    claim = copies.moved({**copy, **pair.content(copy)}, pair.kind, seen.place, {})
    claim["metadata"] = {**manifest.get_map(claim, "metadata"), "finalizers": [keys.SYNCER]}
    return writes(decision.Create(pair.kind, claim, APP_CLUSTER))


def _leaving(pair: Pair, seen: Seen, claim: Manifest) -> Decision:
    """Hold a claim that is being deleted until its copy is really gone (H11).

    Without our finalizer it may be gone before we know what became of the copy: that is kept.
    """
    copy, freed = seen.copy, decision.unfinalized(APP_CLUSTER, pair.kind, claim, keys.SYNCER)
    if freed is None:
        return NOTHING
    if copy is None or _is_let_go(seen, claim, copy):
        waits = "The copy is gone: the claim waits until they are removed"
        return replace(writes(*(seen.beside or ()), freed), notes=_finalizer_notes(claim, waits))
    if manifest.is_deleting(copy):
        found = claim_status.deletion_note(copy, waited(seen, claim))
        carried = _decision(status.carried(pair, claim, copy, is_up=False))
        return replace(carried, notes=() if found is None else (found,))
    if seen.delete_guard:
        kept = waiting(pair, seen, claim, Note("DeletionHeld", seen.delete_guard, "Warning"))
        # A part is held for as long as it is one.
        mark = None if pair.is_part(copy) else rules.deletion_mark(pair.kind, copy, claim, seen.few)
        return Decision.merge([kept, writes(mark)])
    return writes(decision.deletion(CONTROL_PLANE, pair.kind, copy))


def _life(seen: Seen, claim: Manifest, copy: Manifest) -> Life:
    """Return whether a copy is that of a claim, or of another one at its place."""
    return identity.of_mark(manifest.uid_of(claim), copy, keys.CLAIM_UID, stamped=seen.stamped)


def _own_life(claim: Manifest) -> Life:
    """Return whether a claim's marks are its own, or came with the manifest of another one."""
    return identity.of_mark(manifest.uid_of(claim), claim, keys.CLAIM_UID)


def _is_let_go(seen: Seen, claim: Manifest, copy: Manifest) -> bool:
    """Return whether a copy stays when its claim goes.

    It was released, is an orphan, or never was this claim's. The original marks no copy that it
    adopted, but it marks and holds the claim.
    """
    if keys.RELEASED in manifest.annotations_of(copy) or orphans.is_orphan(copy):
        return True
    if _life(seen, claim, copy) is Life.ANOTHER:
        return True
    ours = copies.is_managed(claim) and keys.SYNCER in manifest.finalizers_of(claim)
    return not copies.is_managed(copy) and not ours


def _without_copy(pair: Pair, seen: Seen, claim: Manifest) -> Decision:
    if seen.taken:
        return waiting(pair, seen, claim, _taken(seen))
    is_lost = copies.is_managed(claim) and not seen.copied
    if seen.create_guard and (is_lost or seen.withdrawn):
        return waiting(pair, seen, claim, Note("RecreationHeld", seen.create_guard, "Warning"))
    made = _copy_of(pair, seen.copy_place, _stamped(stated(pair, claim), claim))
    finalizing = _patch_claim(pair, claim, _finalizer(claim))
    steps = (*finalizing, decision.Create(pair.kind, made, CONTROL_PLANE))
    return replace(writes(*steps), notes=_finalizer_notes(claim, "The copy goes without them"))


def _finalizer_notes(claim: Manifest, consequence: str) -> tuple[Note, ...]:
    """Return the Event about finalizers of others, which may be meant for the provider (H5)."""
    others = [one for one in manifest.finalizers_of(claim) if "/" in one and one != keys.SYNCER]
    message = f"Finalizers do not reach the provider: {', '.join(others)}. {consequence}"
    return (Note("FinalizersStay", message, "Warning"),) if others else ()


_FORMER: Final = Note(
    "FormerCopyPending",
    "The control plane is still deleting the copy of a former claim of this name",
)
_READOPTED: Final = Note(
    "Readopted",
    "The copy of a former claim of this name and namespace is this claim's now, with its data",
)


def _taken(seen: Seen) -> Note:
    found = f"The control plane has an object {'/'.join(filter(None, seen.copy_place))} that was"
    message = f"{found} not made for this space, and stays as it is. {seen.taken}"
    return Note(NAME_TAKEN, message, "Warning")


def _joined(pair: Pair, seen: Seen, claim: Manifest, copy: Manifest) -> Decision | Read:
    life, is_ours = _life(seen, claim, copy), copies.is_managed(copy)
    is_others = is_ours and life is Life.ANOTHER
    if is_others and (manifest.is_deleting(copy) or not seen.same_namespace):
        return Decision(notes=(_FORMER,)) if manifest.is_deleting(copy) else Read.NAMESPACE
    written, wanted = field_set.owned(copy, *WRITERS), stated(pair, claim)
    # One that an apply no longer states while it is ours would go.
    left = {key for key in seen.left if f"f:{key}" not in written}
    wanted = {key: value for key, value in wanted.items() if key not in left}
    is_left = _has_unstated(pair, copy, written, wanted)
    is_up = not is_left and (seen.settled or _agrees(copy, wanted, written))
    patch = _patch_claim(pair, claim, {**_finalizer(claim), **_marks(seen, claim, copy)})
    tasks = [status.carried(pair, claim, copy, is_up=is_up), patch]
    if manifest.is_deleting(copy):
        return _decision(*tasks)
    stamps = life is Life.UNKNOWN and seen.stamps_in == AT_ONCE
    if not is_ours or is_others or stamps or orphans.unmarks(copy):
        tasks[-1] = (*patch, _joining(pair, claim, copy))
        return replace(_decision(*tasks), notes=(_READOPTED,) if is_others else ())
    is_kept = bool(field_set.below(written, *pair.kept))
    if (is_kept or is_left) and not seen.copy_whole:
        return Read.COPY
    if is_kept:
        return _let_be(pair, copy, tasks)
    found = _decision(*tasks, () if is_up else _spec_up(pair, copy, _stamped(wanted, claim)))
    late = claim_status.unready_note(copy, seen.now) if copy.get("status") else None
    notes = (*map(status.left_to_provider, sorted(left)), late)
    return replace(found, notes=tuple(filter(None, notes)))


def _let_be(pair: Pair, copy: Manifest, tasks: Sequence[tuple[Step, ...]]) -> Decision:
    """Leave the fields that the export leaves out to the control plane, with their values.

    As long as they are ours, an apply that does not state them would remove them.
    """
    left = tuple(field_set.disowned(copy, WRITERS, pair.kept))
    patch = decision.JsonPatch(manifest.ref_of(CONTROL_PLANE, pair.kind, copy), left)
    return replace(_decision(*tasks, (patch,)), notes=(status.LEFT_OUT,))


def _copy_of(pair: Pair, place: ObjectKey, wanted: Manifest, **more: JSON) -> dict[str, JSON]:
    """Return a copy at its place, as it is made or applied; `more` is metadata."""
    identity: dict[str, JSON] = {"name": place.name, **more}
    if place.namespace:
        identity["namespace"] = place.namespace
    if owners := pair.owners:
        identity["ownerReferences"] = owners
    return {
        "apiVersion": pair.kind.api_version,
        "kind": pair.kind.kind,
        **wanted,
        "metadata": {**identity, **manifest.get_map(wanted, "metadata")},
    }


def _stamped(wanted: Manifest, claim: Manifest) -> dict[str, JSON]:
    return manifest.put(wanted, manifest.uid_of(claim), "metadata", "annotations", keys.CLAIM_UID)


def _spec_up(pair: Pair, copy: Manifest, wanted: Manifest) -> tuple[Step, ...]:
    """Apply the claim's content, forced; fields of others stay, such as Crossplane's.

    What we, or the original, wrote by creating can be taken back only once it counts as applied.
    """
    before = tuple(_before_apply(pair, copy, wanted))
    ref = manifest.ref_of(CONTROL_PLANE, pair.kind, copy)
    steps = [decision.JsonPatch(ref, before)] if before else []
    left = copies.as_left(copy, wanted, field_set.owned(copy, *WRITERS), pair.carries)
    fields = {**wanted, "metadata": {**manifest.get_map(wanted, "metadata"), **left}}
    place = ObjectKey(*manifest.identity_of(copy))
    body = _copy_of(pair, place, fields, **decision.preconditions_of(copy))
    return (*steps, decision.Apply(pair.kind, body, CONTROL_PLANE))


def _before_apply(pair: Pair, copy: Manifest, wanted: Manifest) -> Sequence[Manifest]:
    """Return the JSON Patch without which an apply would leave former fields."""
    writer, *others = WRITERS
    taken_over = field_set.created_to_applied(copy, manager=writer, from_managers=others) or []
    ours, theirs = field_set.owned(copy, *WRITERS), field_set.owned_by_others(copy, *WRITERS)
    created = field_set.owned(copy, *WRITERS, operation="Update")
    if taken_over and not _has_unstated(pair, copy, created, wanted):
        taken_over = []
    removed = server_side_apply.removals(copy, wanted, ours=ours, others=theirs)
    if removed and not taken_over:
        taken_over = [decision.unchanged(copy)]
    return [*taken_over, *removed]


def _has_unstated(pair: Pair, copy: Manifest, written: FieldSet, wanted: Manifest) -> bool:
    """Return whether the copy holds fields that a konnector wrote and the claim does not state."""
    paths = server_side_apply.unstated(written, live=copy, stated=wanted, empty_is_absent=False)
    return any(_travels(pair, path) for path in paths)


def _agrees(copy: Manifest, wanted: Manifest, written: FieldSet) -> bool:
    """Return whether an apply of `wanted` would change nothing in the copy."""
    others = field_set.owned_by_others(copy, *WRITERS)
    return server_side_apply.agrees(copy, wanted, field_set.union(written, others) or None)


def _travels(pair: Pair, path: field_set.Path) -> bool:
    """Return whether the claim decides about a field; finalizers, owners and status are others'."""
    match path:
        case ("f:metadata", "f:labels" | "f:annotations" as group, key):
            return copies.goes_up(group[2:], key.removeprefix("f:"), pair.carries)
        case ("f:metadata" | "f:status", *_):
            return False
        case _:
            return not any(path[: len(place)] == place for place in pair.kept)


def _finalizer(claim: Manifest) -> dict[str, JSON]:
    finalizers = manifest.finalizers_of(claim)
    return {} if keys.SYNCER in finalizers else {"finalizers": [*finalizers, keys.SYNCER]}


def _marks(seen: Seen, claim: Manifest, copy: Manifest) -> dict[str, JSON]:
    """Return the marks of a claim with a copy, where they are missing and due."""
    life = _own_life(claim)
    has = copies.is_managed(claim) and life is not Life.ANOTHER
    lacks = life is Life.UNKNOWN and seen.stamps_in is not None if has else True
    marks = {keys.BOUND: keys.BOUND_VALUE, keys.CLAIM_UID: manifest.uid_of(claim)}
    return {"annotations": marks} if lacks and not marks_in(seen, claim, copy) else {}


def _joining(pair: Pair, claim: Manifest, copy: Manifest) -> decision.Patch:
    """Mark a copy as this claim's, and as one that is neither let go nor an orphan."""
    marks = {**pair.marks, keys.CLAIM_UID: manifest.uid_of(claim), **orphans.unmarks(copy)}
    change: dict[str, JSON] = {"annotations": marks}
    owners = manifest.get_list(copy, "metadata", "ownerReferences")
    if missing := [one for one in pair.owners if one not in owners]:
        change["ownerReferences"] = [*owners, *missing]
    return decision.modification(CONTROL_PLANE, pair.kind, copy, metadata=change)


def _patch_claim(pair: Pair, claim: Manifest, metadata: Manifest) -> tuple[Step, ...]:
    """Return the patch of a claim's metadata; nothing where it agrees."""
    if not metadata:
        return ()
    return (decision.modification(APP_CLUSTER, pair.kind, claim, metadata=metadata),)


def _decision(*tasks: tuple[Step, ...]) -> Decision:
    """Return a decision of these tasks, none of which waits for another."""
    return Decision(tasks=tuple(decision.Task(steps) for steps in tasks if steps))
