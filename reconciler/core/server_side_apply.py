"""Predicts the result of a server-side apply.

An apply drops what its manager owned and no longer states, and leaves what others wrote. Arrays
are one value to it, but for those whose items the server tells apart, by keys or as a set; which
those are shows in managedFields. Does not know whose objects these are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from reconciler.core import field_set
from reconciler.core.decision import are_equal, pointer, preconditions_of
from reconciler.core.field_set import ITSELF, FieldSet, Indexes, Path, value_at
from reconciler.core.manifest import JSON, Manifest, covers, get, get_list, get_map, put
from reconciler.core.normalize import normalize

_NULL: Final[tuple[JSON, ...]] = (None,)
_EMPTY: Final[tuple[JSON, ...]] = (None, {}, [])


def unstated(
    fields: FieldSet, *, live: Manifest, stated: Manifest, empty_is_absent: bool = True
) -> frozenset[Path]:
    """Return the paths of a set that `stated` does not hold, and `live` does.

    An empty object or array in `live` counts as absent, unless told otherwise: API servers drop
    it of their own kinds, and keep it in custom resources. A manager that creates an object also
    owns what the API server filled in then, so `stated` is best completed by
    `server_defaults.with_defaults`.
    """
    paths: list[Path] = []
    absent = _EMPTY if empty_is_absent else _NULL
    _find_unstated(paths, fields, (), stated=stated, live=live, absent=absent)
    return frozenset(paths)


def _find_unstated(
    paths: list[Path],
    fields: FieldSet,
    at: Path,
    *,
    stated: JSON,
    live: JSON,
    absent: tuple[JSON, ...],
) -> None:
    """Add the paths below `at` to `paths`; `stated` and `live` are the values there."""
    indexes: Indexes = {}
    for step, parts in fields.items():
        if step == ITSELF:
            if stated is None and live not in absent:
                paths.append(at)
            continue
        wanted = value_at(stated, step, indexes)
        if parts and isinstance(parts, Mapping):
            present = value_at(live, step, indexes)
            _find_unstated(paths, parts, (*at, step), stated=wanted, live=present, absent=absent)
        elif wanted is None and value_at(live, step, indexes) not in absent:
            paths.append((*at, step))


def agrees(live: JSON, stated: JSON, fields: FieldSet | None) -> bool:
    """Return whether an apply of `stated` would leave `live` as it is, values alone considered.

    `fields` is what we wrote at this place, with what others wrote inside of that; None: nothing.
    An object may hold more than is stated, which others added. What is empty is not absent: a
    custom resource keeps it, and `{}` may be all that is meant. Fields that we wrote and state no
    more are not looked for: see `unstated`.
    """
    if isinstance(stated, dict):
        return _object_agrees(live, stated, fields)
    if isinstance(stated, list):
        return _array_agrees(live, stated, fields)
    return are_equal(live, stated)


def _object_agrees(live: JSON, stated: Manifest, fields: FieldSet | None) -> bool:
    if not isinstance(live, dict):
        return False
    if fields is not None and not fields:  # written as one value, or while it was empty
        return are_equal(live, stated)
    for key, value in stated.items():
        present = live.get(key)
        if type(value) is str:  # most are, and they need no call of their own
            if present != value:
                return False
        elif key not in live or not agrees(present, value, _below(fields, f"f:{key}")):
            return False
    return True


def _array_agrees(live: JSON, stated: Sequence[JSON], fields: FieldSet | None) -> bool:
    steps = [step for step in fields or () if step != ITSELF]
    if fields is None or not steps or not isinstance(live, list):
        return are_equal(live, stated)
    names = field_set.key_names(steps)
    places = _places(live, names)
    if not names:  # a set
        return all(field_set.item_key(item, names) in places for item in stated)
    step_of = field_set.steps_by_item(steps, names)
    indices = []
    for item in stated:
        key = field_set.item_key(item, names)
        place = places.get(key)
        if place is None or not agrees(live[place], item, _below(fields, step_of.get(key, ""))):
            return False
        indices.append(place)
    return indices == sorted(indices)


def _below(fields: FieldSet | None, step: str) -> FieldSet | None:
    return None if fields is None or step not in fields else get_map(fields, step)


def _places(items: Sequence[JSON], names: Sequence[str]) -> dict[bytes, int]:
    """Return the index of each item by its `item_key`; of several alike, the first."""
    places: dict[bytes, int] = {}
    for index, item in enumerate(items):
        places.setdefault(field_set.item_key(item, names), index)
    return places


def removals(
    live: Manifest, wanted: Manifest, *, ours: FieldSet, others: FieldSet
) -> list[dict[str, JSON]]:
    """Return the JSON Patch operations for the fields that an apply of `wanted` cannot remove.

    kube-apiserver makes null of an object or array that is applied empty, once all goes that was
    applied in it before, and refuses that where the schema says object or array. So what was in it
    is removed by name first, where nobody else wrote it. An object within that we alone made goes
    with all that others wrote into it, as it does where something is left beside it. An array that
    is one value is no such case: it is exchanged as a whole.
    """
    pointers = _emptied(live, wanted, (ours, others), "")
    return [{"op": "remove", "path": pointer} for pointer in pointers]


# What we and all others wrote at a place; None: nothing.
_Writers: TypeAlias = tuple[FieldSet | None, FieldSet | None]


def _written_below(writers: _Writers, step: str) -> _Writers:
    ours, others = writers
    return _below(ours, step), _below(others, step)


def _emptied(live: Manifest, wanted: Manifest, writers: _Writers, above: str) -> Iterator[str]:
    """Yield the pointers to our fields in objects and arrays that are empty in `wanted`."""
    for key, value in wanted.items():
        present = live.get(key)
        if type(value) not in (dict, list) or type(present) is not type(value):
            continue
        written, at = _written_below(writers, f"f:{key}"), above + pointer(key)
        if not value:
            yield from _ours(present, written, at)
        elif isinstance(value, dict):
            yield from _emptied(get_map(present), value, written, at)
        else:
            yield from _emptied_items(get_list(present), get_list(value), written, at)


def _emptied_items(
    live: Sequence[JSON], wanted: Sequence[JSON], writers: _Writers, above: str
) -> Iterator[str]:
    steps = [step for step in writers[0] or () if step[:2] == "k:"]
    stated = dict(_located(wanted, steps))
    for step, index in _located(live, steps):
        present, value = live[index], wanted[stated[step]] if step in stated else None
        if isinstance(present, dict) and isinstance(value, dict):
            at = above + pointer(str(index))
            yield from _emptied(present, value, _written_below(writers, step), at)


def _ours(present: JSON, writers: _Writers, above: str) -> Iterator[str]:
    """Yield the pointers to the topmost things in an object or an array that an apply removes."""
    if isinstance(present, list):
        for step, index in _located(present, writers[0] or ()):
            if _is_ours(_written_below(writers, step)):
                yield above + pointer(str(index))
    for key, value in get_map(present).items():
        written, at = _written_below(writers, f"f:{key}"), above + pointer(key)
        ours, others = written
        if not _is_made(others) and (_is_made(ours) or _are_ours(value, written)):
            yield at
        elif isinstance(value, dict):
            yield from _ours(value, written, at)


def _are_ours(value: JSON, writers: _Writers) -> bool:
    if isinstance(value, dict) and value:
        parts = value.items()
        return all(_are_ours(part, _written_below(writers, f"f:{key}")) for key, part in parts)
    return _is_ours(writers)


def _is_made(fields: FieldSet | None) -> bool:
    """Return whether a manager wrote a field itself, and not only parts of it."""
    return fields is not None and (not fields or ITSELF in fields)


def _is_ours(writers: _Writers) -> bool:
    ours, others = writers
    return ours is not None and others is None


def _located(items: Sequence[JSON], steps: Collection[str]) -> list[tuple[str, int]]:
    """Return the indices of the items that steps lead to, the last first.

    Items before one that is removed keep their index.
    """
    names = field_set.key_names(steps)
    places = _places(items, names)
    step_of = field_set.steps_by_item(steps, names)
    indices = [(step, places[key]) for key, step in step_of.items() if key in places]
    return sorted(indices, key=lambda located: -located[1])


def body(live: Manifest, stated: Manifest, *, whole: Manifest, manager: str) -> Manifest:
    """Return the body by which `manager` brings `live` to `stated`; fields of others stay.

    `whole` is all that is stated when the object is created: what the manager owns of it beyond
    `stated` is sent with its live value, and what it owns beyond `whole` is dropped. The body
    carries uid and resourceVersion, so that it fits only this object as it was read.
    """
    settled = _settled(stated, live, normalize(stated), normalize(live))
    fields = field_set.owned(live, manager, operation="Apply")
    merged = get_map(_with_owned(fields, live, whole, settled))
    known = get_map(live, "metadata")
    identity = {key: known[key] for key in ("name", "namespace") if key in known}
    metadata = {**get_map(merged, "metadata"), **identity, **preconditions_of(live)}
    typed = {"apiVersion": stated["apiVersion"], "kind": stated["kind"]}
    return put({**merged, **typed}, metadata, "metadata")


def _settled(stated: JSON, live: JSON, wanted: JSON, now: JSON) -> JSON:
    """Return `stated` with the live form of equal parts: another form would be a change.

    `wanted` and `now` are the same two, normalized.
    """
    if isinstance(stated, Mapping) and isinstance(live, Mapping):
        pairs = {key: (get(wanted, key), get(now, key)) for key in stated}
        return {
            key: _settled(value, live.get(key), *pairs[key])
            for key, value in stated.items()
            if key in live or not covers(pairs[key][1], pairs[key][0])
        }
    both = isinstance(stated, list | tuple) and isinstance(wanted, list | tuple)
    return live if both and isinstance(now, list | tuple) and covers(now, wanted) else stated


def _with_owned(fields: FieldSet, live: JSON, whole: JSON, stated: JSON) -> JSON:
    """Return `stated` with the live values of those fields that `whole` states."""
    steps = {step: get_map(parts) for step, parts in fields.items() if step != ITSELF}
    if steps and isinstance(live, Mapping):
        return _with_owned_fields(steps, live, get_map(whole), get_map(stated))
    if steps and isinstance(live, list | tuple) and all(step[:2] == "k:" for step in steps):
        return _with_owned_items(steps, live, whole, stated)
    return live if stated is None else stated


def _with_owned_fields(
    steps: Mapping[str, FieldSet], live: Manifest, whole: Manifest, stated: Manifest
) -> Manifest:
    result = dict(stated)
    for step, parts in steps.items():
        name = step.removeprefix("f:")
        if name in whole and name in live:
            result[name] = _with_owned(parts, live[name], whole[name], stated.get(name))
    return result


def _with_owned_items(
    steps: Mapping[str, FieldSet], live: JSON, whole: JSON, stated: JSON
) -> list[JSON]:
    indexes: Indexes = {}
    result = list(get_list(stated))
    for step, parts in steps.items():
        present, known = value_at(live, step, indexes), value_at(whole, step, indexes)
        if present is None or known is None:
            continue
        item = value_at(stated, step, indexes)
        merged = _with_owned(parts, present, known, item)
        if item is None:
            result.append(merged)
        else:
            result[result.index(item)] = merged
    return result
