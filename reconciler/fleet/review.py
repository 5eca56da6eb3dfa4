"""A pull request: a fleet that is judged by what the protected branch says, not by itself.

Else the author of the files could grant themselves what they ask for. From the protected branch,
the base, come:

- the Policies with their default, and the labels of its clusters, by which Policies allow. A
  cluster that is new has the labels that the pull request gives it. The Policies of the pull
  request hold beside them: after the merge they will be all there is.
- the name of the fleet, by which objects are known as its own: another one is denied.
- the guards: of each, the stricter one holds.
- the way to each cluster: where it is new or another one, the cluster must not be contacted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reconciler.core.errors import ConfigError, Problem, Severity, in_order
from reconciler.fleet import policies
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import Loaded, allowed, load_valid_part
from reconciler.fleet.values import Fleet


@dataclass(frozen=True, slots=True)
class Base:
    """The fleet on the protected branch. `ref` is how the branch was named."""

    ref: str
    loaded: Loaded


@dataclass(frozen=True, slots=True)
class Review:
    """A pull request that is allowed.

    `fleet` is what to plan: that of the pull request, with the stricter guards. `head` is the
    pull request as it is written.
    """

    fleet: Fleet
    base: Base
    head: Loaded


def base(ref: str, snapshot: Snapshot) -> Base:
    """Return the fleet to judge by. Raises ConfigError where it is invalid itself."""
    problems: list[Problem] = []
    loaded = load_valid_part(snapshot, problems)
    invalid = [problem for problem in in_order(problems) if problem.severity is Severity.INVALID]
    if loaded is None or invalid:
        raise unusable(ref, invalid)
    return Base(ref, loaded)


def unusable(ref: str, problems: Sequence[Problem]) -> ConfigError:
    """Return the error of a base that cannot be judged by; there is at least one problem."""
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    return ConfigError(
        f"invalid itself, so nothing can be judged by it: {problems[0]}{more}",
        where=f"--base {ref}",
        hint="Mend it there first",
    )


def load_against(base: Base, snapshot: Snapshot) -> tuple[Review | None, tuple[Problem, ...]]:
    """Return the pull request whose files these are, and all its problems, as `load` does."""
    problems: list[Problem] = []
    head = load_valid_part(snapshot, problems)
    if head is not None:
        problems.extend(_denied(base, head, problems))
        problems.extend(_other_name(base, head))
    if head is None or not allowed(problems):
        return None, in_order(problems)
    guards = head.fleet.guards.stricter(base.loaded.fleet.guards)
    return Review(replace(head.fleet, guards=guards), base, head), in_order(problems)


def new_ways(base: Fleet, head: Fleet) -> tuple[frozenset[str], frozenset[str]]:
    """Return the control planes and the clusters of `head` that `base` does not lead to so."""
    planes = frozenset(
        name
        for name, plane in head.control_planes.items()
        if name not in base.control_planes or base.control_planes[name].access != plane.access
    )
    clusters = frozenset(
        name
        for name, cluster in head.clusters.items()
        if name not in base.clusters
        or base.clusters[name].access != cluster.access
        # Its Secret lies on its control plane: elsewhere it is another Secret.
        or (cluster.access.secret and base.clusters[name].control_plane != cluster.control_plane)
    )
    return planes, clusters


def _denied(base: Base, head: Loaded, known: Iterable[Problem]) -> list[Problem]:
    """Return what the Policies of the base deny beyond what is known already."""
    known_problems = {(problem.origin, problem.code, problem.message) for problem in known}
    references = base.loaded.references
    judged = replace(references, labels={**head.references.labels, **references.labels})
    mended: list[Problem] = []  # the base has none, and new clusters make none
    rules = [
        policies.resolve(policy, references=judged, problems=mended)
        for policy in base.loaded.policies
    ]
    deny = policies.denies_by_default(base.loaded.repository.fleet)
    found = policies.check(rules, head.bindings, head.repository.documents, deny=deny)
    said = f"So says {base.ref}; what is changed here counts once it is merged"
    return [
        replace(problem, hint=f"{problem.hint}. {said}" if problem.hint else said)
        for problem in found
        if (problem.origin, problem.code, problem.message) not in known_problems
    ]


def _other_name(base: Base, head: Loaded) -> Iterable[Problem]:
    before, after = base.loaded.fleet.name, head.fleet.name
    if before != after:
        yield Problem(
            head.fleet.origin,
            "fleet-renamed",
            f"the Fleet is {before} in {base.ref}, and {after} here: what the clusters hold of"
            f" {after} would be taken for its own",
            f"Name it {before}",
            Severity.DENIED,
        )
