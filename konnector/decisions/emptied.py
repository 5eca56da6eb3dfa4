"""What an apply cannot take away: the fields of a map that a claim holds empty now. Pure.

kube-apiserver makes null of a map that is applied empty, once all fields go that were applied in it
before, and refuses that where the schema says object. So those fields are removed by name first.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from reconciler.core.manifest import JSON, Manifest, get

# As in FieldsV1: "f:" and a field's name, step by step.
Path: TypeAlias = tuple[str, ...]


def removals(
    copy: Manifest, wanted: Manifest, *, ours: Sequence[Manifest], others: Sequence[Manifest]
) -> list[dict[str, JSON]]:
    """Return the JSON Patch operations that remove them from a copy.

    `ours` is what konnectors wrote, as FieldsV1, and `others` what all others did: that stays.
    """
    owners = _Owners(ours, others)
    found = [path for at, held in _emptied(copy, wanted, ()) for path in owners.top(held, at)]
    return [{"op": "remove", "path": _pointer(path)} for path in found]


class _Owners:
    def __init__(self, ours: Sequence[Manifest], others: Sequence[Manifest]) -> None:
        self._ours, self._others = ours, others

    def top(self, held: Manifest, at: Path) -> Iterator[Path]:
        """Yield the topmost paths below a map that are ours alone."""
        for key, value in held.items():
            path = (*at, f"f:{key}")
            if self._are_ours(value, path):
                yield path
            elif isinstance(value, dict):
                yield from self.top(value, path)

    def _are_ours(self, value: JSON, path: Path) -> bool:
        if isinstance(value, dict) and value:
            return all(self._are_ours(one, (*path, f"f:{key}")) for key, one in value.items())
        return _holds(self._ours, path) and not _holds(self._others, path)


def _holds(written: Sequence[Manifest], path: Path) -> bool:
    return any(get(fields, *path) is not None for fields in written)


def _emptied(live: Manifest, wanted: Manifest, at: Path) -> Iterator[tuple[Path, Manifest]]:
    """Yield the maps that are empty in `wanted` and not in `live`, as they are there."""
    for key, value in wanted.items():
        held = live.get(key)
        if isinstance(value, dict) and isinstance(held, dict):
            path = (*at, f"f:{key}")
            if value:
                yield from _emptied(held, value, path)
            elif held:
                yield path, held


def _pointer(path: Path) -> str:
    names = (step.removeprefix("f:") for step in path)
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
