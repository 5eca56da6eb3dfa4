"""What of a JSON schema a CRD says, what it leaves out, and what narrows."""

from typing import Any

import pytest
from jsonschema import Draft4Validator

from reconciler.blueprints.offering.parameters import (
    ANYTHING,
    FREE,
    INT_OR_STRING,
    form_of,
    stricter,
)
from tests.support.random_catalogues import Catalogues

TEXT = {"type": "string"}
SAME: dict[str, Any] = {
    "a text with bounds": {"type": "string", "minLength": 1, "maxLength": 9},
    "a number with bounds": {"type": "number", "minimum": 0.5, "maximum": 9},
    "a format that both know": {"type": "string", "format": "date-time"},
    "a list of values": {"type": "string", "enum": ["a", "b"]},
    "a closed object": {"type": "object", "required": ["a"], "properties": {"a": TEXT}},
    "a map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
    "a list": {"type": "array", "items": TEXT, "minItems": 1},
    "words": {"title": "A", "description": "B.", "type": "boolean"},
}
OPEN = dict(FREE)
CHANGED: dict[str, tuple[Any, Any]] = {
    "a type with null": ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
    "an integer or a string": ({"type": ["integer", "string"]}, {INT_OR_STRING: True}),
    "an integer or a number": ({"type": ["integer", "number"]}, {"type": "number"}),
    "several types": ({"type": ["string", "boolean"]}, ANYTHING),
    "a type that is none": ({"type": "text"}, ANYTHING),
    "values without a type": ({"enum": ["a", "a"]}, {"type": "string", "enum": ["a"]}),
    "one value": ({"const": True}, {"type": "boolean", "enum": [True]}),
    "values with null": ({"type": ["string", "null"], "enum": ["a", None]},
                         {"type": "string", "nullable": True}),
    "properties without a type": ({"properties": {"a": TEXT}},
                                  {**OPEN, "properties": {"a": TEXT}}),
    "items without a type": ({"items": TEXT}, {"type": "array", "items": TEXT}),
    "items by place": ({"type": "array", "items": [TEXT]}, {"type": "array", "items": ANYTHING}),
    "a map of objects": ({"type": "object", "additionalProperties": {"type": "object"}}, OPEN),
    "names by patterns": (
        {"type": "object", "patternProperties": {"^a": TEXT}, "additionalProperties": False}, OPEN,
    ),
    "what has to be there, and is not named": (
        {"type": "object", "required": ["a"]},
        {**OPEN, "properties": {"a": ANYTHING}, "required": ["a"]},
    ),
    "required of draft 3": ({"type": "string", "required": True}, TEXT),
    "a pattern": ({"type": "string", "pattern": "^a"}, TEXT),
    "an exclusive bound": ({"type": "integer", "exclusiveMinimum": 1}, {"type": "integer"}),
    "a bound between integers": ({"type": "integer", "minimum": 0.5}, {"type": "integer"}),
    "a bound that is too large": ({"type": "number", "maximum": 2**60}, {"type": "number"}),
    "a format that is not known": ({"type": "string", "format": "made-up"}, TEXT),
    "alternatives": ({"type": "object", "anyOf": [{"required": ["a"]}]}, OPEN),
    "a default": (
        {"type": "string", "description": "B", "default": "x"},
        {"type": "string", "description": 'B. Default: "x"'},
    ),
    "elsewhere": ({"$ref": "http://x/y"}, ANYTHING),
    "a part of the document": ({"$ref": "#/definitions/t", "title": "T"}, {"title": "T", **TEXT}),
    "itself": ({"$ref": "#/definitions/s"}, ANYTHING),
    "nothing": (False, ANYTHING),
}  # fmt: skip


def form(schema: Any) -> Any:
    """Return the form of property `x` with this schema."""
    parts = {"t": TEXT, "s": {"$ref": "#/definitions/s"}}
    whole: Any = {"type": "object", "properties": {"x": schema}, "definitions": parts}
    return form_of(whole)["properties"]["x"]


@pytest.mark.parametrize("schema", SAME.values(), ids=SAME)
def test_what_a_crd_says_alike(schema):
    closed = {**schema, "additionalProperties": False} if "properties" in schema else schema
    assert form(closed) == schema


@pytest.mark.parametrize(("schema", "expected"), CHANGED.values(), ids=CHANGED)
def test_what_is_written_otherwise_or_left_out(schema, expected):
    assert form(schema) == expected


WIDE = {f"d{one}": {"properties": {side: {"$ref": f"#/definitions/d{one + 1}"} for side in "ab"}}
        for one in range(20)}  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [
        None, "no", {}, {"type": "string"}, {"$ref": "#"}, {"allOf": [{"type": "object"}]},
        {"type": "object", "description": "x" * 70_000},
        {"definitions": WIDE, "$ref": "#/definitions/d0"},
    ],
)  # fmt: skip
def test_what_says_nothing_or_too_much_is_any_object(schema):
    assert form_of(schema) == FREE


def test_what_is_too_deep_may_be_anything():
    schema: Any = TEXT
    for _ in range(30):
        schema = {"type": "object", "properties": {"a": schema}}
    found: Any = form_of(schema)
    for _ in range(25):
        found = found["properties"]["a"]
    assert found == ANYTHING


def as_schema(form: Any) -> Any:
    """Return what an API server accepts, as a schema of draft 4."""
    found = {key: value for key, value in form.items() if not key.startswith("x-")}
    if INT_OR_STRING in form:
        found["type"] = ["integer", "string"]
    if found.pop("nullable", False) and "type" in found:
        kind = found["type"]
        found["type"] = [*(kind if isinstance(kind, list) else [kind]), "null"]
    if "properties" in form:
        found["properties"] = {key: as_schema(one) for key, one in form["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in form:
            found[key] = as_schema(form[key])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_form_accepts_what_its_schema_does(seed):
    random = Catalogues(seed)
    schema = random.parameters()
    accepts = Draft4Validator(as_schema(form_of(schema)))
    for value in random.fitting(schema, tries=6):
        accepts.validate(value)
    assert list(stricter(form_of(schema), form_of(schema), "p")) == []


def closed(**properties: Any) -> Any:
    return {"properties": properties, "additionalProperties": False}


NARROWS: dict[str, tuple[Any, Any, list[str]]] = {
    "another type": ({"type": "integer"}, TEXT, ["its type is new"]),
    "a type at last": ({}, TEXT, ["its type is new"]),
    "a wider type": ({"type": "integer"}, {"type": "number"}, []),
    "no type any more": (TEXT, {}, []),
    "no null": ({"type": ["string", "null"]}, TEXT, ["that it is not null is new"]),
    "a lower bound": ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 2},
                      ["its maxLength is new"]),
    "a wider bound": ({"type": "string", "minLength": 3}, {"type": "string", "minLength": 2}, []),
    "a format": (TEXT, {"type": "string", "format": "uuid"}, ["its format is new"]),
    "a value more": ({"enum": ["a"]}, {"enum": ["a", "b"]}, []),
    "within a list": ({"items": {}}, {"items": TEXT}, [".[]: its type is new"]),
    "no property any more": (closed(a=TEXT), closed(), [".a: that it is no parameter is new"]),
    "a property more": (closed(), closed(a=TEXT), []),
    "no others": ({"properties": {"a": {}}}, closed(a={}), ["has no other properties is new"]),
    "a map of something else": ({"additionalProperties": {"type": "integer"}},
                                {"additionalProperties": TEXT}, [".*: its type is new"]),
    "a map at last": ({"type": "object"}, {"additionalProperties": TEXT}, [".*: its type is new"]),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), NARROWS.values(), ids=NARROWS)
def test_what_narrows_is_said_with_its_place(old, new, said):
    found = list(stricter(form(new), form(old), "x"))
    assert len(found) == len(said)
    assert all(part in one for part, one in zip(said, found, strict=True))
