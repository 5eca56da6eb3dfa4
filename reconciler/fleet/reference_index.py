"""Resolves references between documents: names, and selectors of clusters.

Labels and expressions of a selector together select, names add, exclude takes away. A selector that
says nothing selects nothing. Operators are those of Kubernetes: NotIn, `!=` and DoesNotExist also
hold for a cluster without the label.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.core.errors import ConfigError, Origin, Problem
from reconciler.fleet import base_model, wording
from reconciler.fleet.parsing import RawDocument
from reconciler.fleet.service_models import Expression, Selector
from reconciler.fleet.values import AppCluster, ControlPlane

_UNKNOWN: Final = {
    "Binding": "unknown-binding",
    "Cluster": "unknown-cluster",
    "ControlPlane": "unknown-control-plane",
    "Template": "unknown-template",
}


@dataclass(frozen=True, slots=True)
class ReferenceIndex:
    """The names in the documents, and the clusters that are valid.

    `complete`: every file was read, so that a name which is not here exists nowhere, unless it is
    one of `refused`, the names of documents with mistakes in their first lines ("" for unknown).
    """

    documents: Mapping[tuple[str, str], RawDocument]
    variables: Mapping[str, str]
    complete: bool
    control_planes: Mapping[str, ControlPlane] = field(default_factory=dict)
    clusters: Mapping[str, AppCluster] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of the clusters
    refused: frozenset[str] = frozenset()

    def names(self, kind: str) -> frozenset[str]:
        """Return the names of the documents of a kind, also of those with mistakes."""
        return frozenset(name for known, name in self.documents if known == kind and name)

    def unknown(self, kind: str, name: str, origin: Origin) -> list[Problem]:
        if (kind, name) in self.documents or name in self.refused or not self.complete:
            return []
        hint = wording.nearest(name, self.names(kind))
        return [Problem(origin, _UNKNOWN[kind], f"there is no {kind} {name}", hint)]

    def selected(self, selector: Selector) -> list[str]:
        """Return the names of the clusters that a selector means, in order."""
        return selected(selector, self.labels)

    def selector_problems(
        self, selector: Selector, document: RawDocument, *steps: str | int
    ) -> Iterable[Problem]:
        """Yield the problems of the selector that stands at `steps`."""
        for key, named in (("names", selector.names), ("exclude", selector.exclude)):
            for place, name in enumerate(named):
                yield from self.unknown("Cluster", name, document.at(*steps, key, place))
        known = self.names("Cluster")
        # An unread file, or a document with mistakes, might hold the one that is meant.
        certain = self.complete and not self.refused
        certain = certain and self.clusters.keys() == known >= set(selector.names)
        if certain and not selector.optional and not self.selected(selector):
            path = base_model.path_text(document.node, steps)
            asked = {*selector.match_labels, *(one.key for one in selector.match_expressions)}
            pairs = (pair for labels in self.labels.values() for pair in labels.items())
            hint = f"{wording.labels(pairs, first=asked)}. Or mark it with `optional: true`"
            message = f"{path} selects no Cluster of {len(known)}"
            yield Problem(document.at(*steps), "selector-matches-nothing", message, hint)


class PerCluster:
    """Problems that many clusters have at one place, reported once, with the clusters' names."""

    def __init__(self) -> None:
        self._found: dict[Problem, set[str]] = {}

    def add(self, cluster: str, problem: Problem) -> None:
        """Note a problem whose message goes on with `in` and the names of clusters."""
        self._found.setdefault(problem, set()).add(cluster)

    def problems(self) -> Iterable[Problem]:
        return (
            replace(problem, message=f"{problem.message} in {wording.few(clusters)}")
            for problem, clusters in self._found.items()
        )


def selected(selector: Selector, clusters: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of the clusters that are meant, in order, of those with these labels."""
    names = {name for name in selector.names if name in clusters}
    if selector.match_labels or selector.match_expressions:
        names |= {name for name, labels in clusters.items() if _matches(selector, labels)}
    return sorted(names.difference(selector.exclude))


def _matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    wanted = selector.match_labels.items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _is_met(expression, labels) for expression in selector.match_expressions
    )


def _is_met(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


_BETWEEN: Final = re.compile(r",(?![^(]*\))")  # no comma inside parentheses
_WORD: Final = r"[^\s,()!=<>]+"
_ABSENT: Final = re.compile(rf"!\s*(?P<key>{_WORD})")
_PRESENT: Final = re.compile(rf"(?P<key>{_WORD})")
_EQUAL: Final = re.compile(rf"(?P<key>{_WORD})\s*(?P<operator>==?|!=)\s*(?P<value>({_WORD})?)")
_AMONG: Final = re.compile(rf"(?P<key>{_WORD})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_HINT: Final = "Write it as for kubectl: env=prod,region in (eu,us),tier!=gold,!beta"


def parse_label_query(text: str) -> Selector:
    """Return the selector of clusters that `text` means.

    Raises ConfigError for what is no selector. An empty one is none: where a script lost its
    value, it must not mean every cluster.
    """
    return Selector(match_expressions=[_expression(part.strip()) for part in _BETWEEN.split(text)])


def _expression(text: str) -> Expression:
    if found := _ABSENT.fullmatch(text):
        return _checked_expression(found["key"], "DoesNotExist", [])
    if found := _PRESENT.fullmatch(text):
        return _checked_expression(found["key"], "Exists", [])
    if found := _EQUAL.fullmatch(text):
        operator = "NotIn" if found["operator"] == "!=" else "In"
        return _checked_expression(found["key"], operator, [found["value"]])
    if found := _AMONG.fullmatch(text):
        operator = "NotIn" if found["operator"] == "notin" else "In"
        return _checked_expression(
            found["key"], operator, [value.strip() for value in found["values"].split(",")]
        )
    shown = wording.quoted(text) if text else "an empty part"
    raise ConfigError(f"{shown} is no condition on a label", where="labels", hint=_HINT)


def _checked_expression(key: str, operator: str, values: Sequence[str]) -> Expression:
    problem = base_model.LABEL_KEY.problem_of(key)
    if problem or len(key.rpartition("/")[2]) > base_model.LABEL_VALUE.most:
        raise ConfigError(f"{wording.quoted(key)} is not a label key", where="labels", hint=_HINT)
    for value in values:
        if problem := base_model.LABEL_VALUE.problem_of(value):
            raise ConfigError(f"{wording.quoted(value)} {problem}", where="labels", hint=_HINT)
    return Expression.model_validate({"key": key, "operator": operator, "values": list(values)})
