"""Translates what a model refuses to problems in our words, each with its place in the text.

No message holds a value, which may be a secret in the wrong place, but a word where one of a few
is wanted. Keys and allowed values do.
"""

import re
import typing
from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from reconciler.core.problems import Problem
from reconciler.core.yaml_text import Fields, Items, Node, Scalar, Shape, child, kind_of, locate
from reconciler.fleet import wording

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
_NO_VALUE: Final = "Leave the key out, or write [] or {} for nothing"


def problems_of(error: ValidationError, node: Node, model: type[BaseModel]) -> list[Problem]:
    """Return what `model` refused in `node`."""
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
        return Problem(origin, "unknown-key", message, wording.nearest(key, _keys_at(model, steps)))
    if kind == "missing":
        return Problem(origin, "missing-field", f"{name} is required")
    if kind in _WANTED:
        hint = _type_hint(found, _WANTED[kind])
        message = f"{name} must be {_WANTED[kind]}, and is {kind_of(found)}"
        return Problem(origin, "wrong-type", message, hint)
    if kind == "refused":
        if context["key"] and isinstance(found, Fields):
            name = f"{name}: key {wording.quoted(context['key'])}"
            origin = found.key_origins.get(context["key"], origin)
        hint = _NO_VALUE if isinstance(found, Scalar) and found.shape is Shape.NULL else ""
        return Problem(origin, context["code"], f"{name} {context['text']}", hint)
    return _value_problem(kind, context, found, name)


def _value_problem(kind: str, context: dict[str, Any], found: Node, name: str) -> Problem:
    if kind == "literal_error":
        allowed = str(context["expected"]).replace("'", "").replace("True", "true")
        words = allowed.replace(" or ", ", ").split(", ")
        text = found.text if isinstance(found, Scalar) else ""
        hint = wording.nearest(text, words) if len(words) > 1 else ""
        hint = hint if hint.startswith("Did") else ""
        said = f"is {text}, and " if _WORD.fullmatch(text) else ""
        return Problem(found.origin, "not-one-of", f"{name} {said}must be {allowed}", hint)
    limits = {
        "too_short": "must not be empty",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
    }
    return Problem(found.origin, "bad-value", f"{name} {limits.get(kind, 'cannot be used')}")


def _type_hint(found: Node, wanted: str) -> str:
    quotable = isinstance(found, Scalar) and found.shape in (Shape.NUMBER, Shape.FLAG)
    return "Put it in quotes" if quotable and wanted == "text" else ""


def path_text(node: Node, steps: Sequence[str | int]) -> str:
    """Return the path as people write it, as `spec.include[0]`, without what is only implied."""
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


def _keys_at(model: type[BaseModel], steps: Sequence[str | int]) -> list[str]:
    """Return the keys that are known where the last of `steps` is not."""
    for step in steps[:-1]:
        for name, field in model.model_fields.items():
            if step == (field.alias or name):
                model = _model_in(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(part) for part in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)
