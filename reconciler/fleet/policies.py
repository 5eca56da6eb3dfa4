"""Checks Bindings against Policies, by the path of their file.

Where no Policy matches a path, `Fleet.spec.policies.default` says whether Bindings are allowed.
Where one does, only what some matching Policy allows is, and only Bindings may stand there: a
Template or Policy in the same place would let its writer allow anything. Limits hold for each
matching Policy. A wildcard of a Policy matches names that begin with a dot too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reconciler.core.errors import Origin, Problem, Severity
from reconciler.fleet.bindings import ResolvedBinding
from reconciler.fleet.files import Patterns
from reconciler.fleet.models import FleetDocument, PolicyDocument
from reconciler.fleet.parsing import Document, RawDocument
from reconciler.fleet.reference_index import PerCluster, ReferenceIndex


@dataclass(frozen=True, slots=True)
class Policy:
    """A Policy whose selectors are resolved: which template is allowed in which cluster."""

    name: str
    patterns: Patterns
    allowed: frozenset[tuple[str, str]]  # template, cluster
    bindings_per_cluster: int | None

    def governs(self, path: str) -> bool:
        return self.patterns.matches(path)


def resolve(
    document: Document[PolicyDocument], *, references: ReferenceIndex, problems: list[Problem]
) -> Policy:
    """Return the Policy that a document describes; names that do not exist are problems."""
    spec = document.model.spec
    allowed: set[tuple[str, str]] = set()
    for index, permission in enumerate(spec.allow):
        steps = ("spec", "allow", index)
        problems.extend(
            references.selector_problems(permission.clusters, document, *steps, "clusters")
        )
        for number, template in enumerate(permission.templates):
            origin = document.at(*steps, "templates", number)
            problems.extend(references.unknown("Template", template, origin))
        clusters = references.selected(permission.clusters)
        allowed.update((name, cluster) for name in permission.templates for cluster in clusters)
    return Policy(
        name=document.name,
        patterns=Patterns(spec.paths, dots=True),
        allowed=frozenset(allowed),
        bindings_per_cluster=spec.limits.bindings_per_cluster,
    )


def denies_by_default(fleet: Document[FleetDocument]) -> bool:
    policies = fleet.model.spec.policies
    return policies is not None and policies.default == "Deny"


def unsaid_default(fleet: Document[FleetDocument]) -> Iterable[Problem]:
    """Yield a warning where the files set no default for paths without a Policy."""
    if fleet.model.spec.policies is None:
        yield Problem(
            fleet.at("spec"),
            "policy-default",
            "spec.policies.default is absent: Bindings outside of all Policies are allowed",
            "Write `policies: {default: Deny}`, or Allow if you want that",
            Severity.WARNING,
        )


def check(
    policies: Sequence[Policy],
    bindings: Sequence[ResolvedBinding],
    documents: Iterable[RawDocument],
    *,
    deny: bool,
) -> Iterable[Problem]:
    """Yield the denials of the Policies. `deny`: a file that no Policy covers is one, too."""
    everywhere = PerCluster()
    for binding in bindings:
        governing = [policy for policy in policies if policy.governs(binding.document.origin.path)]
        if governing:
            _deny(binding, governing, everywhere)
        elif deny:
            yield _ungoverned(binding.document.origin)
    for each in policies:
        _limit(each, bindings, everywhere)
    yield from everywhere.problems()
    for document in documents:
        if document.kind != "Binding":
            yield from _misplaced(document, policies)


def _ungoverned(origin: Origin) -> Problem:
    message = "no Policy has a path for this file, and Fleet.spec.policies.default is Deny"
    hint = "Add a Policy whose spec.paths match it, or move it to where one does"
    return Problem(origin, "policy-denied", message, hint, Severity.DENIED)


def _deny(binding: ResolvedBinding, governing: Sequence[Policy], everywhere: PerCluster) -> None:
    document = binding.document
    template = document.model.spec.template
    names = " and ".join(sorted(policy.name for policy in governing))
    origin, hint = document.at("spec", "template"), ""
    message = f"Policy {names} does not allow Template {template}"
    if template is None:
        origin, hint = document.at("spec", "resources"), "Bind a Template that the Policy allows"
        message = f"Policy {names} allows Templates only, and this binds resources without one"
    # Of a Template that is unknown, only that is reported.
    for cluster in binding.clusters if template is None or binding.template else ():
        if not any((template, cluster) in policy.allowed for policy in governing):
            problem = Problem(origin, "policy-denied", message, hint, Severity.DENIED)
            everywhere.add(cluster, problem)


def _limit(policy: Policy, bindings: Sequence[ResolvedBinding], everywhere: PerCluster) -> None:
    most = policy.bindings_per_cluster
    if most is None:
        return
    counts: dict[str, int] = {}
    for binding in bindings:
        if not policy.governs(binding.document.origin.path):
            continue
        for cluster in binding.clusters:
            counts[cluster] = counts.get(cluster, 0) + 1
            if counts[cluster] > most:
                message = f"Policy {policy.name} allows {most} Bindings per cluster: too many"
                origin = binding.document.origin
                problem = Problem(origin, "policy-limit", message, severity=Severity.DENIED)
                everywhere.add(cluster, problem)


def _misplaced(document: RawDocument, policies: Sequence[Policy]) -> Iterable[Problem]:
    governing = sorted(policy.name for policy in policies if policy.governs(document.origin.path))
    if governing:
        message = f"a {document.kind} stands in a path of Policy {' and '.join(governing)}"
        hint = "Only Bindings may stand there; move it, or narrow spec.paths of the Policy"
        yield Problem(document.origin, "policy-kind", message, hint, Severity.DENIED)
