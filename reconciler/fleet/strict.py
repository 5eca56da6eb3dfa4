"""What all models of a fleet's documents share: unknown keys, nulls and odd types are refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from reconciler.fleet.formats import Labels, Name, refused


class Strict(BaseModel):
    """A mapping in which an unknown key is an error. Keys are camelCase."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        strict=True,
        validate_by_name=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: Any) -> Any:
        """Refuse a key without a value: it could mean the default, or nothing at all."""
        if value is None:
            raise refused("has no value", code="wrong-type")
        return value


class Metadata(Strict):
    """The name of a document, unique among those of its kind."""

    name: Name


class LabelledMetadata(Metadata):
    """A name, and labels to select by."""

    labels: Labels = {}


@dataclass(frozen=True, slots=True)
class Shorthand:
    """A value of another JSON type that `expand` makes into the real one."""

    json_type: str
    expand: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": self.json_type}, handler(schema)]}
