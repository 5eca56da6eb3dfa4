"""What an apply cannot take away: what is in a map or a list that a claim holds empty now. Pure.

kube-apiserver makes null of a map or a list that is applied empty, once all goes that was applied
in it before, and refuses that where the schema says object or array. So what was in it is removed
by name first. A list that is one value is no such case: it is exchanged as a whole.
"""

import json
from collections.abc import Iterator, Sequence, Set
from typing import TypeAlias

from reconciler.core.manifest import JSON, Manifest, canonical, get, get_map

# As in FieldsV1: "f:" and a field's name, "k:" and an item's keys, "v:" and an item, step by step.
Path: TypeAlias = tuple[str, ...]


def removals(
    copy: Manifest, wanted: Manifest, *, ours: Sequence[Manifest], others: Sequence[Manifest]
) -> list[dict[str, JSON]]:
    """Return the JSON Patch operations that remove it from a copy.

    `ours` is what konnectors wrote, as FieldsV1, and `others` what all others did: that stays.
    """
    owners = _Owners(ours, others)
    found = [
        pointer
        for held, at, above in owners.emptied(copy, wanted, (), "")
        for pointer in owners.top(held, at, above)
    ]
    return [{"op": "remove", "path": pointer} for pointer in found]


class _Owners:
    def __init__(self, ours: Sequence[Manifest], others: Sequence[Manifest]) -> None:
        self._ours, self._others = ours, others

    def emptied(
        self, live: Manifest, wanted: Manifest, at: Path, above: str
    ) -> Iterator[tuple[JSON, Path, str]]:
        """Yield the maps and lists that are empty in `wanted` and not in `live`, as they are there.

        With each, the path to it and its JSON pointer.
        """
        for key, value in wanted.items():
            held, path, pointer = live.get(key), (*at, f"f:{key}"), _below(above, key)
            if isinstance(value, dict) and isinstance(held, dict):
                if value:
                    yield from self.emptied(held, value, path, pointer)
                elif held:
                    yield held, path, pointer
            elif isinstance(value, list) and isinstance(held, list):
                if value:
                    yield from self._emptied_items(held, value, path, pointer)
                elif held:
                    yield held, path, pointer

    def _emptied_items(
        self, live: Sequence[JSON], wanted: Sequence[JSON], at: Path, above: str
    ) -> Iterator[tuple[JSON, Path, str]]:
        steps = {step for step in self._steps(at) if step.startswith("k:")}
        stated = dict(_located(wanted, steps))
        for step, index in _located(live, steps):
            held, value = live[index], wanted[stated[step]] if step in stated else None
            if isinstance(held, dict) and isinstance(value, dict):
                yield from self.emptied(held, value, (*at, step), _below(above, str(index)))

    def top(self, held: JSON, at: Path, above: str) -> Iterator[str]:
        """Yield the pointers to the topmost things in a map or a list that are ours alone."""
        if isinstance(held, list):
            for step, index in _located(held, self._steps(at)):
                if self._is_ours((*at, step)):
                    yield _below(above, str(index))
        for key, value in get_map(held).items():
            path, pointer = (*at, f"f:{key}"), _below(above, key)
            if self._are_ours(value, path):
                yield pointer
            elif isinstance(value, dict):
                yield from self.top(value, path, pointer)

    def _are_ours(self, value: JSON, path: Path) -> bool:
        if isinstance(value, dict) and value:
            return all(self._are_ours(one, (*path, f"f:{key}")) for key, one in value.items())
        return self._is_ours(path)

    def _is_ours(self, path: Path) -> bool:
        return _holds(self._ours, path) and not _holds(self._others, path)

    def _steps(self, at: Path) -> set[str]:
        """Return by what the server tells the items of a list apart that we wrote."""
        held = (get_map(one, *at) for one in self._ours)
        return {step for one in held for step in one if step.startswith(("k:", "v:"))}


def _holds(written: Sequence[Manifest], path: Path) -> bool:
    return any(get(fields, *path) is not None for fields in written)


def _located(items: Sequence[JSON], steps: Set[str]) -> list[tuple[str, int]]:
    """Return where these items are, the last first: those before stay there when it is removed."""
    said = {step: json.loads(step[2:]) for step in steps}
    names = sorted({key for step, one in said.items() if step[0] == "k" for key in one})
    places = {_told(item, names): index for index, item in enumerate(items)}
    found = ((step, places.get(_told(one, names))) for step, one in said.items())
    known = [(step, index) for step, index in found if index is not None]
    return sorted(known, key=lambda one: -one[1])


def _told(item: JSON, names: Sequence[str]) -> bytes:
    return canonical([get(item, name) for name in names] if names else item)


def _below(pointer: str, key: str) -> str:
    return f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
