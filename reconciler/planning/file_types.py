"""Types of plan values whose form in a file is not that of their fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from pydantic import GetPydanticSchema
from pydantic_core import core_schema

from reconciler.core.patches import FieldChange
from reconciler.core.refs import Kind, Ref
from reconciler.core.typed_json import AnyJSON


def _stands_as(form: type, value: Callable[[Any], object]) -> GetPydanticSchema:
    """Return the annotation of a value that is made of another form."""
    return GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(
            value, handler.generate_schema(form)
        )
    )


@dataclass(frozen=True, slots=True)
class _FlatRef:
    cluster: str
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    namespace: str
    name: str

    def ref(self) -> Ref:
        kind = Kind(self.group, self.version, self.kind, self.plural, self.namespaced)
        return Ref(self.cluster, kind, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class _Field:
    path: str
    before: AnyJSON = None
    after: AnyJSON = None

    def change(self) -> FieldChange:
        return FieldChange(self.path, self.before, self.after)


FlatRef: TypeAlias = Annotated[Ref, _stands_as(_FlatRef, _FlatRef.ref)]
Field: TypeAlias = Annotated[FieldChange, _stands_as(_Field, _Field.change)]
UNSAVED: Final = GetPydanticSchema(lambda *_: core_schema.none_schema())
