"""From the text of a file to documents of a known kind: what each is, and where it stands.

Knows apiVersion, kind and metadata.name, and nothing else of what a document says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.core import yaml_text
from reconciler.core.origin import Origin
from reconciler.core.problems import Problem
from reconciler.core.yaml_text import Fields, Items, Node, Scalar, Shape, UnreadableText
from reconciler.fleet import excerpts, formats, wording
from reconciler.fleet.documents import API_VERSION, KINDS

_RANCHER_KEYS: Final = frozenset(
    {"defaultNamespace", "helm", "kustomize", "namespace", "targetCustomizations", "yaml"}
)


@dataclass(frozen=True, slots=True)
class Written:
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


def child(node: Node | None, step: str | int) -> Node | None:
    """Return what a mapping or list holds at a key or index, or None."""
    match node:
        case Fields() if isinstance(step, str):
            return node.nodes.get(step)
        case Items() if isinstance(step, int) and step < len(node.nodes):
            return node.nodes[step]
        case _:
            return None


def locate(node: Node, steps: Sequence[str | int]) -> tuple[Origin, Node]:
    """Return the place and node at `steps`, as deep as they are there.

    Steps that the text does not have are passed over: a shorthand has less than it stands for.
    """
    for step in steps:
        node = child(node, step) or node
    return node.origin, node


def read(path: str, content: bytes, problems: list[Problem]) -> list[Written] | None:
    """Return the documents of a file, without those that cannot be one; None if it is no YAML."""
    try:
        nodes = yaml_text.read_all(content, path)
    except UnreadableText as error:
        problems.append(_unreadable(error, content))
        return None
    found = (_written(node, problems) for node in nodes)
    return [written for written in found if written is not None]


def _unreadable(error: UnreadableText, content: bytes) -> Problem:
    message = error.message
    if error.code == "duplicate-key" and (key := excerpts.word_at(content, error.origin)):
        message = f"the key {wording.quoted(key)} is there twice"
    return Problem(error.origin, error.code, message, error.hint)


def _written(node: Node, problems: list[Problem]) -> Written | None:
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
    return Written(_text(node.nodes["kind"]), text if _is_name(text) else "", origin, node)


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
    return not formats.NAME.problem_of(text)


def without_duplicates(documents: Sequence[Written], problems: list[Problem]) -> list[Written]:
    """Return the documents by place; of two with one kind and name, the second is a problem."""
    found: list[Written] = []
    seen: dict[tuple[str, str], Written] = {}
    for one in sorted(documents, key=lambda one: one.origin):
        first = seen.setdefault((one.kind, one.name), one) if one.name else one
        if first is one:
            found.append(one)
        else:
            message = f"{one.kind} {one.name} is there twice: also at {first.origin}"
            problems.append(Problem(one.origin, "duplicate-document", message))
    return found


def labels_of(written: Written) -> dict[str, str]:
    """Return metadata.labels, as far as they are text."""
    return _texts(written.node_at("metadata", "labels"))


def variables_of(written: Written) -> dict[str, str]:
    """Return spec.vars, as far as they are text."""
    return _texts(written.node_at("spec", "vars"))


def _texts(node: Node | None) -> dict[str, str]:
    if not isinstance(node, Fields):
        return {}
    return {
        key: item.text
        for key, item in node.nodes.items()
        if isinstance(item, Scalar) and item.shape is Shape.TEXT
    }
