"""Who owns which field of a live object: `metadata.managedFields`, read and taken over.

Decides which fields of ours a manifest no longer states, and how fields that we created by POST
become removable by server-side apply (mapping.md 0). Refuses to know who "we" are: managers
come as arguments. FieldsV1 is the format of sigs.k8s.io/structured-merge-diff.
"""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from reconciler.core.manifest import (
    JSON,
    Manifest,
    canonical,
    get,
    get_map,
    get_maps,
    get_text,
    resource_version_of,
)

# The steps from the root to one field, as FieldsV1 writes them: `f:name` of an object, `k:{...}`
# of an array item by its keys, `v:...` of an item by its value, `i:0` of an item by its place.
Path = tuple[str, ...]

_Items: TypeAlias = list[JSON] | tuple[JSON, ...]

_ITSELF: Final = "."
_NULL: Final[tuple[JSON, ...]] = (None,)
_EMPTY: Final[tuple[JSON, ...]] = (None, {}, [])


def created_to_applied(
    live: Manifest, *, manager: str, from_managers: Collection[str] = ()
) -> list[dict[str, JSON]] | None:
    """Return the JSON patch after which the next apply by `manager` can remove its fields.

    Its own `Update` entry, and those of `from_managers`, become one `Apply` entry, united with
    the one that is there. Entries of other managers and of subresources stay. The patch fails
    where the object has changed meanwhile. None where there is nothing to take over.
    """
    entries = get_maps(live, "metadata", "managedFields")
    sources = {manager, *from_managers}
    taken = [entry for entry in entries if _is(entry, "Update") and _manager(entry) in sources]
    if not taken:
        return None
    own = [entry for entry in entries if _is(entry, "Apply") and _manager(entry) == manager]
    first, *others = [*own, *taken]
    fields = get_map(first, "fieldsV1")
    for entry in others:
        fields = _union(fields, get_map(entry, "fieldsV1"))
    applied: dict[str, JSON] = {
        **first,
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": fields,
    }
    kept: list[JSON] = [entry for entry in entries if entry not in own and entry not in taken]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version_of(live)},
        {"op": "replace", "path": "/metadata/managedFields", "value": [*kept, applied]},
    ]


def owned_paths(live: Manifest, manager: str) -> frozenset[Path]:
    """Return the fields that `manager` created, updated or applied, subresources left out."""
    return frozenset(path for fields in _fields_of(live, manager) for path in _paths(fields))


def unstated_paths(
    live: Manifest, *, manager: str, stated: Manifest, empty_is_absent: bool = True
) -> frozenset[Path]:
    """Return the owned paths that `stated` does not hold, and `live` does.

    An empty object or array in `live` counts as absent, unless told otherwise: API servers drop
    it of their own kinds, and keep it in custom resources. Since a POST `manager` also owns what
    the API server filled in then, so `stated` is best completed by `defaults.with_defaults`.
    """
    found: list[Path] = []
    absent = _EMPTY if empty_is_absent else _NULL
    for fields in _fields_of(live, manager):
        _find_unstated(found, fields, (), stated=stated, live=live, absent=absent)
    return frozenset(found)


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


def _fields_of(live: Manifest, manager: str) -> Iterator[Manifest]:
    """Yield what a manager owns as FieldsV1, once for each of its operations."""
    for entry in get_maps(live, "metadata", "managedFields"):
        if _manager(entry) == manager and not get_text(entry, "subresource"):
            yield get_map(entry, "fieldsV1")


def _manager(entry: Manifest) -> str:
    return get_text(entry, "manager")


def _is(entry: Manifest, operation: str) -> bool:
    return get_text(entry, "operation") == operation and not get_text(entry, "subresource")


def _union(one: Manifest, other: Manifest) -> dict[str, JSON]:
    merged = dict(one)
    for step, parts in other.items():
        merged[step] = _united(get_map(one, step), get_map(parts)) if step in one else parts
    return merged


def _united(one: Manifest, other: Manifest) -> Manifest:
    """Unite what two sets hold below one step. `{}` is the field itself without any part."""
    if not one and not other:
        return {}
    return _union(one or {_ITSELF: {}}, other or {_ITSELF: {}})


def _paths(fields: Manifest, at: Path = ()) -> Iterator[Path]:
    for step, parts in fields.items():
        if step == _ITSELF:
            yield at
        elif isinstance(parts, Mapping) and parts:
            yield from _paths(parts, (*at, step))
        else:
            yield (*at, step)


def _find_unstated(
    found: list[Path],
    fields: Manifest,
    at: Path,
    *,
    stated: JSON,
    live: JSON,
    absent: tuple[JSON, ...],
) -> None:
    """Add the paths below `at` to `found`; `stated` and `live` are what stands there."""
    indexes: _Indexes = {}
    for step, parts in fields.items():
        if step == _ITSELF:
            if stated is None and live not in absent:
                found.append(at)
            continue
        wanted = _step(stated, step, indexes)
        if parts and isinstance(parts, Mapping):
            held = _step(live, step, indexes)
            _find_unstated(found, parts, (*at, step), stated=wanted, live=held, absent=absent)
        elif wanted is None and _step(live, step, indexes) not in absent:
            found.append((*at, step))


_MOST_KEYS: Final = 6  # of which some may be left to their defaults: there are 63 ways then
# The items of an array, by what they say; arrays by identity and by the names of their keys. Who
# looks for each of thousands among thousands would take seconds, and anybody may write so many.
_Indexes: TypeAlias = dict[tuple[int, tuple[str, ...]], dict[bytes, JSON]]


def _step(value: JSON, step: str, indexes: _Indexes) -> JSON:
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


def _valued(items: _Items, wanted: JSON, indexes: _Indexes) -> JSON:
    index = indexes.get((id(items), ()))
    if index is None:
        index = indexes[id(items), ()] = {canonical(item): item for item in items}
    return index.get(canonical(wanted))


def _keyed(items: _Items, keys: Manifest, indexes: _Indexes) -> JSON:
    """Return the item with these keys. One that leaves a key to its default is the second choice.

    A server fills keys in, such as `protocol: TCP` of a port; a manifest need not say them.
    """
    names = tuple(keys)
    index = indexes.get((id(items), names))
    if index is None:
        index = indexes[id(items), names] = _index_of(items, names)
    fewest = 0 if len(names) <= _MOST_KEYS else len(names) - 1
    for count in range(len(names), fewest, -1):
        for told in itertools.combinations(names, count):
            item = index.get(canonical([[name, keys[name]] for name in told]))
            if item is not None:
                return item
    return None


def _index_of(items: _Items, names: tuple[str, ...]) -> dict[bytes, JSON]:
    """Return the items by those of their keys that they say; of several alike, the first."""
    index: dict[bytes, JSON] = {}
    for item in items:
        if isinstance(item, Mapping):
            told = [[name, item[name]] for name in names if item.get(name) is not None]
            index.setdefault(canonical(told), item)
    return index


def _json(text: str) -> JSON:
    try:
        value: JSON = json.loads(text, parse_constant=lambda _: None)  # NaN is no JSON
    except ValueError:
        return None
    return value


def _word(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value)
