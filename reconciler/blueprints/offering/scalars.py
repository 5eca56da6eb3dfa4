"""What JSON schemas say of one value alone: types, lists of values, bounds. As forms have them.

Each function gets `lose`, which hears what a form cannot say. Refuses to know what holds what.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeGuard

from reconciler.blueprints.offering import forms
from reconciler.blueprints.offering.forms import ANY, MIXED
from reconciler.blueprints.offering.patterns import for_server
from reconciler.core.manifest import JSON, get_texts

Lose: TypeAlias = Callable[[str], None]
Schema: TypeAlias = Mapping[str, JSON]

_SAFE: Final = 2**53  # numbers below it are the same to all readers
_OF_VALUES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_TYPES: Final = frozenset({"object", "array", "string", "boolean", "integer", "number", "null"})
_OF_TEXT: Final = ("minLength", "maxLength", "pattern")
_OF_NUMBERS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
_MEANS: Final = {
    "object": (
        *("properties", "required", "additionalProperties", "patternProperties"),
        *("minProperties", "maxProperties", "propertyNames", "dependencies"),
        *("dependentRequired", "dependentSchemas"),
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": _OF_TEXT,
    "number": _OF_NUMBERS,
}
# Those that an API server checks, and means what JSON schemas mean by them.
_FORMATS: Final = {
    "string": frozenset(
        ("date-time", "date", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "password")
    ),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
_COUNTS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def listed(schema: Schema) -> list[JSON] | None:
    """Return the values that a schema lists, None where it lists none."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return list(values) if isinstance(values, list | tuple) and values else None


def kinds(schema: Schema, lose: Lose) -> frozenset[str]:
    """Return the types that a schema says or means, `null` among them; none are all."""
    said = schema.get("type")
    names = {said} if isinstance(said, str) else set(get_texts(schema, "type"))
    if not names <= _TYPES:
        lose("a type that is none: anything is accepted")
        return frozenset()
    values = listed(schema)
    if values is not None:
        found = {_kind_of(value) for value in values}
        wide = names | ({"integer"} if "number" in names else set())
        return frozenset((found & wide if names else found) or names)
    meant = {kind for kind, keys in _MEANS.items() if any(key in schema for key in keys)}
    return frozenset(names or meant)


def one_of(names: frozenset[str]) -> str:
    """Return the one type that covers several."""
    if len(names) == 1:
        return next(iter(names))
    if names == {"integer", "number"}:
        return "number"
    return MIXED if names == {"integer", "string"} else ANY


def enum(kind: str, values: Iterable[JSON], lose: Lose) -> dict[str, Any]:
    """Return the list of values of a form."""
    if kind in ("object", "array"):
        lose(f"a list of {kind}s: other ones are accepted, too")
        return {}
    fitting = {"number": ("integer", "number"), MIXED: ("integer", "string")}.get(kind, (kind,))
    kept = [value for value in values if _kind_of(value) in fitting]
    if not all(_is_safe(value) for value in kept if is_number(value)):
        lose("a list with numbers that are too large to be exact: dropped")
        return {}
    if not kept:
        lose("a list of values of another type: dropped")
    return {"enum": forms.known(kept)} if kept else {}


def bounds(kind: str, schema: Schema, lose: Lose) -> dict[str, Any]:
    """Return all that a schema says of a value of this type by itself."""
    found = _counts(_COUNTS.get(kind, ()), schema, lose)
    if kind == "string":
        return found | _format(kind, schema, lose) | _pattern(schema, lose)
    if kind in ("integer", "number"):
        limits = [
            _limit(kind, schema, bound, tighter, lose)
            for bound, tighter in (("minimum", max), ("maximum", min))
        ]
        return found | _format(kind, schema, lose) | limits[0] | limits[1] | _multiple(schema, lose)
    if kind == MIXED and {*_OF_TEXT, *_OF_NUMBERS} & schema.keys():
        lose("bounds of what may be an integer or a string are dropped")
    return found


def _kind_of(value: JSON) -> str:
    if value is None:
        return "null"
    return _OF_VALUES.get(type(value), "object" if isinstance(value, Mapping) else "array")


def _pattern(schema: Schema, lose: Lose) -> dict[str, Any]:
    said = schema.get("pattern")
    if not isinstance(said, str) or not said:
        return {}
    written = for_server(said)
    if written is None:
        lose("pattern: dropped, as it is none for sure to an API server (RE2)")
    return {} if written is None else {"pattern": written}


def _format(kind: str, schema: Schema, lose: Lose) -> dict[str, Any]:
    said = schema.get("format")
    if not isinstance(said, str):
        return {}
    if said in _FORMATS[kind]:
        return {"format": said}
    lose(f"format {said[:60]}: dropped")
    return {}


def _limit(
    kind: str,
    schema: Schema,
    bound: str,
    tighter: Callable[[Iterable[float]], float],
    lose: Lose,
) -> dict[str, Any]:
    """Return a bound: a flag beside a number, as in draft 4, or two numbers, as later."""
    sharp = forms.EXCLUSIVE[bound]
    said = [(schema.get(bound), schema.get(sharp) is True), (schema.get(sharp), True)]
    usable = [(limit, flag) for limit, flag in said if is_number(limit) and _is_safe(limit)]
    if len(usable) < sum(is_number(limit) for limit, _ in said):
        lose(f"{bound}: dropped, as it is too large to be exact")
    if not usable:
        return {}
    limit = tighter(limit for limit, _ in usable)
    flagged = any(flag for one, flag in usable if one == limit)
    if not float(limit).is_integer() and kind != "integer":
        if flagged:
            # Where the value is an integer, API servers cut off what stands behind the dot.
            lose(f"{sharp}: {limit} itself is accepted")
        return {bound: limit}
    found = forms.whole({bound: limit, **({sharp: True} if flagged else {})})
    return {**found, bound: int(found[bound])}


def _multiple(schema: Schema, lose: Lose) -> dict[str, Any]:
    factor = schema.get("multipleOf")
    if factor is None:
        return {}
    if is_number(factor) and _is_safe(factor) and float(factor).is_integer() and factor > 0:
        return {"multipleOf": int(factor)}
    lose("multipleOf: dropped, as it is no whole number")
    return {}


def _counts(keys: Iterable[str], schema: Schema, lose: Lose) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in keys:
        said = schema.get(key)
        if is_number(said) and _is_safe(said) and said >= 0 and float(said).is_integer():
            found[key] = int(said)
        elif said is not None:
            lose(f"{key}: dropped, as it is no count")
    return found


def is_number(value: JSON) -> TypeGuard[int | float]:
    """Tell whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_safe(value: JSON) -> bool:
    return is_number(value) and math.isfinite(value) and abs(value) < _SAFE
