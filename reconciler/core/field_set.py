"""The fields of an object by manager: `metadata.managedFields` as sets of fields.

A field set is FieldsV1, the format of sigs.k8s.io/structured-merge-diff: an object whose keys are
steps, and whose values are the sets below. {} is the field itself, without any part; "." is the
field itself beside its parts. A step is `f:name` in an object; of an array item it is `k:{...}` by
its keys, `v:...` by its value, or `i:0` by its place. Does not know which managers are ours.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from reconciler.core.decision import unchanged
from reconciler.core.manifest import JSON, Manifest, canonical, get, get_map, get_maps, get_text

FieldSet: TypeAlias = Manifest
Path: TypeAlias = tuple[str, ...]  # the steps from the root to a field

ITSELF: Final = "."
_NOTHING: Final[FieldSet] = {}
_ONLY_ITSELF: Final[FieldSet] = {ITSELF: {}}
_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None)  # NaN is no JSON


def entries_of(live: Manifest) -> list[Manifest]:
    """Return the entries of managedFields: one for each manager, operation and subresource."""
    return get_maps(live, "metadata", "managedFields")


def managers_of(live: Manifest) -> frozenset[str]:
    """Return the managers that wrote anything of an object."""
    return frozenset(get_text(entry, "manager") for entry in entries_of(live))


def fields_of(entry: Manifest) -> FieldSet:
    return get_map(entry, "fieldsV1")


def is_by(entry: Manifest, managers: Collection[str], operation: str = "") -> bool:
    if get_text(entry, "manager") not in managers or get_text(entry, "subresource"):
        return False
    return not operation or get_text(entry, "operation") == operation


def owned(live: Manifest, *managers: str, operation: str = "") -> FieldSet:
    """Return the fields of these managers, by `operation` or by any; subresources are left out."""
    return _united(entry for entry in entries_of(live) if is_by(entry, managers, operation))


def owned_by_others(live: Manifest, *managers: str) -> FieldSet:
    """Return the fields of all but these managers; subresources are left out."""
    entries = entries_of(live)
    return _united(
        entry
        for entry in entries
        if get_text(entry, "manager") not in managers and not get_text(entry, "subresource")
    )


def created_to_applied(
    live: Manifest, *, manager: str, from_managers: Collection[str] = ()
) -> list[dict[str, JSON]] | None:
    """Return the JSON Patch after which the next apply by `manager` can remove its fields.

    Fields written by POST belong to an `Update` entry, from which no apply takes anything away
    (mapping.md 0). That of `manager`, and those of `from_managers`, become one `Apply` entry,
    united with the present one. Other entries stay. The patch fails where the object has changed
    meanwhile. None where there is nothing to take over.
    """
    entries = entries_of(live)
    taken = [entry for entry in entries if is_by(entry, {manager, *from_managers}, "Update")]
    if not taken:
        return None
    sources = [*(entry for entry in entries if is_by(entry, (manager,), "Apply")), *taken]
    applied: dict[str, JSON] = {
        **sources[0],
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": _united(sources),
    }
    kept: list[JSON] = [entry for entry in entries if entry not in sources]
    return [
        unchanged(live),
        {"op": "replace", "path": "/metadata/managedFields", "value": [*kept, applied]},
    ]


def disowned(
    live: Manifest, managers: Collection[str], places: Collection[Path]
) -> list[dict[str, JSON]]:
    """Return the JSON Patch after which these managers do not own the fields at these places.

    The fields stay: no later apply of theirs takes them away. The patch fails where the object has
    changed since then.
    """
    left: list[JSON] = []
    for entry in entries_of(live):
        fields = fields_of(entry)
        if is_by(entry, managers):
            fields = difference(fields, below(fields, *places))
        if fields:
            left.append({**entry, "fieldsV1": fields})
    return [unchanged(live), {"op": "replace", "path": "/metadata/managedFields", "value": left}]


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return one or other
    merged = dict(one)
    for step, parts in other.items():
        merged[step] = _union_below(get_map(one, step), get_map(parts)) if step in one else parts
    return merged


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of `one` that are not in `other`."""
    shared = one.keys() & other.keys()
    if not shared:
        return one
    left = dict(one)
    for step in shared:
        ours, taken = get_map(one, step), get_map(other, step)
        is_leaf = step == ITSELF
        rest = {} if is_leaf else difference(ours or _ONLY_ITSELF, taken or _ONLY_ITSELF)
        if not rest:
            del left[step]
        elif ours:
            left[step] = rest
    return left


def inside(outer: FieldSet, inner: FieldSet) -> FieldSet:
    """Return of each field that `outer` has without parts one part that `inner` has, if any.

    So what `outer` wrote as one value, or while it was empty, is known not to be one value.
    """
    parts_inside: dict[str, JSON] = {}
    for step in outer.keys() & inner.keys():
        ours, parts = get_map(outer, step), get_map(inner, step)
        if ours:
            if deeper := inside(ours, parts):
                parts_inside[step] = deeper
        elif first := next((part for part in parts if part != ITSELF), ""):
            parts_inside[step] = {first: {}}
    return parts_inside


def below(fields: FieldSet, *places: Path) -> FieldSet:
    kept: FieldSet = _NOTHING
    for place in places:
        part = get(fields, *place)
        if part is not None:
            for step in reversed(place):
                part = {step: part}
            kept = union(kept, get_map(part))
    return kept


def has(fields: FieldSet, place: Path) -> bool:
    return get(fields, *place) is not None


def place_of(*names: str) -> Path:
    """Return the path that leads through objects by the names of their fields."""
    return tuple(f"f:{name}" for name in names)


def names_at(fields: FieldSet, *names: str) -> frozenset[str]:
    """Return the names of the fields in the object at a place, such as the labels of metadata."""
    steps = get_map(fields, *place_of(*names))
    return frozenset(step[2:] for step in steps if step[:2] == "f:")


def paths(fields: FieldSet, at: Path = ()) -> Iterator[Path]:
    """Yield the path of each field in a set, but of none that only leads to others."""
    for step, parts in fields.items():
        if step == ITSELF:
            yield at
        elif isinstance(parts, Mapping) and parts:
            yield from paths(parts, (*at, step))
        else:
            yield (*at, step)


def readable(path: Path) -> str:
    """Return a path for a person, such as `spec.containers[name=konnector].image`."""
    text = ""
    for step in path:
        prefix, _, rest = step.partition(":")
        if prefix == "f":
            text += f".{rest}" if text else rest
        elif prefix == "k":
            pairs = get_map(_json(rest)).items()
            text += f"[{','.join(f'{key}={_word(value)}' for key, value in pairs)}]"
        else:
            text += f"[{_word(_json(rest))}]"
    return text


# The items of an array, by what they say; arrays by identity and by the names of their keys. A
# search for each of thousands among thousands would take seconds, and anybody may write so many.
Indexes: TypeAlias = dict[tuple[int, tuple[str, ...]], dict[bytes, JSON]]
_Items: TypeAlias = list[JSON] | tuple[JSON, ...]
_MOST_KEYS: Final = 6  # of which some may be left to their defaults: there are 63 ways then


def value_at(value: JSON, step: str, indexes: Indexes) -> JSON:
    """Return the value one step below another, or None. `indexes` are kept between calls."""
    prefix, rest = step[:2], step[2:]
    if prefix == "f:":
        return value.get(rest) if type(value) is dict else get(value, rest)
    if not isinstance(value, (list, tuple)):
        return None
    wanted = _json(rest)
    if prefix == "i:":
        return get(value, wanted) if isinstance(wanted, int) else None
    if prefix == "v:":
        return _valued(value, wanted, indexes)
    return _keyed(value, get_map(wanted), indexes)


def key_names(steps: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the keys by which steps identify items; none for items of a set."""
    return tuple(
        sorted({name for step in steps if step[:2] == "k:" for name in get_map(_json(step[2:]))})
    )


def item_key(item: JSON, names: Collection[str]) -> bytes:
    """Return the identity of an item in its list: its keys, or the item where there are none."""
    return canonical([get(item, name) for name in names] or item)


def steps_by_item(steps: Iterable[str], names: Collection[str]) -> dict[bytes, str]:
    """Return the steps to array items by the `item_key` of the item that each leads to."""
    wanted = "k:" if names else "v:"
    return {item_key(_json(step[2:]), names): step for step in steps if step[:2] == wanted}


def _united(entries: Iterable[Manifest]) -> FieldSet:
    fields = _NOTHING
    for entry in entries:
        fields = union(fields, fields_of(entry))
    return fields


def _union_below(one: FieldSet, other: FieldSet) -> FieldSet:
    """Unite the fields of two sets below one step."""
    return _NOTHING if not one and not other else union(one or _ONLY_ITSELF, other or _ONLY_ITSELF)


def _valued(items: _Items, wanted: JSON, indexes: Indexes) -> JSON:
    index = indexes.get((id(items), ()))
    if index is None:
        index = indexes[id(items), ()] = {canonical(item): item for item in items}
    return index.get(canonical(wanted))


def _keyed(items: _Items, keys: Manifest, indexes: Indexes) -> JSON:
    """Return the item with these keys. One that leaves a key to its default is the second choice.

    A server fills keys in, such as `protocol: TCP` of a port; a manifest need not say them.
    """
    names = tuple(keys)
    index = indexes.get((id(items), names))
    if index is None:
        index = indexes[id(items), names] = _index_of(items, names)
    fewest = 0 if len(names) <= _MOST_KEYS else len(names) - 1
    for count in range(len(names), fewest, -1):
        for stated in itertools.combinations(names, count):
            item = index.get(canonical([[name, keys[name]] for name in stated]))
            if item is not None:
                return item
    return None


def _index_of(items: _Items, names: tuple[str, ...]) -> dict[bytes, JSON]:
    """Return the items by those of their keys that they state; of several alike, the first."""
    index: dict[bytes, JSON] = {}
    for item in items:
        if isinstance(item, Mapping):
            stated = [[name, item[name]] for name in names if item.get(name) is not None]
            index.setdefault(canonical(stated), item)
    return index


def _json(text: str) -> JSON:
    try:
        value: JSON = _DECODER.decode(text)
    except ValueError:
        return None
    return value


def _word(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value)
