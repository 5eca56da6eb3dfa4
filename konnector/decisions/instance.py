"""What follows from one look at a claim and its copy: the next writes, as few as there can be.

protocol-konnector.md D, F.3 and H.2: the claim decides about the spec and the copy about the
status. The claim is held by a finalizer before its copy exists and until it is gone. Refuses to
know how objects are read and written; what must be read first is said as a `Read`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from konnector.decisions import copies, emptied
from konnector.decisions.agreement import agrees
from konnector.decisions.copies import WRITERS
from konnector.decisions.difference import difference
from konnector.decisions.pair import Pair
from konnector.decisions.sides import APP_CLUSTER, CONTROL_PLANE
from reconciler.core import keys
from reconciler.core.decision import (
    NOTHING,
    Apply,
    Create,
    Decision,
    JsonPatch,
    Note,
    Patch,
    Step,
    Task,
    deletion,
    preconditions_of,
)
from reconciler.core.managed_fields import created_to_applied, unstated_paths
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    drop,
    finalizers_of,
    get_map,
    get_maps,
    get_text,
    is_deleting,
    name_of,
    namespace_of,
    put,
    ref_of,
    resource_version_of,
    uid_of,
)
from reconciler.core.refs import ObjectKey

_FIELDS: Final = "fieldsV1"
_METADATA: Final = "f:metadata"
_ITSELF: Final = "."
NAME_TAKEN: Final = "NameTaken"


def trimmed_copy(copy: Manifest) -> Manifest:
    """Return what of a copy has to be kept: of managedFields only what konnectors wrote.

    Labels and annotations that others wrote as well are left out, because no apply of ours would
    take them away. The original's apply made it an owner of all that it saw. What others wrote
    inside of what is one value to us tells that it is none.
    """
    metadata = get_map(copy, "metadata")
    entries = get_maps(metadata, "managedFields")
    ours = [
        {"manager": entry.get("manager"), "operation": entry.get("operation"), _FIELDS: fields}
        for entry in entries
        if entry.get("manager") in WRITERS
        and not entry.get("subresource")
        and (fields := entry.get(_FIELDS))
    ]
    others = [
        held
        for entry in entries
        if entry.get("manager") not in WRITERS and (held := get_map(entry, _FIELDS, _METADATA))
    ]
    if others:
        ours = [one for entry in ours if get_map(one := _without(entry, others), _FIELDS)]
    ours += _inside_of_ours(entries, ours)
    return put(copy, ours, "metadata", "managedFields") if entries else copy


def _inside_of_ours(entries: Sequence[Manifest], ours: Sequence[Manifest]) -> list[dict[str, JSON]]:
    """Return what others wrote inside of what we wrote as one value, such as an empty map."""
    return [
        {"manager": entry.get("manager"), _FIELDS: inside}
        for entry in entries
        if entry.get("manager") not in WRITERS and not entry.get("subresource")
        for one in ours
        if (inside := _inside(get_map(one, _FIELDS), get_map(entry, _FIELDS)))
    ]


def _inside(ours: Manifest, theirs: Manifest) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    for step in ours.keys() & theirs.keys():
        held, below = get_map(ours, step), get_map(theirs, step)
        if held:
            if inner := _inside(held, below):
                found[step] = inner
        elif first := next((one for one in below if one != _ITSELF), ""):
            found[step] = {first: {}}  # one tells enough
    return found


def _without(entry: Manifest, others: Sequence[Manifest]) -> dict[str, JSON]:
    """Return an entry without the labels and annotations that are in others, too."""
    metadata = dict(get_map(entry, _FIELDS, _METADATA))
    for group in ("f:labels", "f:annotations"):
        theirs = {key for other in others for key in get_map(other, group)}
        held = get_map(metadata, group)
        left = {key: value for key, value in held.items() if key not in theirs}
        if left.keys() - {_ITSELF}:
            metadata[group] = left
        else:
            metadata.pop(group, None)
    if metadata:
        return put(entry, metadata, _FIELDS, _METADATA)
    return drop(entry, _FIELDS, _METADATA)


class Read(Enum):
    """What has to be read from the API server itself before it can be decided."""

    CLAIM = "claim"  # whether it is gone: a view may be behind
    COPY = "copy"  # all of it, with who wrote which field


@dataclass(frozen=True, slots=True)
class Seen:
    """A claim and its copy, as the views have them; None: absent.

    `claim_gone`: the API server says so too. `copy_whole`: the copy was just read, with all
    managedFields; otherwise only those of WRITERS are there. `deletes_held`, `creates_held`: why
    nothing is deleted on the control plane, and a copy that was lost is not made again (guards of
    mapping.md 10). `settled`: the last apply of the same claim changed nothing in the same copy.
    `taken`: there is no copy, because an object that is not of this space has its name.
    `homeless`: the app namespace is not there, or on its way out.
    """

    place: ObjectKey
    copy_place: ObjectKey
    claim: Manifest | None
    copy: Manifest | None
    claim_gone: bool = False
    copy_whole: bool = False
    deletes_held: str = ""
    creates_held: str = ""
    settled: bool = False
    taken: bool = False
    homeless: bool = False


def decide(pair: Pair, seen: Seen) -> Decision | Read:
    """Return what to write now, or what has to be read first."""
    if seen.claim is None:
        return _without_claim(pair, seen)
    if is_deleting(seen.claim):
        return _leaving(pair, seen, seen.claim)
    if seen.copy is None:
        return _without_copy(pair, seen, seen.claim)
    return _joined(pair, seen, seen.claim, seen.copy)


def stated(pair: Pair, claim: Manifest) -> dict[str, JSON]:
    """Return the fields of the copy that the claim decides about, without identity."""
    metadata: dict[str, JSON] = {
        "annotations": {**copies.travelling_annotations(claim, pair.carries), **pair.marks}
    }
    if labels := copies.travelling_labels(claim, pair.carries):
        metadata["labels"] = labels
    return {"metadata": metadata, **copies.content(claim)}


def _without_claim(pair: Pair, seen: Seen) -> Decision | Read:
    """A copy whose claim is gone goes; one that nobody's konnector made comes down (D.4)."""
    copy = seen.copy
    if copy is None or is_deleting(copy):
        return NOTHING
    if not copies.is_managed(copy):
        return NOTHING if seen.homeless else _adopted(pair, seen, copy)
    if not seen.claim_gone:
        return Read.CLAIM
    if seen.deletes_held:
        return NOTHING
    return _one(deletion(CONTROL_PLANE, pair.kind, copy))


def _adopted(pair: Pair, seen: Seen, copy: Manifest) -> Decision:
    """Make the claim first: a copy that is marked, and has none, would be deleted."""
    claim = copies.moved(copy, pair.kind, seen.place, {keys.BOUND: keys.BOUND_VALUE})
    claim["metadata"] = {**get_map(claim, "metadata"), "finalizers": [keys.SYNCER]}
    return _one(Create(pair.kind, claim, APP_CLUSTER), _joining(pair, copy))


def _leaving(pair: Pair, seen: Seen, claim: Manifest) -> Decision:
    """Hold a claim that is being deleted until its copy is really gone (H11)."""
    copy = seen.copy
    if copy is None or _is_let_go(claim, copy):
        held = finalizers_of(claim)
        if keys.SYNCER not in held:
            return NOTHING
        rest = [one for one in held if one != keys.SYNCER]
        return _one(_patch_claim(pair, claim, {"finalizers": rest}))
    if is_deleting(copy):
        return _decision(_status_down(pair, claim, copy))
    if seen.deletes_held:
        note = Note("DeletionHeld", seen.deletes_held, "Warning")
        return Decision(notes=(note,))
    return _one(deletion(CONTROL_PLANE, pair.kind, copy))


def _is_let_go(claim: Manifest, copy: Manifest) -> bool:
    """Tell whether a copy stays when its claim goes.

    It was released, or never was this claim's. The original marks no copy that it adopted, but
    it marks and holds the claim.
    """
    if keys.RELEASED in annotations_of(copy):
        return True
    ours = copies.is_managed(claim) and keys.SYNCER in finalizers_of(claim)
    return not copies.is_managed(copy) and not ours


def _without_copy(pair: Pair, seen: Seen, claim: Manifest) -> Decision:
    if seen.taken:
        return Decision(notes=(_taken(seen),))
    if copies.is_managed(claim) and seen.creates_held:
        return Decision(notes=(Note("RecreationHeld", seen.creates_held, "Warning"),))
    made = copies.moved(claim, pair.kind, seen.copy_place, pair.marks, pair.carries)
    if owners := pair.owners:
        made["metadata"] = {**get_map(made, "metadata"), "ownerReferences": owners}
    made_there = Create(pair.kind, made, CONTROL_PLANE)
    if keys.SYNCER in finalizers_of(claim):
        return _one(made_there, *_held(pair, claim))
    return _one(*_held(pair, claim), made_there)


def unmarked(pair: Pair, claim: Manifest) -> Decision:
    """Return what tells of a claim, just marked, that it has no copy after all. It stays held.

    So a claim that is marked and has none lost it, whoever asks (mapping.md 10).
    """
    body: Manifest = {"metadata": {"uid": uid_of(claim), "annotations": {keys.BOUND: None}}}
    return _one(Patch(ref_of(APP_CLUSTER, pair.kind, claim), body))


def _taken(seen: Seen) -> Note:
    where = "/".join(filter(None, seen.copy_place))
    message = (
        f"The control plane has an object {where} that was not made for this space, and stays as"
        " it is. Give this claim another name, or ask the provider to let that object go"
    )
    return Note(NAME_TAKEN, message, "Warning")


def _joined(pair: Pair, seen: Seen, claim: Manifest, copy: Manifest) -> Decision | Read:
    tasks = [_held(pair, claim), _status_down(pair, claim, copy)]
    if is_deleting(copy):
        return _decision(*tasks)
    if not copies.is_managed(copy) or keys.RELEASED in annotations_of(copy):
        return _decision(*tasks, (_joining(pair, copy),))
    wanted = stated(pair, claim)
    paths_left = _paths_left(pair, copy, wanted)
    written = [*_written(copy), *_written(copy, by_konnectors=False)]
    if not paths_left and (seen.settled or agrees(copy, wanted, written)):
        return _decision(*tasks)
    if paths_left and not seen.copy_whole:
        return Read.COPY
    return _decision(*tasks, _spec_up(pair, copy, wanted))


def _spec_up(pair: Pair, copy: Manifest, wanted: Manifest) -> tuple[Step, ...]:
    """Apply what the claim says, forced; fields of others stay, such as Crossplane's.

    What we, or the original, wrote by creating can be taken back only once it counts as applied.
    """
    steps: list[Step] = []
    if before := _before_apply(pair, copy, wanted):
        steps.append(JsonPatch(ref_of(CONTROL_PLANE, pair.kind, copy), tuple(before)))
    identity: dict[str, JSON] = {"name": name_of(copy), **preconditions_of(copy)}
    if namespace := namespace_of(copy):
        identity["namespace"] = namespace
    if owners := pair.owners:
        identity["ownerReferences"] = owners
    left = copies.as_left(copy, wanted, _written(copy), pair.carries)
    body: dict[str, JSON] = {
        "apiVersion": pair.kind.api_version,
        "kind": pair.kind.kind,
        **wanted,
        "metadata": {**identity, **get_map(wanted, "metadata"), **left},
    }
    return (*steps, Apply(pair.kind, body, CONTROL_PLANE))


def _before_apply(pair: Pair, copy: Manifest, wanted: Manifest) -> Sequence[Manifest]:
    """Return the JSON Patch without which an apply would not take back what it has to."""
    writer, *others = WRITERS
    taken_over = created_to_applied(copy, manager=writer, from_managers=others)
    if taken_over is None or not _paths_left(pair, _as_created(copy), wanted):
        taken_over = []
    ours, theirs = _written(copy), _written(copy, by_konnectors=False)
    removed = emptied.removals(copy, wanted, ours=ours, others=theirs)
    if removed and not taken_over:
        unchanged = {"op": "test", "path": "/metadata/resourceVersion"}
        taken_over = [{**unchanged, "value": resource_version_of(copy)}]
    return [*taken_over, *removed]


def _paths_left(pair: Pair, copy: Manifest, wanted: Manifest) -> bool:
    """Tell whether the copy holds fields that a konnector wrote and the claim does not state."""
    return any(
        _travels(pair, path)
        for writer in WRITERS
        if _wrote(copy, writer)
        for path in unstated_paths(copy, manager=writer, stated=wanted, empty_is_absent=False)
    )


def _as_created(copy: Manifest) -> Manifest:
    """Return the copy as if nothing had been applied to it."""
    entries = get_maps(copy, "metadata", "managedFields")
    created = [entry for entry in entries if entry.get("operation") == "Update"]
    return put(copy, created, "metadata", "managedFields")


def _wrote(copy: Manifest, writer: str) -> bool:
    entries = get_maps(copy, "metadata", "managedFields")
    return any(get_text(entry, "manager") == writer for entry in entries)


def _written(copy: Manifest, *, by_konnectors: bool = True) -> list[Manifest]:
    """Return what konnectors wrote, or all others, as FieldsV1."""
    return [
        get_map(entry, _FIELDS)
        for entry in get_maps(copy, "metadata", "managedFields")
        if (entry.get("manager") in WRITERS) == by_konnectors and not entry.get("subresource")
    ]


def _travels(pair: Pair, path: tuple[str, ...]) -> bool:
    """Tell whether the claim decides about a field; finalizers, owners and status are others'."""
    match path:
        case ("f:metadata", "f:labels" | "f:annotations", key):
            return copies.travels(key.removeprefix("f:"), pair.carries)
        case ("f:metadata" | "f:status", *_):
            return False
        case _:
            return True


def _held(pair: Pair, claim: Manifest) -> tuple[Step, ...]:
    """Finalizer and mark, in one patch, where one of them is missing."""
    said: dict[str, JSON] = {}
    held = finalizers_of(claim)
    if keys.SYNCER not in held:
        said["finalizers"] = [*held, keys.SYNCER]
    if not copies.is_managed(claim):
        said["annotations"] = {keys.BOUND: keys.BOUND_VALUE}
    return (_patch_claim(pair, claim, said),) if said else ()


def _joining(pair: Pair, copy: Manifest) -> Patch:
    """Mark a copy as this claim's, and as one that is not let go."""
    marks: dict[str, JSON] = {**pair.marks}
    if keys.RELEASED in annotations_of(copy):
        marks[keys.RELEASED] = None
    body: Manifest = {"metadata": {**preconditions_of(copy), "annotations": marks}}
    return Patch(ref_of(CONTROL_PLANE, pair.kind, copy), body)


def _status_down(pair: Pair, claim: Manifest, copy: Manifest) -> tuple[Step, ...]:
    """The whole status, as a patch of what differs. It is the copy's alone: the uid suffices."""
    before, after = {"status": claim.get("status")}, {"status": copy.get("status")}
    change = difference(before, after)
    if not change:
        return ()
    body: Manifest = {"metadata": {"uid": uid_of(claim)}, **change}
    ref = ref_of(APP_CLUSTER, pair.kind, claim)
    return (Patch(ref, body, subresource="status" if pair.has_status else ""),)


def _patch_claim(pair: Pair, claim: Manifest, metadata: Manifest) -> Patch:
    body: Manifest = {"metadata": {**preconditions_of(claim), **metadata}}
    return Patch(ref_of(APP_CLUSTER, pair.kind, claim), body)


def _one(*steps: Step) -> Decision:
    return Decision(tasks=(Task(steps),))


def _decision(*tasks: tuple[Step, ...]) -> Decision:
    """Return a decision of these tasks, none of which waits for another."""
    found = tuple(Task(steps) for steps in tasks if steps)
    return Decision(tasks=found) if found else NOTHING
