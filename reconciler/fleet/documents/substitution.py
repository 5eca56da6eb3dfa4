"""`${cluster.name}`, `${cluster.labels.X}` and `${vars.X}` in text. `$${` is a plain `${`.

Each text is replaced once: what a variable holds is not looked at again. Keys, and values that
are not text, are left alone. No message quotes a text, only what stands between the braces.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.core.errors import Origin, Problem
from reconciler.core.manifest import JSON
from reconciler.core.yaml_text import Fields, Items, Node, Scalar, Shape
from reconciler.fleet import wording

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


def resolve(node: Node, scope: Scope | None, problems: list[Problem]) -> JSON:
    """Return the node as JSON with its references replaced; what cannot be is a problem.

    Without a scope each reference is one. Raises UnreadableText for .inf and .nan.
    """
    match node:
        case Fields():
            return {key: resolve(item, scope, problems) for key, item in node.nodes.items()}
        case Items():
            return [resolve(item, scope, problems) for item in node.nodes]
        case Scalar(shape=Shape.TEXT) if "${" in node.text:
            return _PLACE.sub(lambda place: _value(place, scope, node.origin, problems), node.text)
        case Scalar():
            return node.plain()


def has_references(node: Node) -> bool:
    """Tell whether the node depends on a scope."""
    return any("${" in scalar.text for scalar in _scalars(node))


def _scalars(node: Node) -> Iterator[Scalar]:
    match node:
        case Fields():
            for item in node.nodes.values():
                yield from _scalars(item)
        case Items():
            for item in node.nodes:
                yield from _scalars(item)
        case Scalar():
            yield node


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
