"""From the text of a file to documents whose form is right, each fact with its place.

Where a text depends on the cluster that a Binding is for, its form is checked with a stand-in
here, and again when each cluster is known (`late`). No message about a form holds a value,
which may be a secret in the wrong place, but a word where one of a few is wanted. Keys and allowed
values do.
"""

import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from reconciler.core import yaml_text
from reconciler.core.errors import Origin, Problem
from reconciler.core.manifest import JSON
from reconciler.core.yaml_text import (
    Fields,
    Items,
    Node,
    Scalar,
    Shape,
    UnreadableText,
    child,
    kind_of,
    locate,
)
from reconciler.fleet import wording
from reconciler.fleet.documents import base_model, parsing, substitution
from reconciler.fleet.documents.base_model import StrictModel
from reconciler.fleet.documents.models import API_VERSION, KINDS
from reconciler.fleet.documents.substitution import Scope

M = TypeVar("M", bound=StrictModel)

_RANCHER_KEYS: Final = frozenset(
    {"defaultNamespace", "helm", "kustomize", "namespace", "targetCustomizations", "yaml"}
)
# Keys of spec whose references are replaced per cluster, and those where none may stand.
_LATE: Final = {
    "Fleet": frozenset({"konnector"}),
    "Binding": frozenset({"parameters", "claims"}),
    "Template": frozenset({"claims"}),
}
_LITERAL: Final = {
    "Fleet": frozenset({"include", "vars"}),
    "ControlPlane": frozenset({"caFile"}),
    "Cluster": frozenset({"caFile"}),
}


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as it is written. `name` is "" where it has no usable one."""

    kind: str
    name: str
    origin: Origin  # of the name
    node: Fields

    def at(self, *steps: str | int) -> Origin:
        """Return where the value at these keys and indices stands, or what would hold it."""
        return locate(self.node, steps)[0]

    def node_at(self, *steps: str | int) -> Node | None:
        """Return the node at these keys and indices, or None."""
        node: Node | None = self.node
        for step in steps:
            node = child(node, step)
        return node


@dataclass(frozen=True, slots=True)
class Document(RawDocument, Generic[M]):
    """A document whose form is right."""

    model: M

    @classmethod
    def of(cls, raw: RawDocument, model: M) -> "Document[M]":
        """Return the document that `raw` is, read as `model`."""
        return cls(raw.kind, raw.name, raw.origin, raw.node, model)


def read_documents(path: str, content: bytes, problems: list[Problem]) -> list[RawDocument] | None:
    """Return the documents of a file, without those that cannot be one; None if it is no YAML."""
    try:
        nodes = yaml_text.read_all(content, path)
    except UnreadableText as error:
        problems.append(_unreadable(error, content))
        return None
    found = (_raw(node, problems) for node in nodes)
    return [raw for raw in found if raw is not None]


def _unreadable(error: UnreadableText, content: bytes) -> Problem:
    message = error.message
    if error.code == "duplicate-key" and (key := wording.word_at(content, error.origin)):
        message = f"the key {wording.quoted(key)} is there twice"
    return Problem(error.origin, error.code, message, error.hint)


def _raw(node: Node, problems: list[Problem]) -> RawDocument | None:
    if not isinstance(node, Fields):
        message = f"a document must be a mapping, and is {yaml_text.kind_of(node)}"
        problems.append(Problem(node.origin, "wrong-type", message))
        return None
    problem = _header_problem(node)
    if problem is not None:
        problems.append(problem)
        return None
    name = child(child(node, "metadata"), "name")
    origin = node.origin if name is None else name.origin
    text = _text(name)
    return RawDocument(_text(node.nodes["kind"]), text if _is_name(text) else "", origin, node)


def _header_problem(node: Fields) -> Problem | None:
    if not node.nodes.keys() & {"apiVersion", "kind"} and node.nodes.keys() & _RANCHER_KEYS:
        return Problem(
            node.origin,
            "rancher-fleet",
            "this is a fleet.yaml of Rancher Fleet, not of klutchctl",
            "Put the documents of klutchctl into klutch-fleet.yaml",
        )
    for key in ("apiVersion", "kind"):
        if key not in node.nodes:
            return Problem(node.origin, "missing-field", f"{key} is required")
    if _text(node.nodes["apiVersion"]) != API_VERSION:
        origin, message = node.at("apiVersion"), f"apiVersion is not {API_VERSION}"
        hint = "An include must match documents of klutchctl only"
        return Problem(origin, "unknown-api-version", message, hint)
    kind = _text(node.nodes["kind"])
    if kind in KINDS:
        return None
    message = f"there is no kind {wording.quoted(kind)}" if kind else "kind must be text"
    return Problem(node.at("kind"), "unknown-kind", message, wording.nearest(kind, KINDS))


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) and node.shape is Shape.TEXT else ""


def _is_name(text: str) -> bool:
    return not base_model.NAME.problem_of(text)


def without_duplicates(
    documents: Sequence[RawDocument], problems: list[Problem]
) -> list[RawDocument]:
    """Return the documents by place; of two with one kind and name, the second is a problem."""
    found: list[RawDocument] = []
    seen: dict[tuple[str, str], RawDocument] = {}
    for document in sorted(documents, key=lambda document: document.origin):
        first = (
            seen.setdefault((document.kind, document.name), document) if document.name else document
        )
        if first is document:
            found.append(document)
        else:
            message = f"{document.kind} {document.name} is there twice: also at {first.origin}"
            problems.append(Problem(document.origin, "duplicate-document", message))
    return found


def labels_of(raw: RawDocument) -> dict[str, str]:
    """Return metadata.labels, as far as they are text."""
    return _texts(raw.node_at("metadata", "labels"))


def variables_of(raw: RawDocument) -> dict[str, str]:
    """Return spec.vars, as far as they are text."""
    return _texts(raw.node_at("spec", "vars"))


def _texts(node: Node | None) -> dict[str, str]:
    if not isinstance(node, Fields):
        return {}
    return {
        key: item.text
        for key, item in node.nodes.items()
        if isinstance(item, Scalar) and item.shape is Shape.TEXT
    }


def document(
    raw: RawDocument, model: type[M], *, scope: Scope, problems: list[Problem]
) -> Document[M] | None:
    """Return the document with the references of `scope` replaced, or None and problems."""
    assert KINDS[raw.kind] is model
    found: list[Problem] = []
    try:
        plain = _plain(raw, scope, found)
        read = model.model_validate(plain, by_alias=True, by_name=False)
    except UnreadableText as error:
        found.append(Problem(error.origin, error.code, error.message, error.hint))
    except ValidationError as error:
        known = {problem.origin for problem in found}
        refused = parsing.problems_of(error, raw.node, model)
        found.extend(problem for problem in refused if problem.origin not in known)
    problems.extend(found)
    return None if found else Document.of(raw, read)


def late(node: Node, model: type[M], *, scope: Scope, problems: list[Problem]) -> M | None:
    """Return the part of a document that `node` is, for one cluster, or None and problems."""
    found: list[Problem] = []
    plain = substitution.resolve(node, scope, found)
    try:
        if not found:
            return model.model_validate(plain, by_alias=True, by_name=False)
    except ValidationError as error:
        found.extend(parsing.problems_of(error, node, model))
    problems.extend(found)
    return None


def _plain(raw: RawDocument, scope: Scope, problems: list[Problem]) -> dict[str, JSON]:
    plain: dict[str, JSON] = {}
    for key, node in raw.node.nodes.items():
        if key == "spec" and isinstance(node, Fields):
            plain[key] = _spec(raw.kind, node, scope, problems)
        else:
            plain[key] = substitution.resolve(node, None, problems)
    return plain


def _spec(kind: str, node: Fields, scope: Scope, problems: list[Problem]) -> dict[str, JSON]:
    late_scope = Scope(scope.variables, any_cluster=True)
    literal, late_keys = _LITERAL.get(kind, frozenset()), _LATE.get(kind, frozenset())
    plain: dict[str, JSON] = {}
    for key, child_node in node.nodes.items():
        inner = None if key in literal else late_scope if key in late_keys else scope
        plain[key] = substitution.resolve(child_node, inner, problems)
    return plain


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
