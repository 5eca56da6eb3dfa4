"""The base of all models of fleet documents: strict mappings, text formats, and mistakes.

A form is checked after `${...}` was replaced. Text that still has a `${` passes: that reference
is replaced per cluster and checked then (`problem_of`). No message quotes the text, but a word
where one of a few is wanted. Keys and allowed values are quoted.
"""

import functools
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictStr,
    ValidationError,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from reconciler.core.errors import Origin, Problem
from reconciler.core.yaml_text import Fields, Items, Node, Scalar, Shape, child, kind_of, locate
from reconciler.fleet import wording

REFERENCE_MARK: Final = "${"

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_UID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def refused(
    message: str, *, code: str = "bad-value", key: str = "", meant: str = ""
) -> PydanticCustomError:
    """Return the error of a validator. `message` goes on from the name of the field.

    `key` says which key of a mapping is meant, `meant` what most likely was to be there.
    """
    details = {"code": code, "text": message, "key": key, "meant": meant}
    return PydanticCustomError("refused", "refused", details)


@dataclass(frozen=True, slots=True)
class Form:
    """Text that matches a regular expression as a whole, with at most `most` characters.

    `nearest` makes of other text what may have been meant.
    """

    pattern: str
    rule: str
    most: int = 253
    nearest: Callable[[str], str] = str

    def problem_of(self, text: str) -> str:
        """Return why `text` has not this form, or ""."""
        if len(text) > self.most:
            return f"is longer than {self.most} characters"
        return "" if re.fullmatch(self.pattern, text) else f"is not {self.rule}"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        fits = rf"^(?=.{{0,{self.most}}}$)({self.pattern})$"
        return handler(schema) | {"pattern": rf"{fits}|\$\{{"}

    def _check(self, text: str) -> str:
        if REFERENCE_MARK not in text and (problem := self.problem_of(text)):
            meant = self.nearest(text)
            raise refused(problem, meant="" if self.problem_of(meant) else meant)
        return text


NAME: Final = Form(_LABEL, "made of a-z, 0-9 and inner dashes", most=40, nearest=wording.as_label)
OBJECT: Final = Form(rf"\*|{_SUBDOMAIN}", 'the name of an object, or "*"')
LABEL_KEY: Final = Form(rf"({_SUBDOMAIN}/)?{_QUALIFIED}", "a label key", most=317)
LABEL_VALUE: Final = Form(f"({_QUALIFIED})?", "a label value", most=63)


def _check_url(text: str) -> str:
    if REFERENCE_MARK in text:
        return text
    try:
        url = urlsplit(text)
        fit = url.scheme == "https" and bool(url.hostname) and url.port != 0
    except ValueError:
        fit = False
    if not fit or not re.fullmatch("[!-~]+", text):
        raise refused("is not an https:// address")
    if "@" in url.netloc:
        raise refused("contains a user name or password; a repository never contains credentials")
    if "?" in text or "#" in text:
        raise refused("must end with the path: the address of an API server has no query")
    return text


def path_problem(path: str) -> str:
    """Return why `path` cannot name a file of the repository, or ""."""
    if not path:
        return "is empty"
    if _CONTROL.search(path):
        return "contains a control character or a backslash"
    if path.startswith("/") or re.match("[A-Za-z]:", path):
        return "is absolute, and must be relative to the repository"
    segments = path.split("/")
    if ".." in segments:
        return "leaves the repository"
    return "contains an empty name or a `.`" if "" in segments or "." in segments else ""


def pattern_problem(text: str) -> str:
    """Return why `text` is not a pattern, or ""."""
    if problem := path_problem(text):
        return problem
    if any("**" in segment and segment != "**" for segment in text.split("/")):
        return "uses ** beside other characters; ** stands alone between slashes"
    return ""


def _check_path(text: str) -> str:
    if REFERENCE_MARK not in text and (problem := path_problem(text)):
        raise refused(problem, code="bad-path")
    return text


def _check_pattern(text: str) -> str:
    if problem := pattern_problem(text):
        raise refused(problem, code="bad-path")
    return text


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if LABEL_KEY.problem_of(key) or len(key.rpartition("/")[2]) > 63:
            raise refused("is not a label key", key=key)
        if REFERENCE_MARK not in value and (problem := LABEL_VALUE.problem_of(value)):
            raise refused(problem, key=key)
    return labels


Name: TypeAlias = Annotated[StrictStr, NAME]
DnsLabel: TypeAlias = Annotated[StrictStr, Form(NAME.pattern, NAME.rule, most=63)]
Subdomain: TypeAlias = Annotated[
    StrictStr, Form(_SUBDOMAIN, "made of a-z, 0-9, inner dashes and dots")
]
SecretKey: TypeAlias = Annotated[StrictStr, Form("[-._a-zA-Z0-9]+", "a key of a Secret")]
# Groups and plurals are as in the CRDs (protocol-bind A); the core group is "".
_GROUP: Final = rf"[a-z0-9]([-a-z0-9]*[a-z0-9](\.{_LABEL})*)?"
_A_GROUP: Final = f"an API group as the CRDs of Klutch take it, {_GROUP}"
Group: TypeAlias = Annotated[StrictStr, Form(_GROUP, _A_GROUP)]
GroupOrCore: TypeAlias = Annotated[StrictStr, Form(f"({_GROUP})?", _A_GROUP)]
Plural: TypeAlias = Annotated[
    StrictStr,
    Form(
        "[a-z][-a-z0-9]*[a-z0-9]",
        "the plural name of a resource",
        most=63,
        nearest=wording.as_plural,
    ),
]
Version: TypeAlias = Annotated[StrictStr, Form(_LABEL, "an API version", most=63)]
Uid: TypeAlias = Annotated[
    StrictStr, Form(_UID, "a uid such as 6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11")
]
Image: TypeAlias = Annotated[
    StrictStr, Form("[A-Za-z0-9][-A-Za-z0-9._/:@]*", "a container image", most=1024)
]
Line: TypeAlias = Annotated[
    StrictStr,
    Form(r"[^\u0000-\u001f\u007f-\u009f]+", "one line of text without control characters"),
]
ObjectName: TypeAlias = Annotated[StrictStr, OBJECT]
LabelKey: TypeAlias = Annotated[StrictStr, LABEL_KEY]
LabelValue: TypeAlias = Annotated[StrictStr, LABEL_VALUE]
Url: TypeAlias = Annotated[StrictStr, AfterValidator(_check_url)]
FilePath: TypeAlias = Annotated[StrictStr, AfterValidator(_check_path)]
PathPattern: TypeAlias = Annotated[StrictStr, AfterValidator(_check_pattern)]
Labels: TypeAlias = Annotated[dict[StrictStr, StrictStr], AfterValidator(_check_labels)]


class StrictModel(BaseModel):
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


class Metadata(StrictModel):
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


_WANTED: Final = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
# A word like those that are allowed; a credential is none.
_WORD: Final = re.compile("[A-Za-z]{1,20}")
_SELECTING: Final = frozenset({"names", "exclude"})  # keys that only selectors have both
_NAMES_SHOWN: Final = 3


def problems_of(error: ValidationError, node: Node, model: type[BaseModel]) -> list[Problem]:
    """Return the problems that `model` found in `node`."""
    details = error.errors(include_url=False, include_input=False)
    return [_problem(detail, node, model) for detail in details]


def _problem(error: ErrorDetails, node: Node, model: type[BaseModel]) -> Problem:
    steps, kind, context = error["loc"], error["type"], error.get("ctx", {})
    origin, found = locate(node, steps)
    name = path_text(node, steps)
    if kind == "extra_forbidden":
        key = str(steps[-1])
        holder = locate(node, steps[:-1])[1]
        origin = holder.key_origins.get(key, origin) if isinstance(holder, Fields) else origin
        place = path_text(node, steps[:-1])
        message = f"{place or 'a document'} has no key {wording.quoted(key)}"
        return Problem(origin, "unknown-key", message, _key_hint(key, _model_at(model, steps[:-1])))
    if kind == "missing":
        return Problem(origin, "missing-field", f"{name} is required")
    if kind in _WANTED:
        quotable = isinstance(found, Scalar) and found.shape in (Shape.NUMBER, Shape.FLAG)
        hint = "Put it in quotes" if quotable and kind == "string_type" else ""
        if kind == "model_type" and _model_at(model, steps).model_fields.keys() >= _SELECTING:
            hint = _names_hint(found, steps)
        message = f"{name} must be {_WANTED[kind]}, and is {kind_of(found)}"
        return Problem(origin, "wrong-type", message, hint)
    if kind == "refused":
        if context["key"] and isinstance(found, Fields):
            name = f"{name}: key {wording.quoted(context['key'])}"
            origin = found.key_origins.get(context["key"], origin)
        return _refused_problem(origin, context, found, (name, _keys(steps)))
    return _value_problem(kind, context, found, name)


def _refused_problem(
    origin: Origin, context: dict[str, Any], found: Node, place: tuple[str, Sequence[str]]
) -> Problem:
    """Return the problem of a validator; it quotes a text that names something."""
    name, keys = place
    hint = ""
    if isinstance(found, Scalar) and found.shape is Shape.NULL:
        hint = "Leave the key out, or write [] or {} for nothing"
    elif isinstance(found, Scalar) and wording.is_name(keys, found.text):
        name = f"{name} {wording.quoted(found.text)}"
        hint = f"Did you mean {context['meant']}?" if context["meant"] else ""
    return Problem(origin, context["code"], f"{name} {context['text']}", hint)


def _keys(steps: Sequence[str | int]) -> list[str]:
    return [step for step in steps if isinstance(step, str)]


def _names_hint(found: Node, steps: Sequence[str | int]) -> str:
    """Return how names that stand alone are written, and which they are if they may be shown."""
    items = found.nodes if isinstance(found, Items) else (found,)
    texts = [one.text for one in items if isinstance(one, Scalar)]
    keys = [*_keys(steps), "names"]
    if not texts or len(texts) < len(items) or not all(wording.is_name(keys, one) for one in texts):
        return "Write {names: [...]}"
    more = ", ..." if len(texts) > _NAMES_SHOWN else ""
    return f"Write {{names: [{', '.join(texts[:_NAMES_SHOWN])}{more}]}}"


def _value_problem(kind: str, context: dict[str, Any], found: Node, name: str) -> Problem:
    if kind == "literal_error":
        allowed = str(context["expected"]).replace("'", "").replace("True", "true")
        words = allowed.replace(" or ", ", ").split(", ")
        text = found.text if isinstance(found, Scalar) else ""
        hint = wording.nearest(text, words) if len(words) > 1 else ""
        hint = hint if hint.startswith("Did") else ""
        prefix = f"is {text}, and " if _WORD.fullmatch(text) else ""
        return Problem(found.origin, "not-one-of", f"{name} {prefix}must be {allowed}", hint)
    limits = {
        "too_short": "must not be empty",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "string_too_long": f"must have at most {context.get('max_length')} characters",
    }
    return Problem(found.origin, "bad-value", f"{name} {limits.get(kind, 'cannot be used')}")


def path_text(node: Node, steps: Sequence[str | int]) -> str:
    """Return the path as people write it, as `spec.include[0]`, without implied parts."""
    text = ""
    holder: Node | None = node
    for step in steps:
        inner = child(holder, step)
        implied = inner is None and not (isinstance(step, str) and isinstance(holder, Fields))
        implied = implied or (isinstance(step, int) and not isinstance(holder, Items))
        if implied:
            continue
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
        holder = inner
    return text.removeprefix(".")


def keys_of(model: type[BaseModel], *steps: str | int) -> frozenset[str]:
    """Return the keys that are known in the mapping at `steps`."""
    return frozenset(_models_in(_model_at(model, steps)))


def _key_hint(key: str, model: type[BaseModel]) -> str:
    """Return the likely spelling of a key that the mapping of `model` does not have."""
    inner = _models_in(model)
    if below := [name for name, one in inner.items() if one is not None and key in _models_in(one)]:
        return f"It belongs below {below[0]}: indent it there"
    return wording.nearest(key, inner)


def _model_at(model: type[BaseModel], steps: Sequence[str | int]) -> type[BaseModel]:
    for step in steps:
        model = _models_in(model).get(str(step)) or model
    return model


@functools.cache
def _models_in(model: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """Return the keys of a mapping, and the mapping that stands at each, if it is one."""
    fields = model.model_fields.items()
    return {field.alias or name: _model_in(field.annotation) for name, field in fields}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(part) for part in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)
