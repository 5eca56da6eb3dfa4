"""From a written document to its model: references replaced, form checked.

Where a text depends on the cluster that a Binding is for, its form is checked with a stand-in
here, and again when each cluster is known (`late`).
"""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from reconciler.core.manifest import JSON
from reconciler.core.origin import Origin
from reconciler.core.problems import Problem
from reconciler.core.yaml_text import Fields, Node, UnreadableText
from reconciler.fleet import mistakes, substitute
from reconciler.fleet.documents import KINDS
from reconciler.fleet.parse import Written
from reconciler.fleet.strict import Strict
from reconciler.fleet.substitute import Scope

M = TypeVar("M", bound=Strict)

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
class Document(Generic[M]):
    """A document whose form is right. `written` has the places."""

    written: Written
    model: M

    @property
    def name(self) -> str:
        """Its metadata.name."""
        return self.written.name

    @property
    def origin(self) -> Origin:
        """Where its name stands."""
        return self.written.origin


def document(
    written: Written, model: type[M], *, scope: Scope, problems: list[Problem]
) -> Document[M] | None:
    """Return the document with the references of `scope` replaced, or None and problems."""
    assert KINDS[written.kind] is model
    found: list[Problem] = []
    try:
        plain = _plain(written, scope, found)
        read = model.model_validate(plain, by_alias=True, by_name=False)
    except UnreadableText as error:
        found.append(Problem(error.origin, error.code, error.message, error.hint))
    except ValidationError as error:
        known = {problem.origin for problem in found}
        refused = mistakes.problems_of(error, written.node, model)
        found.extend(problem for problem in refused if problem.origin not in known)
    problems.extend(found)
    return None if found else Document(written, read)


def late(node: Node, model: type[M], *, scope: Scope, problems: list[Problem]) -> M | None:
    """Return the part of a document that `node` is, for one cluster, or None and problems."""
    found: list[Problem] = []
    plain = substitute.resolve(node, scope, found)
    try:
        if not found:
            return model.model_validate(plain, by_alias=True, by_name=False)
    except ValidationError as error:
        found.extend(mistakes.problems_of(error, node, model))
    problems.extend(found)
    return None


def _plain(written: Written, scope: Scope, problems: list[Problem]) -> dict[str, JSON]:
    plain: dict[str, JSON] = {}
    for key, node in written.node.nodes.items():
        if key == "spec" and isinstance(node, Fields):
            plain[key] = _spec(written.kind, node, scope, problems)
        else:
            plain[key] = substitute.resolve(node, None, problems)
    return plain


def _spec(kind: str, node: Fields, scope: Scope, problems: list[Problem]) -> dict[str, JSON]:
    late_scope = Scope(scope.variables, any_cluster=True)
    literal, late_keys = _LITERAL.get(kind, frozenset()), _LATE.get(kind, frozenset())
    plain: dict[str, JSON] = {}
    for key, held in node.nodes.items():
        inner = None if key in literal else late_scope if key in late_keys else scope
        plain[key] = substitute.resolve(held, inner, problems)
    return plain
