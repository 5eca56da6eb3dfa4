"""Normalizes the versions of a CRD, so that two lists can be compared.

An API server drops what is empty and rounds large numbers, and that makes no difference. Refuses to
know whose a CRD is, and what is done about a difference.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from reconciler.core.manifest import JSON, Manifest, canonical, get, get_map

# Fields of a JSON schema that an API server drops where they are empty; its types make it so.
_SCHEMAS: Final = frozenset({"properties", "patternProperties", "definitions"})
_SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf"})
_SCHEMA_VALUES: Final = frozenset({"items", "additionalProperties", "additionalItems", "not"})
_FLOATS: Final = frozenset({"maximum", "minimum", "multipleOf"})
_DROPPED: Final = (
    _SCHEMAS
    | _SCHEMA_LISTS
    | {"$schema", "description", "format", "id", "pattern", "title", "type"}
    | {"exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems"}
    | {"x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"}
    | {"enum", "required", "x-kubernetes-list-map-keys", "x-kubernetes-validations"}
)

_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


def alike(one: JSON, other: JSON) -> bool:
    """Return whether two lists of versions are equal in the same order."""
    return canonical(_plain_versions(one)) == canonical(_plain_versions(other))


def _plain_versions(versions: JSON) -> JSON:
    if not isinstance(versions, list | tuple):
        return None
    return [plain(one) if isinstance(one, Mapping) else one for one in versions]


def plain(version: Manifest) -> dict[str, JSON]:
    """Return a version without values that an API server drops: empty texts and lists, false, 0."""
    kept = filled(version, version.keys() - {"name", "served", "storage", "subresources"})
    subresources = get_map(version, "subresources")
    if "scale" in subresources:
        scale = filled(get_map(subresources, "scale"), {"labelSelectorPath"})
        subresources = {**subresources, "scale": scale}
    columns = get(kept, "additionalPrinterColumns")
    if isinstance(columns, list | tuple):
        kept["additionalPrinterColumns"] = [
            filled(one, one.keys()) if isinstance(one, Mapping) else one for one in columns
        ]
    schema = get_map(version, "schema", "openAPIV3Schema")
    return {**kept, "subresources": subresources, "schema": _plain_schema(schema)}


def keeps(new: Manifest, old: Manifest) -> bool:
    """Return whether another schema reads objects of one without a loss, in the same types."""
    is_open = bool(new.get(_OPEN))
    if new.get("type") != old.get("type") or (old.get(_OPEN) and not is_open):
        return False
    fields, kept = get_map(old, "properties"), get_map(new, "properties")
    parts = [(old, new, key) for key in ("items", "additionalProperties") if key in old]
    return all(
        keeps(get_map(there, key), get_map(here, key)) if key in there else is_open
        for here, there, key in (*parts, *((fields, kept, name) for name in fields))
    )


def _plain_schema(schema: JSON) -> JSON:
    if not isinstance(schema, Mapping):
        return schema
    kept = filled(schema, _DROPPED)
    for key, value in kept.items():
        if key in _FLOATS:
            kept[key] = _as_float(value)
        elif key in _SCHEMAS and isinstance(value, Mapping):
            kept[key] = {name: _plain_schema(item) for name, item in value.items()}
        elif isinstance(value, list | tuple) and key in _SCHEMA_LISTS | _SCHEMA_VALUES:
            kept[key] = [_plain_schema(item) for item in value]
        elif key in _SCHEMA_VALUES:
            kept[key] = _plain_schema(value)
        elif key == "x-kubernetes-validations" and isinstance(value, list | tuple):
            kept[key] = [
                filled(item, item.keys()) if isinstance(item, Mapping) else item for item in value
            ]
    return kept


def _as_float(value: JSON) -> JSON:
    """Return a number as an API server holds it, which rounds large integers."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def filled(value: Manifest, keys_: Iterable[str]) -> dict[str, JSON]:
    """Return the object without those of these fields that are empty, and without nulls."""
    optional = frozenset(keys_)
    return {
        key: item
        for key, item in value.items()
        if item is not None and not (key in optional and item in ("", False, [], {}))
    }
