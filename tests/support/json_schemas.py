"""Random JSON schemas of all drafts, values that nearly fit them, and forms as JSON schemas."""

from typing import Any, Final

from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator

from reconciler.blueprints.offering import forms
from reconciler.core.manifest import JSON

NAMES: Final = ("a", "b", "max_size", "with space", "dotted.name", "if", "-", "1st", "$x")
TEXTS: Final = ("", "a", "ab", "abc", "small", "2026-01-01", "not a date")
PATTERNS: Final = ("^a", "b$", "^(a|b)+$", "^(?=a)", "[a-c]{1,3}", r"\d", "^(?!x)")
NUMBERS: Final = (-3, -1, 0, 1, 2, 5, 10, 0.5, -0.5, 2.5)
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")

values = st.recursive(
    st.sampled_from([None, True, False, *TEXTS, *NUMBERS]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)


def _scalars(types: Any) -> st.SearchStrategy[dict[str, Any]]:
    sharp = st.sampled_from(NUMBERS)
    return st.fixed_dictionaries(
        {"type": types},
        optional={
            "minimum": st.sampled_from(NUMBERS),
            "maximum": st.sampled_from(NUMBERS),
            "exclusiveMinimum": sharp,
            "exclusiveMaximum": sharp,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 4),
            "pattern": st.sampled_from(PATTERNS),
            "format": st.sampled_from(["date", "duration", "made-up", "int32"]),
            "enum": st.lists(
                st.sampled_from([*TEXTS, *NUMBERS, None, True]), min_size=1, max_size=4
            ),
            "default": values,
            "description": st.sampled_from(["A text.", "two\nlines\x07", "x" * 30]),
        },
    )


def _holders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = inner | st.booleans()
    several = st.lists(inner, min_size=1, max_size=3)
    properties = st.dictionaries(st.sampled_from(NAMES), schemas, max_size=3)
    objects = st.fixed_dictionaries(
        {"type": st.just("object") | st.just(["object", "null"]), "properties": properties},
        optional={
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "additionalProperties": schemas,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "e$"]), inner, max_size=1),
            "maxProperties": st.integers(0, 4),
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependencies": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
        },
    )
    lists = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": schemas | several,
            "additionalItems": schemas,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
            "contains": inner,
        },
    )
    mixed = st.fixed_dictionaries(
        {}, optional={"anyOf": several, "oneOf": several, "allOf": several, "const": values}
    )
    # None that leads to itself: validators follow those for ever.
    reference = st.sampled_from(["#/definitions/x", "#/definitions/y"])
    return objects | lists | mixed | st.fixed_dictionaries({"$ref": reference})


_one_type = st.sampled_from(_TYPES)
schemas = st.recursive(
    _scalars(_one_type | st.lists(_one_type, min_size=1, max_size=3, unique=True)),
    _holders,
    max_leaves=8,
)


@st.composite
def parameter_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return a schema of parameters, as a plan has it."""
    properties = st.dictionaries(st.sampled_from(NAMES), schemas, max_size=4)
    more = draw(_holders(schemas).filter(lambda one: one.get("type") == "object"))
    definitions = {name: draw(_scalars(_one_type)) for name in ("x", "y")}
    return {**more, "type": "object", "properties": draw(properties), "definitions": definitions}


def fits(value: JSON, schema: Any) -> bool:
    """Tell whether a schema, of draft 7, accepts a value."""
    return bool(Draft7Validator(schema).is_valid(value))


def accepts(form: forms.Form, value: JSON) -> bool:
    """Tell whether an API server would take a value of this form."""
    return bool(Draft4Validator(_as_schema(form)).is_valid(value))


def _as_schema(form: forms.Form) -> dict[str, Any]:
    found = {k: v for k, v in form.items() if not k.startswith("x-") and k != "format"}
    if forms.type_of(form) == forms.MIXED:
        found["type"] = ["integer", "string"]
    if found.pop("nullable", False):
        found["type"] = [
            *([found["type"]] if isinstance(found["type"], str) else found["type"]),
            "null",
        ]
    if "properties" in form:
        found["properties"] = {k: _as_schema(v) for k, v in forms.properties_of(form).items()}
    for key in ("items", "additionalProperties"):
        if key in form:
            found[key] = _as_schema(form[key])
    return found
