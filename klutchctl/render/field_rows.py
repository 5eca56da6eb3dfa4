"""Fields that differ, as lines: what has to be judged is shown whole, field by field."""

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final

from klutchctl.render.terminal import visible
from reconciler.core import manifest
from reconciler.core.decision import FieldChange, pointer
from reconciler.core.manifest import JSON

_VALUE_SHOWN: Final = 120
_WHOLE_SHOWN: Final = 4_000  # more than any claim has room for; a file may hold a megabyte
_INSIDE_SHOWN: Final = 20
_CLAIMS: Final = "/spec/permissionClaims"
# Of a claim that does not name them: all names, all namespaces, and true.
_NOT_EMPTY: Final = frozenset({"names", "namespaces", "recreateWhenConsumerSideDeleted"})


def differences(field: FieldChange, *, whole: bool = False) -> Iterator[str]:
    """Yield a field that differs, such as `/spec/x: 1 -> 2`; long ones by the fields inside.

    Permission claims are shown whole, as all is where `whole`: they have to be judged. Of others,
    and of what is in a cluster, long values are cut, and counted.
    """
    judged = whole or field.path.startswith(_CLAIMS)
    found = list(_inside(field))
    shown = found if judged and field.after is not None else found[:_INSIDE_SHOWN]
    for one in shown:
        before = _value(one.before, whole=whole)
        yield f"{visible(one.path)}: {before} -> {_value(one.after, whole=judged)}"
    if len(found) > len(shown):
        yield f"{visible(field.path)}: {len(found) - len(shown)} more fields; -o json has all"


def _inside(field: FieldChange) -> Iterator[FieldChange]:
    """Yield a field, or where it is long, the fields inside of it that differ."""
    before, after = field.before, field.after
    if max(len(_text(before)), len(_text(after))) <= _VALUE_SHOWN:
        yield field
    elif _are(Mapping, before, after):
        old, new = manifest.get_map(before), manifest.get_map(after)
        # Of a claim that comes or goes as a whole, what is empty or false says what absence does.
        whole = (before is None or after is None) and field.path.startswith(_CLAIMS)
        for key in sorted(old.keys() | new.keys()):
            one, other = old.get(key), new.get(key)
            if one != other and not (whole and _is_empty({key: other if one is None else one})):
                yield from _inside(FieldChange(f"{field.path}{pointer(key)}", one, other))
    elif _are(list, before, after) and _has_parts(before) | _has_parts(after):
        old_items, new_items = manifest.get_list(before), manifest.get_list(after)
        for index, (one, other) in enumerate(zip_longest(old_items, new_items)):
            if one != other:
                yield from _inside(FieldChange(f"{field.path}/{index}", one, other))
    else:
        yield field


def _are(form: type, before: JSON, after: JSON) -> bool:
    """Tell whether values are of this form, or one of them is and the other is absent."""
    return all(one is None or isinstance(one, form) for one in (before, after))


def _is_empty(value: JSON) -> bool:
    if isinstance(value, Mapping):
        return all(key not in _NOT_EMPTY and _is_empty(one) for key, one in value.items())
    return not value and type(value) not in (int, float)


def _has_parts(items: JSON) -> bool:
    return any(isinstance(item, Mapping | list) for item in manifest.get_list(items))


def _text(value: JSON) -> str:
    return "(absent)" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _value(value: JSON, *, whole: bool) -> str:
    text = visible(_text(value))
    most = _WHOLE_SHOWN if whole else _VALUE_SHOWN
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
