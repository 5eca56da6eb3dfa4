"""Typed values as server-side apply sees them: field sets, comparison, merge, removal.

A transcript in small of structured-merge-diff v6, with which kube-apiserver does it. A path is a
tuple of the steps of FieldsV1: `f:spec`, `k:{"type":"Ready"}`, `v:"a"`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

Path: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[Path]

_SORTED: Final = orjson.OPT_SORT_KEYS
ABSENT: Final[Any] = object()
NOTHING: Final[FieldSet] = frozenset()


@dataclass(frozen=True)
class Type:
    """What a value may be. `fields` are those of a struct; `element` is that of a map's items.

    `keys` are those of a list whose items have names, `is_set` says that a list has each value
    once; any other list is one value.
    """

    fields: Mapping[str, "Type"] = field(default_factory=dict)
    element: "Type | None" = None
    item: "Type | None" = None
    keys: tuple[str, ...] = ()
    is_set: bool = False
    is_atomic: bool = False
    is_closed: bool = False  # has no fields but those
    key_defaults: Mapping[str, Any] = field(default_factory=dict)

    def of(self, key: str) -> "Type":
        return self.fields.get(key) or self.element or DEDUCED

    @property
    def granular(self) -> bool:
        return bool(self.keys) or self.is_set


DEDUCED: Final = Type()  # maps item by item, lists as one value
ATOMIC: Final = Type(is_atomic=True)


def parse(fields: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """Yield the paths of a FieldsV1."""
    for step, below in fields.items():
        if step == ".":
            yield at
        elif not below:
            yield (*at, step)
        else:
            yield from parse(below, (*at, step))


def written(paths: FieldSet) -> dict[str, Any]:
    """Return the FieldsV1 of paths."""
    root: dict[str, Any] = {}
    for path in sorted(paths):
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return _without_lone_dots(root)


def _without_lone_dots(node: dict[str, Any]) -> dict[str, Any]:
    made = {step: _without_lone_dots(below) for step, below in node.items() if step != "."}
    return {".": {}, **made} if "." in node and made else made


def same(one: Any, other: Any) -> bool:
    """Compare as JSON, where true is not 1."""
    if one is other:
        return True
    return orjson.dumps(one, option=_SORTED) == orjson.dumps(other, option=_SORTED)


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def field_set(of: Type, value: Any, at: Path = ()) -> set[Path]:
    if isinstance(value, dict) and not of.is_atomic:
        found: set[Path] = set()
        for key, item in value.items():
            path = (*at, f"f:{key}")
            found |= field_set(of.of(key), item, path)
            if item is None or item == {} or key not in of.fields:
                found.add(path)
        return found
    if isinstance(value, list) and of.granular:
        return {
            path
            for step, item in _items(of, value)
            for path in ((*at, step), *field_set(of.item or DEDUCED, item, (*at, step)))
        }
    is_list_or_map = of.fields or of.element or of.granular or of is DEDUCED
    return set() if value is None and is_list_or_map else {at}


def undeclared(of: Type, value: Any, at: str = "") -> Iterator[str]:
    """Yield the fields of an applied value that its type does not know."""
    if isinstance(value, dict):
        for key, item in value.items():
            if of.is_closed and key not in of.fields:
                yield f"{at}.{key}"
            else:
                yield from undeclared(of.of(key), item, f"{at}.{key}")
    elif isinstance(value, list) and of.item is not None:
        for item in value:
            yield from undeclared(of.item, item, f"{at}[]")


@dataclass
class Comparison:
    """What differs between two values."""

    removed: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    added: set[Path] = field(default_factory=set)


def compare(of: Type, old: Any, new: Any) -> Comparison:
    found = Comparison()
    _compare(of, old, new, (), found)
    return found


def _compare(of: Type, old: Any, new: Any, at: Path, into: Comparison) -> None:
    kinds = {_shape(of, one) for one in (old, new) if one is not ABSENT}
    if "map" in kinds and not of.is_atomic:
        is_leaf = _compare_maps(of, old, new, at, into)
    elif "list" in kinds and of.granular:
        is_leaf = _compare_lists(of, old, new, at, into)
    else:
        is_leaf = True
    if is_leaf or (kinds - {"null"} and len(kinds - {"null"}) > 1):
        if old is ABSENT:
            into.added.add(at)
        elif new is ABSENT:
            into.removed.add(at)
        elif not same(old, new):
            into.modified.add(at)
    elif old is ABSENT:
        into.added.add(at)
    elif new is ABSENT:
        into.removed.add(at)


def _shape(of: Type, value: Any) -> str:
    if value is None:
        return "null"
    return "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"


def _compare_maps(of: Type, old: Any, new: Any, at: Path, into: Comparison) -> bool:
    """Compare item by item; return whether both are empty, so that they are one value each."""
    lhs, rhs = _as_map(old), _as_map(new)
    for key in {**lhs, **rhs}:
        path = (*at, f"f:{key}")
        _compare(of.of(key), lhs.get(key, ABSENT), rhs.get(key, ABSENT), path, into)
    return not lhs and not rhs


def _compare_lists(of: Type, old: Any, new: Any, at: Path, into: Comparison) -> bool:
    lhs, rhs = _gathered(of, old), _gathered(of, new)
    for step in {**lhs, **rhs}:
        before, after = lhs.get(step, []), rhs.get(step, [])
        path = (*at, step)
        if len(before) < 2 and len(after) < 2:
            pair = (before[0] if before else ABSENT, after[0] if after else ABSENT)
            _compare(of.item or DEDUCED, *pair, path, into)
        elif not before:
            into.added.add(path)
        elif not same(before, after):
            (into.modified if after else into.removed).add(path)
    return not lhs and not rhs


def _as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(of: Type, value: Any) -> list[tuple[str, Any]]:
    return [(_step(of, item), item) for item in value] if isinstance(value, list) else []


def _gathered(of: Type, value: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for step, item in _items(of, value):
        found.setdefault(step, []).append(item)
    return found


def _step(of: Type, item: Any) -> str:
    if of.is_set:
        return f"v:{json.dumps(item, separators=(',', ':'))}"
    stated = {**of.key_defaults, **{key: item[key] for key in of.keys if key in item}}
    return f"k:{json.dumps(stated, sort_keys=True, separators=(',', ':'))}"


def merge(of: Type, live: Any, stated: Any) -> Any:
    """Lay an applied value over a live one; ABSENT where nothing comes of both."""
    if stated is ABSENT:
        return live
    if live is ABSENT:
        live = None if isinstance(stated, dict | list) else ABSENT
    if isinstance(stated, dict) and isinstance(live, dict | None) and not of.is_atomic:
        return _merge_maps(of, live or {}, stated)
    if stated is None and isinstance(live, dict) and live and not of.is_atomic:
        return live
    if isinstance(stated, list) and of.granular and (live or stated):
        return _merge_lists(of, live or [], stated)
    return stated


def _merge_maps(of: Type, live: dict[str, Any], stated: dict[str, Any]) -> Any:
    if not live and not stated:
        return stated
    made = {
        key: merge(of.of(key), live.get(key, ABSENT), stated.get(key, ABSENT))
        for key in {**live, **stated}
    }
    return {key: item for key, item in made.items() if item is not ABSENT}


def _merge_lists(of: Type, live: list[Any], stated: list[Any]) -> list[Any]:
    """Keep the order of what is stated; what is live alone stays after what it follows."""
    ours, theirs = _items(of, live), _items(of, stated)
    before, after = dict(ours), dict(theirs)
    shared = [step for step, _ in theirs if step in before]
    made: list[Any] = []
    left, right = 0, 0

    def take(step: str) -> None:
        pair = before.get(step, ABSENT), after.get(step, ABSENT)
        made.append(merge(of.item or DEDUCED, *pair))
        if shared and shared[0] == step:
            shared.pop(0)

    while left < len(ours) or right < len(theirs):
        if left < len(ours):
            step = ours[left][0]
            if right < len(theirs) and step == theirs[right][0]:
                take(step)
                left, right = left + 1, right + 1
                continue
            if step not in after:
                take(step)
                left += 1
                continue
            if right < len(theirs) and shared and step != shared[0]:
                left += 1
                continue
        if right < len(theirs):
            take(theirs[right][0])
            right += 1
        else:
            left += 1
    return made


def remove(of: Type, value: Any, paths: FieldSet) -> Any:
    """Remove the items at these paths; a map or list that loses all of them becomes null."""
    if not paths:
        return value
    below = _below(paths)
    if isinstance(value, dict) and not of.is_atomic:
        kept = {
            key: remove(of.of(key), item, below.get(f"f:{key}", NOTHING))
            for key, item in value.items()
            if (f"f:{key}",) not in paths
        }
        return kept or None
    if isinstance(value, list) and of.granular:
        items = [
            remove(of.item or DEDUCED, item, below.get(step, NOTHING))
            for step, item in _items(of, value)
            if (step,) not in paths
        ]
        return items or None
    return None if isinstance(value, dict | list) else value


def _below(paths: Iterable[Path]) -> dict[str, FieldSet]:
    found: dict[str, set[Path]] = {}
    for first, *rest in paths:
        if rest:
            found.setdefault(first, set()).add(tuple(rest))
    return {step: frozenset(some) for step, some in found.items()}


def with_structs(of: Type, paths: Iterable[Path]) -> FieldSet:
    """Add the fields of structs above the paths, which belong to nobody otherwise."""
    found = set(paths)
    for path in tuple(found):
        node: Type | None = of
        for end, step in enumerate(path[:-1], 1):
            if node is None:
                break
            if step.startswith("f:"):
                key = step[2:]
                if key in node.fields:
                    found.add(path[:end])
                node = node.of(key)
            else:
                node = node.item
    return frozenset(found)
