"""What of a JSON schema a CRD says, what is changed, and what is dropped with a warning."""

from typing import Any

import pytest
from jsonschema import Draft4Validator

from reconciler.blueprints.offering import forms
from reconciler.blueprints.offering.forms import ANYTHING
from reconciler.blueprints.offering.json_schema import read
from tests.support.random_catalogues import Catalogues

OPEN = {"type": "object", forms.OPEN: True}


def reading(schema):
    """Return the form of property `x` with this schema, and what is noted."""
    read_ = read({"type": "object", "properties": {"x": schema}}, "p")
    return forms.finished(read_.form)["properties"]["x"], [
        f"{n.path}: {n.what}" for n in read_.notes
    ]


TEXT = {"type": "string"}
SAME: dict[str, Any] = {
    "a text with bounds": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a+$"},
    "a number with bounds": {"type": "number", "minimum": 0.5, "maximum": 9},
    "an integer that is a multiple": {"type": "integer", "multipleOf": 5},
    "a format that both know": {"type": "string", "format": "date-time"},
    "a list of values": {"type": "string", "enum": ["a", "b"]},
    "a closed object": {"type": "object", "required": ["a"], "properties": {"a": TEXT}},
    "a map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
    "a list": {"type": "array", "items": TEXT, "minItems": 1},
    "words": {"title": "A", "description": "B.", "type": "boolean"},
    "an exclusive bound of draft 4": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
}
CHANGED: dict[str, tuple[Any, Any]] = {
    "a type with null": ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
    "an integer or a string": ({"type": ["integer", "string"]}, {forms.INT_OR_STRING: True}),
    "the same as alternatives": (
        {"oneOf": [{"type": "integer"}, TEXT]}, {forms.INT_OR_STRING: True},
    ),
    "a text or null": (
        {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        {"type": "string", "maxLength": 3, "nullable": True},
    ),
    "a number of either sort": ({"type": ["integer", "number"]}, {"type": "number"}),
    "const": ({"const": "a"}, {"type": "string", "enum": ["a"]}),
    "an exclusive bound of later drafts": (
        {"type": "integer", "exclusiveMinimum": 1},
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
    ),
    "bounds of an integer between integers": (
        {"type": "integer", "exclusiveMinimum": 0.5, "maximum": 2.5},
        {"type": "integer", "minimum": 1, "maximum": 2},
    ),
    "the same of allOf": (
        {"allOf": [{"type": "number", "maximum": 2.5}, {"type": "integer"}]},
        {"type": "integer", "maximum": 2},
    ),
    "the tighter one of two bounds": (
        {"type": "integer", "maximum": 5, "exclusiveMaximum": 9}, {"type": "integer", "maximum": 5},
    ),
    "a local reference": ({"$ref": "#/properties/x/definitions/y"}, ANYTHING),
    "allOf of objects": (
        {"allOf": [{"properties": {"a": TEXT}}, {"required": ["a"]}], "type": "object"},
        {**OPEN, "required": ["a"], "properties": {"a": TEXT}},
    ),
    "a type that properties mean": (
        {"properties": {"a": TEXT}}, {**OPEN, "properties": {"a": TEXT}},
    ),
    "a type that items mean": ({"items": TEXT}, {"type": "array", "items": TEXT}),
    "a type that bounds mean": ({"minimum": 1}, {"type": "number", "minimum": 1}),
    "a type that a pattern means": ({"pattern": "a"}, {"type": "string", "pattern": "a"}),
    "a type that values mean": ({"enum": [1, 2]}, {"type": "integer", "enum": [1, 2]}),
    "the same value twice": ({"enum": ["a", "a"]}, {"type": "string", "enum": ["a"]}),
    "no null among values": (
        {"type": ["string", "null"], "enum": ["a"]}, {"type": "string", "enum": ["a"]},
    ),
    "a default": (
        {"type": "integer", "default": 5, "description": "How many"},
        {"type": "integer", "description": "How many. Default: 5"},
    ),
    "other properties, by silence": ({"type": "object"}, OPEN),
    "other properties, by word": ({"type": "object", "additionalProperties": True}, OPEN),
    "no other properties": ({"type": "object", "additionalProperties": False}, {"type": "object"}),
    "what is required and not named": (
        {"type": "object", "required": ["a"]},
        {**OPEN, "required": ["a"], "properties": {"a": ANYTHING}},
    ),
    "nothing at all": ({}, ANYTHING),
    "true": (True, ANYTHING),
    "words that do not print": (
        {"type": "string", "description": "a\x07b\n c"}, {"type": "string", "description": "a b c"},
    ),
    "annotations of others": ({"type": "string", "x-order": 3, "examples": ["a"]}, TEXT),
}  # fmt: skip
MIX = "any mix of its alternatives is accepted"
LOOSENED: dict[str, tuple[Any, Any, str]] = {
    "a format that is unknown": (
        {"type": "string", "format": "sha1"}, TEXT, "p.x: format sha1: dropped",
    ),
    "a pattern that RE2 does not know": (
        {"type": "string", "pattern": "^(?!a)"}, TEXT,
        "p.x: pattern: dropped, as it is none for sure to an API server (RE2)",
    ),
    "anyOf": (
        {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "maxLength": 4}]},
        {"type": "string", "maxLength": 4}, f"p.x: anyOf: {MIX}",
    ),
    "oneOf, of which properties are lifted": (
        {"oneOf": [
            {"properties": {"kind": {"const": "a"}, "a": TEXT}, "required": ["kind", "a"]},
            {"properties": {"kind": {"const": "b"}, "b": TEXT}, "required": ["kind", "b"]},
        ]},
        {**OPEN, "required": ["kind"], "properties": {
            "a": ANYTHING, "b": ANYTHING, "kind": {"type": "string", "enum": ["a", "b"]},
        }},
        f"p.x: oneOf: {MIX}",
    ),
    "properties of closed alternatives keep their types": (
        {"oneOf": [
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
            {"type": "object", "properties": {"b": TEXT}, "additionalProperties": False},
        ]},
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}}, f"p.x: oneOf: {MIX}",
    ),
    "alternatives of several types": (
        {"anyOf": [TEXT, {"type": "boolean"}]}, ANYTHING, f"p.x: anyOf: {MIX}",
    ),
    "not": (
        {"type": "string", "not": {"const": "a"}}, TEXT, "p.x: not: what it excludes is accepted",
    ),
    "if": (
        {"type": "object", "if": {"required": ["a"]}, "then": {"properties": {"b": TEXT}}},
        {**OPEN, "properties": {"b": ANYTHING}}, "p.x: if: the condition is dropped",
    ),
    "dependencies": (
        {"type": "object", "dependencies": {"a": {"properties": {"b": TEXT}}}},
        {**OPEN, "properties": {"b": ANYTHING}}, "p.x: dependencies: the condition is dropped",
    ),
    "dependentRequired": (
        {"type": "object", "dependentRequired": {"a": ["b"]}}, OPEN,
        "p.x: dependentRequired: the condition is dropped",
    ),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^a": TEXT}, "additionalProperties": False},
        {"type": "object", "additionalProperties": TEXT},
        "p.x: patternProperties: names that fit no property are not checked",
    ),
    "propertyNames": (
        {"type": "object", "propertyNames": {"maxLength": 3}}, OPEN,
        "p.x: propertyNames: names are not checked",
    ),
    "a tuple": (
        {"type": "array", "items": [TEXT, {"type": "integer"}], "additionalItems": False},
        {"type": "array", "items": {forms.INT_OR_STRING: True}},
        "p.x: a schema for each place: any of them is accepted at any place",
    ),
    "uniqueItems": (
        {"type": "array", "items": TEXT, "uniqueItems": True}, {"type": "array", "items": TEXT},
        "p.x: uniqueItems: the same item may be there twice",
    ),
    "contains": (
        {"type": "array", "contains": TEXT}, {"type": "array", "items": ANYTHING},
        "p.x: contains: not checked",
    ),
    "other properties of a form, beside named ones": (
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
        {**OPEN, "properties": {"a": TEXT}},
        "p.x: additionalProperties: those beside named ones are not checked",
    ),
    "an external reference": (
        {"$ref": "http://a.example/schema"}, ANYTHING,
        "p.x: $ref leads elsewhere: anything is accepted",
    ),
    "a reference to a place of many digits": (
        {"anyOf": [], "$ref": f"#/properties/x/anyOf/{'9' * 5_000}"}, ANYTHING,
        "p.x: $ref leads elsewhere: anything is accepted",
    ),
    "recursion": ({"$ref": "#"}, ANYTHING, "p.x: $ref leads to itself: anything is accepted"),
    "what stands beside a reference": (
        {"$ref": "#", "maxLength": 3}, ANYTHING, "p.x: what stands beside $ref is dropped",
    ),
    "several types": (
        {"type": ["string", "boolean"]}, ANYTHING, "p.x: several types: anything is accepted",
    ),
    "a type of draft 3": (
        {"type": "any"}, ANYTHING, "p.x: a type that is none: anything is accepted",
    ),
    "a null among values": (
        {"type": ["string", "null"], "enum": ["a", None]}, {"type": "string", "nullable": True},
        "p.x: a list of values with null: other ones are accepted, too",
    ),
    "values of another type": (
        {"type": "string", "enum": [1]}, TEXT, "p.x: a list of values of another type: dropped",
    ),
    "values that are objects": (
        {"enum": [{"a": 1}]}, OPEN, "p.x: a list of objects: other ones are accepted, too",
    ),
    "a bound that is too large": (
        {"type": "integer", "maximum": 2**63}, {"type": "integer"},
        "p.x: maximum: dropped, as it is too large to be exact",
    ),
    "an exclusive bound between integers": (
        {"type": "number", "exclusiveMaximum": 0.5}, {"type": "number", "maximum": 0.5},
        "p.x: exclusiveMaximum: 0.5 itself is accepted",
    ),
    "a multiple of a fraction": (
        {"type": "number", "multipleOf": 0.1}, {"type": "number"},
        "p.x: multipleOf: dropped, as it is no whole number",
    ),
    "a count that is none": (
        {"type": "string", "maxLength": "9"}, TEXT, "p.x: maxLength: dropped, as it is no count",
    ),
    "required as in draft 3": (
        {"type": "object", "required": True}, OPEN,
        "p.x: required: dropped, as it is no list of names",
    ),
    "nothing fits": (
        False, ANYTHING, "p.x: no schema, one for nothing, or too deep: all is accepted",
    ),
    "allOf of two types": (
        {"allOf": [TEXT, {"type": "integer"}]}, TEXT,
        "p.x: allOf: nothing fits both of its types: the first one counts",
    ),
    "allOf of two patterns": (
        {"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, {"type": "string", "pattern": "a"},
        "p.x: allOf: the second pattern is dropped",
    ),
}  # fmt: skip


@pytest.mark.parametrize("schema", SAME.values(), ids=SAME)
def test_what_a_crd_says_alike(schema):
    closed = {"additionalProperties": False} if schema == SAME["a closed object"] else {}
    assert reading({**schema, **closed}) == (schema, [])


@pytest.mark.parametrize(("schema", "form"), CHANGED.values(), ids=CHANGED)
def test_what_is_written_otherwise(schema, form):
    found, notes = reading(schema)
    assert found == form
    assert notes == [] or "$ref" in schema


@pytest.mark.parametrize(("schema", "form", "note"), LOOSENED.values(), ids=LOOSENED)
def test_what_is_loosened_is_said(schema, form, note):
    found, notes = reading(schema)
    assert found == form
    assert note in notes


def test_a_local_reference_is_written_out():
    schema = {"properties": {"a": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": TEXT}}
    assert forms.finished(read(schema, "p").form) == {**OPEN, "properties": {"a": TEXT}}


FREE = {
    "no schema of an object": ({"type": "string"}, "no schema of an object"),
    "more than 64 kB": ({"description": "x" * 70_000}, "68 kB are too much"),
    "references that multiply": (
        {
            "$ref": "#/$defs/0",
            "$defs": {
                str(level): {"properties": {
                    str(place): {"$ref": f"#/$defs/{level + 1}"} for place in range(10)
                }}
                for level in range(9)
            },
        },
        "too much when its references are followed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "part"), FREE.values(), ids=FREE)
def test_what_cannot_be_said_at_all_is_free_form(schema, part):
    found = read(schema, "p")
    assert forms.finished(found.form) == OPEN
    assert [part in note.what for note in found.notes] == [True]


def test_what_is_too_deep_may_be_anything():
    schema: dict[str, Any] = dict(TEXT)
    for _ in range(40):
        schema = {"type": "object", "properties": {"a": schema}}
    found = read(schema, "p")
    assert forms.depth_of(found.form) == 24
    assert found.notes[-1].what == "too much: what is deeper than 24 levels is accepted as it is"


def as_schema(form):
    """Return what an API server accepts, as a schema of draft 4."""
    found = {key: value for key, value in form.items() if not key.startswith("x-")}
    if forms.type_of(form) == forms.MIXED:
        found["type"] = ["integer", "string"]
    if found.pop("nullable", False) and "type" in found:
        kind = found["type"]
        found["type"] = [*(kind if isinstance(kind, list) else [kind]), "null"]
    if "properties" in form:
        found["properties"] = {k: as_schema(v) for k, v in forms.properties_of(form).items()}
    for key in ("items", "additionalProperties"):
        if key in form:
            found[key] = as_schema(form[key])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_form_accepts_what_its_schema_does(seed):
    random = Catalogues(seed)
    schema = random.parameters()
    form = Draft4Validator(as_schema(read(schema, "p").form))
    for value in random.fitting(schema, tries=6):
        form.validate(value)
