"""Reads JSON values, and documents, into dataclasses, and reports the place of each mistake.

No message holds a value: what stands in the wrong place may be a secret.
"""

import json
import math
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from pydantic import GetPydanticSchema, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, SchemaValidator, core_schema

from reconciler.core.errors import ConfigError
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

_VERSION: Final = re.compile(r"([0-9]{1,9})\.[0-9]{1,9}")
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
    """A value does not fit its field. `problem` goes after its name: `must be text`."""

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
        """Return a JSON value as a dataclass; keys without a field are ignored. Raises Mismatch."""
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


@dataclass(frozen=True)
class Format(Generic[T]):
    """A format of JSON documents, with the version 1.2 or, for a number, 1.

    A new minor version adds fields, which are ignored; a new major one breaks. `noun` is what
    people call a document, and `hint` says how one is made.
    """

    name: str
    version: str | int
    noun: str
    hint: str
    wanted: type[T]

    def read(self, content: bytes | str, path: str) -> tuple[Manifest, T]:
        """Return a document, as it stands there and typed. `path` names the file in errors.

        Raises ConfigError with the place.
        """
        found = self._parsed(content, path)
        if not isinstance(found, dict) or found.get("format") != self.name:
            raise self.refusal(path, "it is another document")
        version = found.get("version")
        if type(version) is not type(self.version) or not (major := _major(version)):
            wrong = f"must be a version, such as {self.version}"
            raise ConfigError(wrong, where=f"{path}: /version")
        if major != (ours := _major(self.version)):
            raise ConfigError(
                f"{self.noun} of version {version}, and this klutchctl reads {ours}",
                where=path,
                hint="Read it with the klutchctl that wrote it, or make a new one",
            )
        try:
            return found, self._reader.read(found)
        except Mismatch as error:
            raise self.refusal(f"{path}: {error.pointer}", f"it {error.problem}") from None

    def refusal(self, where: str, why: str) -> ConfigError:
        return ConfigError(f"not {self.noun}, as {why}", where=where, hint=self.hint)

    @cached_property
    def _reader(self) -> Reader[T]:
        return Reader(self.wanted)

    def _parsed(self, content: bytes | str, path: str) -> JSON:
        try:
            text = content if isinstance(content, str) else content.decode("utf-8-sig")
            found: JSON = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        except RecursionError:
            problem = path, "it is nested too deeply"
        except json.JSONDecodeError as error:
            problem = f"{path}:{error.lineno}:{error.colno}", f"it is not JSON: {error.msg}"
        except UnicodeDecodeError:
            problem = path, "it is not UTF-8 text"
        except ValueError:  # a number that JSON does not have, or of thousands of digits
            problem = path, "it has a number that cannot be read"
        else:
            return found
        # Raised out here: as its context, the error of before would carry the content along.
        raise self.refusal(*problem)


def _major(version: JSON) -> str:
    """Return the major version, "" without one."""
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return str(version) if isinstance(version, int) else found[1] if found else ""


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)  # NaN, the infinities, and what is too large for a number


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)
