"""What of a copy has to be kept in a view. Pure."""

from collections.abc import Sequence
from typing import Final

from konnector.decisions.copies import WRITERS
from reconciler.core.manifest import JSON, Manifest, drop, get_map, get_maps, put

_FIELDS: Final = "fieldsV1"
_METADATA: Final = "f:metadata"
_ITSELF: Final = "."


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
