"""Which app clusters a selector means (product.md, "The fleet repository").

Labels and expressions together select, names add, exclude takes away. A selector that says
nothing selects nothing. Operators are those of Kubernetes: NotIn and DoesNotExist also hold for
a cluster without the label.
"""

from collections.abc import Mapping

from reconciler.core.problems import Problem
from reconciler.fleet import wording
from reconciler.fleet.documents import Expression, Selector
from reconciler.fleet.parse import Written
from reconciler.fleet.scene import Scene


def selected(selector: Selector, clusters: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of the clusters that are meant, in order, of those with these labels."""
    names = {name for name in selector.names if name in clusters}
    if selector.match_labels or selector.match_expressions:
        names |= {name for name, labels in clusters.items() if _matches(selector, labels)}
    return sorted(names.difference(selector.exclude))


def check(
    selector: Selector, written: Written, *steps: str | int, scene: Scene, problems: list[Problem]
) -> None:
    """Add what is wrong with the selector that stands at `steps`, where all files are known."""
    if not scene.complete:
        return
    known = scene.names("Cluster")
    for key, names in (("names", selector.names), ("exclude", selector.exclude)):
        for index, name in enumerate(names):
            if name not in known:
                origin = written.at(*steps, key, index)
                message = f"there is no Cluster {name}"
                hint = wording.nearest(name, known)
                problems.append(Problem(origin, "unknown-cluster", message, hint))
    # A Cluster with mistakes might have been the one that is meant.
    if scene.clusters.keys() != known or not known.issuperset(selector.names):
        return
    if not selector.optional and not selected(selector, scene.labels):
        origin = written.at(*steps)
        hint = "Or mark it with `optional: true`"
        problems.append(Problem(origin, "selector-matches-nothing", "no Cluster is selected", hint))


def _matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    wanted = selector.match_labels.items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _holds(expression, labels) for expression in selector.match_expressions
    )


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
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
