"""Decides whether one object is created, adopted, updated or left, by its differing fields.

Objects are compared by the rules of mapping.md 0. Pure, without dry-runs, so that a plan from a
snapshot is the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from reconciler.blueprints.objects import with_defaults
from reconciler.core import field_set, keys, manifest
from reconciler.core.decision import FieldChange, field_changes, pointer
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.normalize import normalize
from reconciler.core.server_side_apply import unstated
from reconciler.fleet.values import Fleet
from reconciler.fleet.wanted import Wanted
from reconciler.planning.changes import Action, Change

BEING_DELETED: Final = "is being deleted; plan again once it is gone"

_DIGEST_LENGTH: Final = 16
_FLEET: Final = ("metadata", "labels", keys.FLEET)
_LABELS: Final = "/metadata/labels"
_CLAIMS: Final = "/spec/permissionClaims"
_WHOLE: Final = (_LABELS, "/metadata/annotations")
# All that an adoption writes (mapping.md 0, Ownership): our labels, and these annotations.
_MARKS: Final = {
    "labels": frozenset({keys.FLEET, keys.CLUSTER, keys.BINDING}),
    "annotations": frozenset({keys.APP_CLUSTER_UID, keys.ACCESS}),
}
_MARK_PATHS: Final = frozenset(
    pointer("metadata", field, name) for field, known in _MARKS.items() for name in known
)


def draft_of(wanted: Wanted, live: Manifest | None, about: str, reason: str = "in sync") -> Change:
    """Return the line about one object that agrees with the files."""
    return Change(
        cluster=wanted.cluster,
        subject=about,
        ref=wanted.ref,
        action=Action.NOOP,
        reason=reason,
        origin=wanted.origin,
        unit=wanted.unit,
        uid="" if live is None else manifest.uid_of(live),
    )


def owned_changes(
    draft: Change, live: Manifest | None, wanted: Wanted, *, fleet: str
) -> tuple[Change, ...]:
    """Return the lines for one object; `draft` is the line of one that agrees with the files.

    An object that is not ours yet is adopted by its labels alone; what differs beside them is a
    line of its own.
    """
    stated = wanted.stated
    if live is None:
        return (replace(draft, action=Action.CREATE, reason="new", after=wanted.manifest),)
    if refused := obstacle(live, fleet=fleet):
        return (replace(draft, action=Action.BLOCKED, reason=refused),)
    fields = tuple(_single(differences(live, stated, whole=wanted.manifest)))
    if manifest.get_text(live, *_FLEET) or not manifest.labels_of(stated):
        # The cluster may have had another name when we labelled it (mapping.md 2).
        known = manifest.get_text(live, "metadata", "labels", keys.CLUSTER)
        former = "" if known == wanted.cluster else known
        return (_updated(draft, fields, live, stated, former=former),)
    marks = tuple(one for one in fields if one.path in _MARK_PATHS)
    rest = tuple(one for one in fields if one not in marks)
    reason = "taken over as it is"
    adopted = replace(
        draft, action=Action.ADOPT, reason=reason, fields=marks, after=_marks_of(stated)
    )
    return (adopted, _updated(draft, rest, live, stated)) if rest else (adopted,)


def obstacle(live: Manifest, *, fleet: str) -> str:
    """Return why nothing may be written to an object that is there, or ""."""
    if manifest.is_deleting(live):
        return f"it {BEING_DELETED}"
    owner = manifest.get(live, *_FLEET)
    if owner == fleet or not isinstance(owner, str):
        return ""
    return f"it belongs to fleet {owner}; release it there first"


def _single(fields: tuple[FieldChange, ...]) -> Iterator[FieldChange]:
    """Yield a change of all labels, or all annotations, as one change for each of them."""
    for change in fields:
        if change.path not in _WHOLE:
            yield change
            continue
        after = change.after if isinstance(change.after, Mapping) else {}
        for name in sorted(after):
            yield FieldChange(change.path + pointer(name), None, after[name])


def _marks_of(stated: Manifest) -> Manifest:
    """Return the part of a manifest that an adoption writes."""
    metadata = manifest.get_map(stated, "metadata")
    kept: dict[str, JSON] = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    for field, known in _MARKS.items():
        stated_marks = manifest.get_text_map(metadata, field)
        if marks := {name: value for name, value in stated_marks.items() if name in known}:
            kept[field] = marks
    return {"apiVersion": stated["apiVersion"], "kind": stated["kind"], "metadata": kept}


def _updated(
    draft: Change,
    fields: tuple[FieldChange, ...],
    live: Manifest,
    stated: Manifest,
    *,
    former: str = "",
) -> Change:
    if not fields:
        return draft
    only_labels = all(one.path.startswith(_LABELS) for one in fields)
    reason = "labels only" if only_labels else f"differs from the files{_cause(live, fields)}"
    is_theirs = field_set.managers_of(live) & keys.KONNECTORS == {keys.MANAGER_ORIGINAL_KONNECTOR}
    if is_theirs and any(one.path.startswith(_CLAIMS) for one in fields):
        reason += "; the original konnector heeds claims only when it starts again"
    if former:
        reason += f"; its cluster was called {former}"
    return replace(draft, action=Action.UPDATE, reason=reason, fields=fields, after=stated)


def _cause(live: Manifest, fields: Iterable[FieldChange]) -> str:
    """Return the cause of a difference, as far as managed fields show: a write takes them over."""
    written = field_set.owned(live, keys.MANAGER_CLI)
    if not written:
        return ""
    ours = {_is_written(written, one.path) for one in fields if one.before is not None} - {None}
    if ours == {True}:
        return ": it is as it was applied last"
    return ": it was changed since, not by klutchctl" if ours == {False} else ""


def _is_written(fields: field_set.FieldSet, path: str) -> bool | None:
    """Return whether a field is in a set; None where its place does not identify a list's item."""
    for step in path.split("/")[1:]:
        if not fields:
            return True  # written as one value
        name = f"f:{step.replace('~1', '/').replace('~0', '~')}"
        if name not in fields and any(one[:2] in ("k:", "v:", "i:") for one in fields):
            return None
        if name not in fields:
            return False
        fields = manifest.get_map(fields, name)
    return True


def differences(
    live: Manifest, stated: Manifest, *, whole: Manifest | None = None
) -> tuple[FieldChange, ...]:
    """Return the differences of `live` from our statements, and our fields that we state no more.

    Empty = no drift. A field that is known only after the apply agrees with any live value.
    `whole` is what we state when we create the object, where less of it is compared later.
    """
    changes = [*_changes(live, stated)]
    dropped = _dropped(live, whole or stated)
    gone = {_pointer(path) for path in dropped}
    known = {change.path for change in changes}
    names = {_pointer(path): [step.removeprefix("f:") for step in path] for path in dropped}
    extra = {path: manifest.get(live, *names[path]) for path in gone - known}
    for path, value in extra.items():
        is_plain = value is not None and not isinstance(value, Mapping | list)
        changes.append(FieldChange(path, value if is_plain else "(ours)", None))
    return tuple(sorted(changes))


def before_digest(live: Manifest | None, stated: Manifest, *, whole: Manifest | None = None) -> str:
    """Return the digest by which an apply notices that an object changed since the plan.

    It covers the uid, what we compare, and whether the object is being deleted (mapping.md 0).
    """
    if live is None:
        return ""
    wanted = normalize(stated)
    compared = _shadow(normalize(live), wanted)
    # Annotations of others alone are none of ours: the first note on an object is no change of it.
    if manifest.annotations_of(wanted) and not manifest.annotations_of(compared):
        compared = manifest.drop(compared, "metadata", "annotations")
    dropped = _dropped(live, whole or stated)
    content: JSON = {
        "uid": manifest.uid_of(live),
        "fields": compared,
        "ours": sorted(map(_pointer, dropped)),
        "deleting": manifest.get(live, "metadata", "deletionTimestamp"),
    }
    return manifest.digest(content)[:_DIGEST_LENGTH]


def sealed(change: Change, live: Manifest | None, wanted: Wanted) -> Change:
    """Return a line with the data of an apply: its manifest, and a digest of `live`."""
    if not change.acts:
        return change
    before = before_digest(live, wanted.stated, whole=wanted.manifest)
    return replace(change, before=before, wanted=change.wanted or wanted)


def _changes(live: Manifest, stated: Manifest) -> tuple[FieldChange, ...]:
    now = normalize(live)
    # Most objects hold all that is stated, and then nothing of it waits for the apply to be known.
    if manifest.covers(now, normalize(stated)):
        return ()
    wanted = normalize(_known(stated, live))
    return () if manifest.covers(now, wanted) else field_changes(_shadow(now, wanted), wanted)


def _dropped(live: Manifest, stated: Manifest) -> frozenset[tuple[str, ...]]:
    """Return the fields that we once wrote and no longer state."""
    written = field_set.owned(live, keys.MANAGER_CLI)
    return unstated(written, live=live, stated=with_defaults(stated))


def is_ours(live: Manifest, *, fleet: str, cluster: str) -> bool:
    """Return whether an object carries our two ownership labels."""
    labels = manifest.get_map(live, "metadata", "labels")
    return labels.get(keys.FLEET) == fleet and labels.get(keys.CLUSTER) == cluster


def is_of(live: Manifest, fleet: Fleet, cluster: str) -> bool:
    """Return whether an object is ours and of this cluster, perhaps under a former name of it.

    Whoever asks has found it in that cluster, or in its space (mapping.md 2).
    """
    labels = manifest.get_map(live, "metadata", "labels")
    if labels.get(keys.FLEET) != fleet.name:
        return False
    known = manifest.get_text(labels, keys.CLUSTER)
    return known == cluster or (bool(known) and not fleet.has_document(known))


def _known(stated: JSON, live: JSON) -> Manifest:
    """Put live values where the stated one is known only after the apply."""
    resolved = _resolve(stated, live)
    assert isinstance(resolved, Mapping)
    return resolved


def _resolve(stated: JSON, live: JSON) -> JSON:
    if stated == manifest.KNOWN_AFTER_APPLY:
        return stated if live is None else live
    if isinstance(stated, Mapping):
        present = live if isinstance(live, Mapping) else {}
        return {key: _resolve(value, present.get(key)) for key, value in stated.items()}
    return stated


def _shadow(live: JSON, stated: JSON) -> Manifest:
    """Return the part of `live` that `stated` is about."""
    shadow = _project(live, stated)
    return shadow if isinstance(shadow, Mapping) else {}


def _project(live: JSON, stated: JSON) -> JSON:
    if isinstance(stated, Mapping) and isinstance(live, Mapping):
        return {
            key: _project(live[key], value) if key in live else value
            for key, value in stated.items()
            # An absent map or list is an empty one.
            if key in live or manifest.covers(None, value)
        }
    if (
        isinstance(stated, list | tuple)
        and isinstance(live, list | tuple)
        and len(stated) == len(live)
    ):
        return [_project(one, other) for one, other in zip(live, stated, strict=True)]
    return live


def _pointer(path: tuple[str, ...]) -> str:
    """Return an owned path as a JSON pointer; items of keyed lists by their keys."""
    return pointer(*(step.removeprefix("f:") for step in path))
