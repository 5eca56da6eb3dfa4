"""Whether an object already is what an apply would make of it.

A map may hold more than is stated, which is what others added. A list is one value, so that an
item or a field of an item that is no longer stated has to go; but for lists whose items the server
tells apart: by keys, in the order that is stated, or as a set. Which those are shows in
managedFields. What is empty is not absent: a custom resource keeps it, and `{}` may be all that
somebody has to say. Refuses to know whose objects these are.
"""

import json
from collections.abc import Sequence
from typing import Final

from reconciler.core.manifest import JSON, Manifest, get, get_map
from reconciler.core.merge import are_equal

_ITSELF: Final = "."
_ABSENT: Final = -1


def agrees(live: JSON, stated: JSON, fields: Sequence[Manifest]) -> bool:
    """Tell whether an apply of `stated` would leave `live` as it is, values alone considered.

    `fields` is what we wrote at this place, as FieldsV1, with what others wrote inside of that.
    Fields that we wrote and state no more are not looked for: see `managed_fields.unstated_paths`.
    """
    if isinstance(stated, dict):
        return _map_agrees(live, stated, fields)
    if isinstance(stated, list):
        return _list_agrees(live, stated, fields)
    return are_equal(live, stated)


def _map_agrees(live: JSON, stated: Manifest, fields: Sequence[Manifest]) -> bool:
    if not isinstance(live, dict):
        return False
    if fields and not any(fields):  # written as one value, or while it was empty
        return are_equal(live, stated)
    for key, value in stated.items():
        found = live.get(key)
        if type(value) is str:  # most are, and they need no call of their own
            if found != value:
                return False
        elif key not in live or not agrees(found, value, _below(fields, f"f:{key}")):
            return False
    return True


def _list_agrees(live: JSON, stated: Sequence[JSON], fields: Sequence[Manifest]) -> bool:
    steps = {step for one in fields for step in one if step != _ITSELF}
    if not steps or not isinstance(live, list):
        return are_equal(live, stated)
    keys = {key for step in steps if step.startswith("k:") for key in _keys(step)}
    if not keys:  # a set
        return all(any(are_equal(one, item) for one in live) for item in stated)
    places = [_place(live, item, keys, fields) for item in stated]
    return _ABSENT not in places and places == sorted(places)


def _place(live: Sequence[JSON], item: JSON, keys: set[str], fields: Sequence[Manifest]) -> int:
    """Return where an item with keys is, if it agrees."""

    def is_it(other: JSON) -> bool:
        return all(get(other, key) == get(item, key) for key in keys)

    place = next((at for at, one in enumerate(live) if is_it(one)), _ABSENT)
    steps = (step for one in fields for step in one if step.startswith("k:"))
    step = next((step for step in steps if is_it(json.loads(step[2:]))), "")
    there = place != _ABSENT and agrees(live[place], item, _below(fields, step))
    return place if there else _ABSENT


def _below(fields: Sequence[Manifest], step: str) -> list[Manifest]:
    return [get_map(one, step) for one in fields if step in one]


def _keys(step: str) -> list[str]:
    return list(json.loads(step[2:]))
