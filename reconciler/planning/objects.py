"""What happens to one object that is ours to state: create, adopt, update, or nothing."""

from dataclasses import replace
from typing import Final

from reconciler.core import keys
from reconciler.core.diff import FieldChange
from reconciler.core.manifest import Manifest, labels_of
from reconciler.fleet.wanted import Wanted
from reconciler.planning.changes import Action, Change
from reconciler.planning.compare import differences, is_ours


def _pointer(annotation: str) -> str:
    return "/metadata/annotations/" + annotation.replace("/", "~1")


_LABELS: Final = "/metadata/labels"
# An adoption writes these beside the labels (mapping.md 0, Ownership).
_WITH_THEM: Final = frozenset({_pointer(keys.APP_CLUSTER_UID), _pointer(keys.ACCESS)})


def owned_changes(
    draft: Change, live: Manifest | None, wanted: Wanted, *, fleet: str
) -> tuple[Change, ...]:
    """Return the lines for one object; `draft` holds all that does not depend on the answer.

    An object that is not ours yet is adopted by its labels alone; what differs beside them is a
    line of its own.
    """
    stated = wanted.manifest if wanted.compared is None else wanted.compared
    if live is None:
        made = replace(draft, action=Action.CREATE, reason="new", after=wanted.manifest)
        return (made,)
    fields = differences(live, stated, whole=wanted.manifest)
    if is_ours(live, fleet=fleet, cluster=wanted.cluster) or not labels_of(stated):
        return (_updated(draft, fields, stated),)
    marks = tuple(one for one in fields if _is_mark(one))
    rest = tuple(one for one in fields if not _is_mark(one))
    former = labels_of(live).get(keys.CLUSTER)
    reason = f"taken over from cluster {former}" if former else "taken over as it is"
    adopted = replace(draft, action=Action.ADOPT, reason=reason, fields=marks)
    return (adopted, _updated(draft, rest, stated)) if rest else (adopted,)


def _updated(draft: Change, fields: tuple[FieldChange, ...], stated: Manifest) -> Change:
    if not fields:
        return replace(draft, action=Action.NOOP, reason="in sync")
    only_labels = all(one.path.startswith(_LABELS) for one in fields)
    reason = "labels only" if only_labels else "differs from the files"
    return replace(draft, action=Action.UPDATE, reason=reason, fields=fields, after=stated)


def _is_mark(change: FieldChange) -> bool:
    """Tell whether an adoption writes this field."""
    whole = {"/metadata/labels", "/metadata/annotations"}
    return change.path.startswith(_LABELS) or change.path in _WITH_THEM | whole
