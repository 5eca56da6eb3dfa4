"""Builds JSON Schemas of our JSON outputs, from the types that parse them.

They are about what is written: a field that is always there is required. Later minor versions add
fields, so that more than these are allowed.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from klutchctl.render import status_document
from reconciler.planning import planfile
from reconciler.planning.changes import Action, Plan
from reconciler.reports.pr_diff import Effect

_NAMES: Final = {"_FlatRef": "Ref", "_Field": "Field"}
# What is left out where there is nothing to say: of a line, and where a plan was not saved.
_SPARSE: Final = frozenset({"Change"})
_OPTIONAL: Final = frozenset({"repository"})
_COUNT: Final = {"type": "integer", "minimum": 0}


class _Generator(GenerateJsonSchema):
    """Describes the values that are taken as they are."""

    def any_schema(self, schema: core_schema.AnySchema) -> dict[str, Any]:
        return {}

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> dict[str, Any]:
        return {"type": "object"}


def plan() -> dict[str, Any]:
    """Return the schema of `plan -o json`, of saved plans, and of `show -o json`."""
    schema = _schema(TypeAdapter(Plan), "A plan of klutchctl", planfile.FORMAT)
    counts = [*(action.value for action in Action), "unseenClusters"]
    schema["properties"]["summary"] = {
        "description": "Number of lines for each action, and the changes of a pull request.",
        "type": "object",
        "properties": {**dict.fromkeys(counts, _COUNT), "against": _against()},
        "required": counts,
    }
    return schema


def status() -> dict[str, Any]:
    """Return the schema of `status -o json`, and of a controller's files."""
    title = "The status of a fleet by klutchctl"
    return _schema(status_document.adapter(), title, status_document.FORMAT)


def _against() -> dict[str, Any]:
    edit = {
        "type": "object",
        "properties": {
            "effect": {"enum": [effect.value for effect in Effect]},
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "resource": {"type": "string"},
            "clusters": {"type": "array", "items": {"type": "string"}},
            "origin": {"$ref": "#/$defs/Origin"},
            "fields": {"type": "array", "items": {"$ref": "#/$defs/Field"}},
        },
        "required": ["effect", "kind", "name", "origin"],
    }
    return {
        "description": "With --base: the changes of the pull request in the files.",
        "type": "object",
        "properties": {
            "ref": {"type": "string"},
            "revision": {"type": "string"},
            "edits": {"type": "array", "items": edit},
            "denied": {
                "description": "Lines that Policies deny: such a plan is never applied.",
                "type": "array",
                "items": _problem(),
            },
        },
        "required": ["ref", "revision", "edits"],
    }


def _problem() -> dict[str, Any]:
    texts = ("path", "severity", "code", "message", "hint")
    properties = {**{key: {"type": "string"} for key in texts}, "line": _COUNT, "column": _COUNT}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _schema(adapter: TypeAdapter[Any], title: str, written: str) -> dict[str, Any]:
    schema = adapter.json_schema(by_alias=True, schema_generator=_Generator)
    definitions = {_NAMES.get(name, name): one for name, one in schema.pop("$defs").items()}
    head = {
        "format": {"const": written},
        "version": {"type": "string", "pattern": r"^1\.[0-9]{1,9}$"},
    }
    schema["properties"] = {
        **head,
        **{k: v for k, v in schema["properties"].items() if k not in head},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_written(schema, "document"),
        "$defs": {name: _written(one, name) for name, one in sorted(definitions.items())},
    }


def _written(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Describe an object as it is written, or the words of an enumeration."""
    form = {key: _plain(value) for key, value in schema.items() if key not in ("title", "required")}
    if "description" in form:
        form["description"] = " ".join(form["description"].split())
    if "properties" not in form:
        return form
    form["properties"] = {
        field: _plain(value)
        for field, value in schema["properties"].items()
        if value.get("type") != "null"  # never saved
    }
    if name in _SPARSE:
        return {**form, "required": schema["required"]}
    return {**form, "required": [one for one in form["properties"] if one not in _OPTIONAL]}


def _plain(value: Any) -> Any:
    """Drop titles and defaults; use the public names of types."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if key not in ("title", "default")}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str) and value.startswith("#/$defs/"):
        name = value.removeprefix("#/$defs/")
        return f"#/$defs/{_NAMES.get(name, name)}"
    return value
