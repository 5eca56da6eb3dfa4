"""The JSON Schema of a fleet repository's documents, for editors. Made from the models."""

from typing import Final

from pydantic.json_schema import models_json_schema

from reconciler.core.manifest import JSON, get, get_list, get_map
from reconciler.fleet.documents import API_VERSION, KINDS

# The dialect that yaml-language-server knows best.
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"


def schema() -> dict[str, JSON]:
    """Return the schema of one document of any kind."""
    keys, generated = models_json_schema(
        [(model, "validation") for model in KINDS.values()],
        by_alias=True,
        ref_template="#/definitions/{model}",
    )
    branches: list[JSON] = [
        {"if": {"properties": {"kind": {"const": kind}}}, "then": keys[model, "validation"]}
        for kind, model in KINDS.items()
    ]
    return {
        "$schema": _DIALECT,
        "title": "A document of a klutchctl fleet repository",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {"apiVersion": {"const": API_VERSION}, "kind": {"enum": list(KINDS)}},
        "allOf": branches,
        "definitions": _plain(generated["$defs"], names=True),
    }


def _plain(value: JSON, *, names: bool = False) -> JSON:
    """Return a schema without titles that repeat a key, and without null: a key has a value.

    `names`: the keys are names of people's own, not words of JSON Schema.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value if item != {"type": "null"}]
    if not isinstance(value, dict):
        return value
    plain = {
        key: _plain(item, names=key in ("properties", "definitions") and not names)
        for key, item in value.items()
        if names or not (key == "title" or (key == "default" and item is None))
    }
    only = plain.pop("anyOf", None) if len(get_list(plain, "anyOf")) == 1 else None
    return {**get_map(get(only, 0)), **plain}
