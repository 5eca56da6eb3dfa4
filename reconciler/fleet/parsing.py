"""Parses files into documents of valid form, and records the place of each field.

`${cluster.name}`, `${cluster.labels.X}` and `${vars.X}` are replaced once, in text that is a value:
what a variable holds is not looked at again. `$${` is a plain `${`. Where a text depends on the
cluster that a Binding is for, its form is checked with a stand-in here, and again when each cluster
is known (`late`). No message quotes a text, which may be a secret in the wrong place, only what
stands between the braces.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

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
    locate,
)
from reconciler.fleet import base_model, wording
from reconciler.fleet.base_model import StrictModel
from reconciler.fleet.models import API_VERSION, KINDS, LONGEST

_PLACE: Final = re.compile(r"\$\$\{|\$\{(?P<name>[-A-Za-z0-9_./]{0,330})(?P<end>\})?")
_LABELS: Final = "cluster.labels."
_VARS: Final = "vars."
_KNOWN: Final = (
    "There are ${cluster.name}, ${cluster.labels.NAME} and ${vars.NAME}; write $${ for text"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The values that references stand for. `cluster` is "" where no one cluster is meant.

    `any_cluster`: which one is not known yet; a stand-in of one letter is put in.
    """

    variables: Mapping[str, str]
    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    any_cluster: bool = False


def replaced(node: Node, scope: Scope | None, problems: list[Problem]) -> JSON:
    """Return the node as JSON with its references replaced; a missing one is a problem.

    Without a scope each reference is one. Raises UnreadableText for .inf and .nan.
    """
    match node:
        case Fields():
            return {key: replaced(item, scope, problems) for key, item in node.nodes.items()}
        case Items():
            return [replaced(item, scope, problems) for item in node.nodes]
        case Scalar(shape=Shape.TEXT) if "${" in node.text:
            return _PLACE.sub(lambda place: _value(place, scope, node.origin, problems), node.text)
        case Scalar():
            return node.plain()


def copied(node: Node | None) -> int:
    """Return how many values are made of a node for each cluster; 0: without references, none."""
    inside = [] if node is None else [*_inside(node)]
    return len(inside) if any(isinstance(one, Scalar) and "${" in one.text for one in inside) else 0


def _inside(node: Node) -> Iterator[Node]:
    yield node
    if not isinstance(node, Scalar):
        for item in node.nodes.values() if isinstance(node, Fields) else node.nodes:
            yield from _inside(item)


def _value(
    place: re.Match[str], scope: Scope | None, origin: Origin, problems: list[Problem]
) -> str:
    name = place["name"]
    if name is None:
        return "${"
    if place["end"] is None:
        message = "a ${ is not followed by a name and a }"
        problems.append(Problem(origin, "bad-reference", message, _KNOWN))
        return ""
    if scope is None:
        message = f"${{{name}}} is not replaced here"
        problems.append(Problem(origin, "misplaced-reference", message, "Write $${ for text"))
        return ""
    if name.startswith(_VARS):
        return _variable(name, scope, origin, problems)
    if name == "cluster.name" or name.startswith(_LABELS):
        return _of_cluster(name, scope, origin, problems)
    message = f"${{{name}}} is not known"
    problems.append(Problem(origin, "bad-reference", message, _KNOWN))
    return ""


def _variable(name: str, scope: Scope, origin: Origin, problems: list[Problem]) -> str:
    value = scope.variables.get(name.removeprefix(_VARS))
    if value is None:
        message = f"${{{name}}} is not in spec.vars of the Fleet"
        hint = wording.nearest(name.removeprefix(_VARS), scope.variables.keys())
        problems.append(Problem(origin, "unknown-variable", message, hint))
    return value or ""


def _of_cluster(name: str, scope: Scope, origin: Origin, problems: list[Problem]) -> str:
    if scope.any_cluster:
        return "x"
    if not scope.cluster:
        message = f"${{{name}}} stands where no one cluster is meant"
        hint = "It is for a Cluster, for parameters and claims, and for spec.konnector of the Fleet"
        problems.append(Problem(origin, "misplaced-reference", message, hint))
        return ""
    if name == "cluster.name":
        return scope.cluster
    label = name.removeprefix(_LABELS)
    value = scope.labels.get(label)
    if value is None:
        message = f"the cluster label {label} is missing"
        problems.append(Problem(origin, "missing-label", message))
    return value or ""


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
    """A document as it is written. `kind` and `name` are "" where it has no usable one."""

    kind: str
    name: str
    origin: Origin  # of the name
    node: Fields

    def at(self, *steps: str | int) -> Origin:
        """Return the origin of the value at these keys and indices, or of its parent."""
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
    """Return the documents of a file; None if it is no YAML.

    The kind of those that are refused by their first lines is "".
    """
    try:
        nodes = yaml_text.read_all(content, path)
    except UnreadableText as error:
        problems.append(_unreadable(error, content))
        return None
    return [raw for raw in (_raw(node, problems) for node in nodes) if raw is not None]


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
    name = child(child(node, "metadata"), "name")
    origin = node.origin if name is None else name.origin
    text = "" if base_model.NAME.problem_of(_text(name)) else _text(name)
    return RawDocument("" if problem else _text(node.nodes["kind"]), text, origin, node)


def _header_problem(node: Fields) -> Problem | None:
    if not node.nodes.keys() & {"apiVersion", "kind"} and node.nodes.keys() & _RANCHER_KEYS:
        return Problem(
            node.origin,
            "rancher-fleet",
            "this is a fleet.yaml of Rancher Fleet, not of klutchctl",
            "Put the documents of klutchctl into klutch-fleet.yaml",
        )
    for key, hint in (("apiVersion", f"Write {API_VERSION}"), ("kind", _kind_hint(node))):
        if key not in node.nodes:
            return Problem(node.origin, "missing-field", f"{key} is required", hint)
    version = _text(node.nodes["apiVersion"])
    if version != API_VERSION:
        found = f"is {version}, and" if wording.is_name(["apiVersion"], version) else "is not text:"
        hint = f"Write {API_VERSION}"
        if version.partition("/")[0] != API_VERSION.partition("/")[0]:
            hint += ", or leave it out: an include must match documents of klutchctl only"
        message = f"apiVersion {found} must be {API_VERSION}"
        return Problem(node.at("apiVersion"), "unknown-api-version", message, hint)
    kind = _text(node.nodes["kind"])
    if kind in KINDS:
        return None
    message = f"there is no kind {wording.quoted(kind)}" if kind else "kind must be text"
    return Problem(node.at("kind"), "unknown-kind", message, wording.nearest(kind, KINDS))


def _kind_hint(node: Fields) -> str:
    """Return the kind that the keys of a document speak for, else all that there are."""
    spec = child(node, "spec")
    keys = spec.nodes.keys() if isinstance(spec, Fields) else frozenset[str]()
    fit = [kind for kind, model in KINDS.items() if keys <= base_model.keys_of(model, "spec")]
    return f"Most likely {fit[0]}" if len(fit) == 1 else wording.nearest("", KINDS)


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) and node.shape is Shape.TEXT else ""


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
    """Return spec.vars, as far as they are usable text."""
    return _texts(raw.node_at("spec", "vars"))


def _texts(node: Node | None) -> dict[str, str]:
    return {
        key: item.text
        for key, item in (node.nodes if isinstance(node, Fields) else {}).items()
        if isinstance(item, Scalar) and item.shape is Shape.TEXT and len(item.text) <= LONGEST
    }


def document(
    raw: RawDocument, model: type[M], *, scope: Scope, problems: list[Problem]
) -> Document[M] | None:
    """Return the document with the references of `scope` replaced, or None and problems."""
    assert KINDS[raw.kind] is model
    found: list[Problem] = []
    try:
        plain = {
            key: _spec(raw.kind, node, scope, found)
            if key == "spec" and isinstance(node, Fields)
            else replaced(node, None, found)
            for key, node in raw.node.nodes.items()
        }
        read = model.model_validate(plain, by_alias=True, by_name=False)
    except UnreadableText as error:
        found.append(Problem(error.origin, error.code, error.message, error.hint))
    except ValidationError as error:
        known = {problem.origin for problem in found}
        refused = base_model.problems_of(error, raw.node, model)
        found.extend(problem for problem in refused if problem.origin not in known)
    problems.extend(found)
    return None if found else Document.of(raw, read)


def late(node: Node, model: type[M], *, scope: Scope, problems: list[Problem]) -> M | None:
    """Return the part of a document that `node` is, for one cluster, or None and problems."""
    found: list[Problem] = []
    plain = replaced(node, scope, found)
    try:
        if not found:
            return model.model_validate(plain, by_alias=True, by_name=False)
    except ValidationError as error:
        found.extend(base_model.problems_of(error, node, model))
    problems.extend(found)
    return None


def _spec(kind: str, node: Fields, scope: Scope, problems: list[Problem]) -> dict[str, JSON]:
    late_scope = Scope(scope.variables, any_cluster=True)
    literal, late_keys = _LITERAL.get(kind, frozenset()), _LATE.get(kind, frozenset())
    plain: dict[str, JSON] = {}
    for key, child_node in node.nodes.items():
        inner = None if key in literal else late_scope if key in late_keys else scope
        plain[key] = replaced(child_node, inner, problems)
    return plain
