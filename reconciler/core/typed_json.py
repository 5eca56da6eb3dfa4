"""Reads JSON values into dataclasses by field types, and reports the place of each mistake.

No message holds a value: what stands in the wrong place may be a secret.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from pydantic import GetPydanticSchema, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, SchemaValidator, core_schema

from reconciler.core.manifest import JSON, Manifest
from reconciler.core.times import parse_time

T = TypeVar("T")

# Taken as they are: whatever objects hold, their depth is bounded where they are parsed.
AnyJSON: TypeAlias = Annotated[JSON, GetPydanticSchema(lambda *_: core_schema.any_schema())]
JSONObject: TypeAlias = Annotated[
    Manifest, GetPydanticSchema(lambda *_: core_schema.is_instance_schema(dict))
]

# A time with its zone; as whole seconds or finer.
Moment: TypeAlias = Annotated[
    datetime,
    GetPydanticSchema(
        lambda *_: core_schema.no_info_after_validator_function(
            parse_time, core_schema.str_schema()
        )
    ),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

_WANTED: Final = {
    "string_type": "text",
    "int_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "list_type": "a list",
    "is_instance_of": "an object",
    "dataclass_type": "an object",
    "dict_type": "an object",
    "mapping_type": "an object",
}


@dataclass(frozen=True, slots=True)
class Mismatch(Exception):
    """A value is not what its field takes. `problem` goes after its name: `must be text`."""

    steps: tuple[str | int, ...]
    problem: str

    @property
    def pointer(self) -> str:
        """The place as a JSON pointer; a key that cannot be printed is escaped."""
        return "".join(f"/{_printable(step)}" for step in self.steps)


def _printable(step: str | int) -> str:
    escaped = str(step).replace("~", "~0").replace("/", "~1")
    return escaped if escaped.isprintable() else ascii(escaped)


class Reader(Generic[T]):
    """Reads JSON values into one type."""

    def __init__(self, wanted: type[T]) -> None:
        self._validator = SchemaValidator(_exact(TypeAdapter(wanted).core_schema))

    def read(self, value: JSON) -> T:
        """Return what a JSON value says; keys that no field has are ignored. Raises Mismatch."""
        try:
            typed: T = self._validator.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        else:
            return typed
        # Raised out here: as its context, the error of pydantic would carry the content along.
        raise Mismatch(first["loc"], _problem(first))


def _exact(schema: Any) -> Any:
    """Return a schema of pydantic whose numbers and flags are not read from each other or text.

    Its own strict mode would also refuse what JSON has no other form for: a list for a tuple, an
    object for a dataclass.
    """
    match schema:
        case {"type": "int" | "bool"}:
            return {**schema, "strict": True}
        case dict():
            return {key: _exact(value) for key, value in schema.items()}
        case list():
            return [_exact(value) for value in schema]
        case _:
            return schema


def _problem(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == "missing":
        return "is missing"
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "enum":
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        return f"must be one of {words}"
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    return f"must be {_WANTED[kind]}" if kind in _WANTED else "has another form"
