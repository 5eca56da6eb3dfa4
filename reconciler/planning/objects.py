"""Decides about one object that we state: create, adopt, update, or nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.patches import FieldChange, pointer
from reconciler.fleet.wanted import Wanted
from reconciler.planning.changes import Action, Change
from reconciler.planning.compare import differences

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


def owned_changes(
    draft: Change, live: Manifest | None, wanted: Wanted, *, fleet: str
) -> tuple[Change, ...]:
    """Return the lines for one object; `draft` is the line of one that agrees with the files.

    An object that is not ours yet is adopted by its labels alone; what differs beside them is a
    line of its own.
    """
    stated = wanted.stated
    if live is None:
        made = replace(draft, action=Action.CREATE, reason="new", after=wanted.manifest)
        return (made,)
    refused = obstacle(live, fleet=fleet)
    if refused:
        return (replace(draft, action=Action.BLOCKED, reason=refused),)
    fields = tuple(_single(differences(live, stated, whole=wanted.manifest)))
    if manifest.get_text(live, *_FLEET) or not manifest.labels_of(stated):
        return (_updated(draft, fields, stated, former=_former(live, wanted)),)
    marks = tuple(one for one in fields if _is_mark(one))
    rest = tuple(one for one in fields if not _is_mark(one))
    reason = "taken over as it is"
    adopted = replace(
        draft, action=Action.ADOPT, reason=reason, fields=marks, after=_marks_of(stated)
    )
    return (adopted, _updated(draft, rest, stated)) if rest else (adopted,)


def obstacle(live: Manifest, *, fleet: str) -> str:
    """Return why nothing may be written to an object that is there, or ""."""
    if manifest.is_deleting(live):
        return "it is being deleted; plan again once it is gone"
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
        held = manifest.get_text_map(metadata, field)
        if marks := {name: value for name, value in held.items() if name in known}:
            kept[field] = marks
    return {"apiVersion": stated["apiVersion"], "kind": stated["kind"], "metadata": kept}


def _former(live: Manifest, wanted: Wanted) -> str:
    """Return the name that the cluster had when we labelled an object, or "" (mapping.md 2)."""
    known = manifest.get_text(live, "metadata", "labels", keys.CLUSTER)
    return "" if known == wanted.cluster else known


def _updated(
    draft: Change, fields: tuple[FieldChange, ...], stated: Manifest, *, former: str = ""
) -> Change:
    if not fields:
        return draft
    only_labels = all(one.path.startswith(_LABELS) for one in fields)
    reason = "labels only" if only_labels else "differs from the files"
    if any(one.path.startswith(_CLAIMS) for one in fields):
        reason += "; the original konnector heeds claims only when it starts again"
    if former:
        reason += f"; its cluster was called {former}"
    return replace(draft, action=Action.UPDATE, reason=reason, fields=fields, after=stated)


def _is_mark(change: FieldChange) -> bool:
    """Tell whether an adoption writes this field."""
    return change.path in _MARK_PATHS
