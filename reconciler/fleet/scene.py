"""What all documents of a repository look up in each other while they are checked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from reconciler.core.origin import Origin
from reconciler.core.problems import Problem
from reconciler.fleet import wording
from reconciler.fleet.parse import Written
from reconciler.fleet.values import AppCluster, ControlPlane


@dataclass(frozen=True, slots=True)
class Scene:
    """The names that are written, and the clusters that came out right.

    `complete`: every file was read, so that a name which is not here exists nowhere.
    """

    written: Mapping[tuple[str, str], Written]
    variables: Mapping[str, str]
    complete: bool
    control_planes: Mapping[str, ControlPlane] = field(default_factory=dict)
    clusters: Mapping[str, AppCluster] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of the clusters

    def names(self, kind: str) -> frozenset[str]:
        """Return the names of the documents of a kind, also of those with mistakes."""
        return frozenset(name for known, name in self.written if known == kind and name)

    def unknown(self, kind: str, name: str, origin: Origin, code: str) -> list[Problem]:
        """Return a problem if no document has this kind and name."""
        if (kind, name) in self.written or not self.complete:
            return []
        hint = wording.nearest(name, self.names(kind))
        return [Problem(origin, code, f"there is no {kind} {name}", hint)]


class PerCluster:
    """Problems that many clusters have at one place, told once, with the clusters' names."""

    def __init__(self) -> None:
        self._found: dict[Problem, set[str]] = {}

    def add(self, cluster: str, problem: Problem) -> None:
        """Note a problem whose message goes on with `in` and the names of clusters."""
        self._found.setdefault(problem, set()).add(cluster)

    def problems(self) -> Iterable[Problem]:
        """Yield what was noted."""
        for problem, clusters in self._found.items():
            yield replace(problem, message=f"{problem.message} in {wording.few(clusters)}")
