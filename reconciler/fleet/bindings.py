"""Resolves Bindings into units: one resource in one cluster, with its settings.

Also their permission claims, and the ceiling that their Template sets (mapping.md 6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from operator import attrgetter
from typing import Final

from reconciler.core.errors import Problem, Severity
from reconciler.core.manifest import get_map
from reconciler.core.names import is_reserved
from reconciler.core.refs import GroupResource
from reconciler.core.yaml_text import Items, Node
from reconciler.fleet import parsing, service_models, wording
from reconciler.fleet.files import LoadCache
from reconciler.fleet.models import BindingDocument, TemplateDocument
from reconciler.fleet.parsing import Document, Scope
from reconciler.fleet.reference_index import PerCluster, ReferenceIndex
from reconciler.fleet.values import Claim, DeletionPolicy, Mode, Owner, Unit, UnitKey

_WARNING: Final = Severity.WARNING
_WIDE: Final = (
    "all Secrets of the provider may come down: beside a kind that composes its own in the same "
    "namespaces, as composite resources of Crossplane 2.x do, also those that nobody offers"
)
_WIDE_HINT: Final = 'Narrow the claim by names or labels, or write names: ["*"] where all are meant'
# Each takes up to a KiB of memory, and a few bytes of a file select all clusters.
_MOST: Final = 1_000_000
# As keys compare, and quicker: there are tens of thousands.
_in_order: Final = attrgetter("cluster", "group", "resource")


@dataclass(frozen=True, slots=True)
class ResolvedBinding:
    """A Binding with its resources and clusters. `template` is None where that is not known."""

    document: Document[BindingDocument]
    template: Document[TemplateDocument] | None
    resources: Sequence[GroupResource]
    clusters: Mapping[str, None]  # a set in order

    @property
    def name(self) -> str:
        return self.document.name

    def keys(self, cluster: str) -> tuple[UnitKey, ...]:
        return tuple(UnitKey(cluster, one.group, one.plural) for one in self.resources)


def resolve(
    binding: Document[BindingDocument],
    templates: Mapping[str, Document[TemplateDocument]],
    *,
    references: ReferenceIndex,
    problems: list[Problem],
) -> ResolvedBinding:
    spec = binding.model.spec
    problems.extend(references.selector_problems(spec.clusters, binding, "spec", "clusters"))
    template = templates.get(spec.template) if spec.template else None
    if spec.template and template is None:
        origin = binding.at("spec", "template")
        problems.extend(references.unknown("Template", spec.template, origin))
    resources = spec.resources or (template.model.spec.resources if template else [])
    return ResolvedBinding(
        document=binding,
        template=template,
        resources=sorted({GroupResource(each.group, each.resource) for each in resources}),
        clusters=dict.fromkeys(references.selected(spec.clusters)),
    )


def units(
    bindings: Sequence[ResolvedBinding],
    *,
    references: ReferenceIndex,
    problems: list[Problem],
    cache: LoadCache,
) -> dict[UnitKey, Unit]:
    """Return all units by key, in order; two alike, and unresolved ones, are problems."""
    by_name = {other.name: other for other in bindings}
    found: dict[UnitKey, Unit] = {}
    everywhere, made = PerCluster(), 0
    for binding in bindings:
        _check_dependencies(binding, by_name, references=references, problems=problems)
        nodes = [binding.document.node_at("spec", key) for key in ("parameters", "claims")]
        nodes += [binding.template.node_at("spec", "claims")] if binding.template else []
        each = len(binding.resources) + sum(map(parsing.copied, nodes))
        if (made := made + len(binding.clusters) * each) > _MOST:
            problems.append(wording.too_large(binding.document.origin))
            break
        resolved = _recalled(binding, by_name, references=references, cache=cache)
        for cluster, problem in resolved.problems:
            everywhere.add(cluster, problem)
        for unit in resolved.units:
            first = found.setdefault(unit.key, unit)
            if first is not unit:
                message = f"{unit.key.name} is also bound by {first.binding} ({first.origin})"
                problem = Problem(unit.origin, "duplicate-unit", message)
                everywhere.add(unit.key.cluster, problem)
    problems.extend(everywhere.problems())
    problems.extend(_cycles(bindings, by_name))
    return {key: found[key] for key in sorted(found, key=_in_order)}


@dataclass(slots=True)
class _Resolved:
    """The units of one Binding, and its problems, by cluster."""

    units: list[Unit] = field(default_factory=list)
    problems: list[tuple[str, Problem]] = field(default_factory=list)


def _recalled(
    binding: ResolvedBinding,
    by_name: Mapping[str, ResolvedBinding],
    *,
    references: ReferenceIndex,
    cache: LoadCache,
) -> _Resolved:
    awaited = [by_name.get(name) for name in binding.document.model.spec.depends_on]
    planes = {name: references.clusters[name].control_plane for name in binding.clusters}
    modes = {name: plane.mode for name, plane in references.control_planes.items()}
    return cache.recall(
        ("units", binding.document.origin),
        (binding, awaited, planes, modes, references.labels, references.variables),
        lambda _: _resolved(binding, by_name, references),
        problems=[],
    )


def _resolved(
    binding: ResolvedBinding, by_name: Mapping[str, ResolvedBinding], references: ReferenceIndex
) -> _Resolved:
    document, found = binding.document, _Resolved()
    spec = document.model.spec
    claims = _Claims(document, binding.template)
    node = document.node_at("spec", "parameters")
    parameters = node if parsing.copied(node) else None
    for cluster in binding.clusters:
        scope = Scope(references.variables, cluster, references.labels[cluster])
        problems: list[Problem] = []
        resolved = (
            spec.parameters
            if parameters is None
            else get_map(parsing.replaced(parameters, scope, problems))
        )
        accepted = claims.of(scope, problems)
        problems.extend(_mode_problems(document, cluster, references))
        found.problems += ((cluster, problem) for problem in problems)
        found.units += (
            Unit(
                key=key,
                binding=document.name,
                origin=document.origin,
                template=spec.template or "",
                parameters=resolved,
                claims=accepted,
                deletion_policy=DeletionPolicy(spec.deletion_policy),
                depends_on=_dependencies(spec.depends_on, by_name, cluster),
                labels=document.model.metadata.labels,
            )
            for key in binding.keys(cluster)
        )
    return found


def _mode_problems(
    document: Document[BindingDocument], cluster: str, references: ReferenceIndex
) -> Iterable[Problem]:
    plane = references.control_planes[references.clusters[cluster].control_plane]
    if document.model.spec.parameters and plane.mode is Mode.APP_CLUSTER_BINDING:
        message = f"mode AppClusterBinding of control plane {plane.name} carries no parameters"
        origin = document.at("spec", "parameters")
        yield Problem(origin, "parameters-not-carried", f"{message}: they would be lost")


def _dependencies(
    names: Sequence[str], by_name: Mapping[str, ResolvedBinding], cluster: str
) -> tuple[UnitKey, ...]:
    others = [by_name[name] for name in names if name in by_name]
    return tuple(
        sorted(
            {key for other in others if cluster in other.clusters for key in other.keys(cluster)}
        )
    )


def _check_dependencies(
    binding: ResolvedBinding,
    by_name: Mapping[str, ResolvedBinding],
    *,
    references: ReferenceIndex,
    problems: list[Problem],
) -> None:
    for index, name in enumerate(binding.document.model.spec.depends_on):
        origin = binding.document.at("spec", "dependsOn", index)
        other = by_name.get(name)
        if other is None:
            problems.extend(references.unknown("Binding", name, origin))
        elif binding.clusters and not binding.clusters.keys() & other.clusters.keys():
            message = f"{name} is in none of the clusters of {binding.name}: nothing to wait for"
            problems.append(Problem(origin, "dependency-elsewhere", message, severity=_WARNING))


def _cycles(
    bindings: Sequence[ResolvedBinding], by_name: Mapping[str, ResolvedBinding]
) -> Iterable[Problem]:
    graph = {
        binding.name: {name for name in binding.document.model.spec.depends_on if name in by_name}
        for binding in bindings
    }
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            # Each one of this list is waited for by the next.
            cycle: list[str] = error.args[1][:0:-1]
            start = cycle.index(min(cycle))
            cycle = [*cycle[start:], *cycle[:start]]
            yield _cycle_problem(cycle, by_name)
            waiting, awaited = cycle[0], (cycle * 2)[1]
            graph[waiting].discard(awaited)
        else:
            return


def _cycle_problem(cycle: Sequence[str], by_name: Mapping[str, ResolvedBinding]) -> Problem:
    document = by_name[cycle[0]].document
    awaited = (list(cycle) * 2)[1]
    origin = document.at("spec", "dependsOn", document.model.spec.depends_on.index(awaited))
    other = f"Take {awaited} out here" + ("" if len(cycle) == 1 else ", or break it elsewhere")
    message = f"these Bindings wait for each other: {' -> '.join([*cycle, cycle[0]])}"
    return Problem(origin, "dependency-cycle", message, other)


class _Claims:
    """The claims of one Binding, for each cluster that it selects."""

    def __init__(
        self, binding: Document[BindingDocument], template: Document[TemplateDocument] | None
    ) -> None:
        own = binding.model.spec.claims
        offered = template.model.spec.claims if template else []
        self._ceiling = (
            _ClaimList(template, offered, service_models.CeilingClaim) if template else None
        )
        self._own = None if own is None else _ClaimList(binding, own, service_models.Claim)
        self._constant: tuple[Claim, ...] | None = None

    def of(self, scope: Scope, problems: list[Problem]) -> tuple[Claim, ...]:
        """Return the claims for the cluster of `scope`; a part outside the ceiling is a problem.

        Claims that do not depend on the cluster are computed once, with their problems.
        """
        if self._constant is not None:
            return self._constant
        ceiling = self._ceiling.claims(scope, problems) if self._ceiling else ()
        own = ceiling if self._own is None else self._own.claims(scope, problems)
        if self._own is not None:
            problems.extend(_twice(own))
            if self._ceiling is not None:
                problems.extend(_outside(own, ceiling))
        sources = [source for source in (self._own, self._ceiling) if source]
        if not any(source.depends_on_cluster for source in sources):
            self._constant = own
        return own


def wide_claims(
    documents: Iterable[Document[BindingDocument] | Document[TemplateDocument]],
) -> list[Problem]:
    """Return warnings of the claims on all Secrets of the provider that do not state "all"."""
    return [
        Problem(document.at("spec", "claims", at), "wide-secrets", _WIDE, _WIDE_HINT, _WARNING)
        for document in documents
        for at, one in enumerate(document.model.spec.claims or ())
        if (one.group, one.resource, one.owner) == ("", "secrets", "Provider")
        and not one.model_fields_set & {"names", "labels"}
    ]


class _ClaimList:
    """A list of claims in a document."""

    def __init__(
        self,
        document: Document[BindingDocument] | Document[TemplateDocument],
        models: Sequence[service_models.CeilingClaim],
        model: type[service_models.CeilingClaim],
    ) -> None:
        node = document.node_at("spec", "claims")
        self._nodes: Sequence[Node] = node.nodes if isinstance(node, Items) else ()
        self._models, self._model = models, model
        self.depends_on_cluster = any(map(parsing.copied, self._nodes))

    def claims(self, scope: Scope, problems: list[Problem]) -> tuple[Claim, ...]:
        if not self.depends_on_cluster:
            return tuple(map(_claim, self._models, self._nodes))
        read = [
            (parsing.late(node, self._model, scope=scope, problems=problems), node)
            for node in self._nodes
        ]
        return tuple(_claim(model, node) for model, node in read if model is not None)


def _claim(model: service_models.CeilingClaim, node: Node) -> Claim:
    return Claim(
        group=model.group,
        resource=model.resource,
        version=model.version,
        owner=Owner(model.owner),
        names=tuple(sorted(model.names)),
        namespaces=tuple(sorted(model.namespaces)),
        labels=tuple(sorted(tuple(sorted(labels.items())) for labels in model.labels)),
        accepted=not isinstance(model, service_models.Claim) or model.state == "Accepted",
        origin=node.origin,
    )


def _twice(claims: Sequence[Claim]) -> Iterable[Problem]:
    seen: dict[object, Claim] = {}
    for claim in claims:
        selector = (claim.names, claim.namespaces, claim.labels)
        key = (claim.group, claim.resource, claim.version, claim.owner, selector)
        first = seen.setdefault(key, claim)
        if first is not claim:
            message = f"this claim of {claim.resource} is there twice: also at {first.origin}"
            yield Problem(claim.origin, "duplicate-claim", message)


def _outside(claims: Sequence[Claim], ceiling: Sequence[Claim]) -> Iterable[Problem]:
    """Yield the accepted claims that no claim of the Template covers. To reject is always right."""
    for claim in claims:
        if not claim.accepted or any(not _excess(claim, most) for most in ceiling):
            continue
        alike = [most for most in ceiling if _kind(most) == _kind(claim)]
        excess = " and ".join(_excess(claim, alike[0])) if alike else ""
        detail = f"its {excess} reach further" if excess else "the Template names no such claim"
        message = f"this claim of {claim.resource} is outside the Template's: {detail}"
        hint = f"The most is at {alike[0].origin}" if alike else ""
        if alike and (opened := _opened(claim, alike[0])):
            hint += f'; "*" is not for {", ".join(opened)}, which the Template has to name'
        yield Problem(claim.origin, "claim-outside-ceiling", message, hint)


def _kind(claim: Claim) -> tuple[str, ...]:
    return (claim.group, claim.resource, claim.version, claim.owner)


def _excess(claim: Claim, most: Claim) -> list[str]:
    """Return the names of a claim's parts that reach further than `most`; [] for none."""
    if _kind(claim) != _kind(most):
        return ["kind"]
    parts = {
        "names": _within(claim.names, most.names),
        "namespaces": _within(claim.namespaces, most.namespaces) and not _opened(claim, most),
        "labels": _labels_within(claim, most),
    }
    return [part for part, within in parts.items() if not within]


def _within(names: tuple[str, ...], most: tuple[str, ...]) -> bool:
    # () is objects without a namespace, which is not a part of some namespaces.
    return most in (("*",), names) or (bool(names) and set(names) <= set(most))


def _opened(claim: Claim, most: Claim) -> list[str]:
    """Return the namespaces of the cluster itself that only one claim names: `*` reaches none."""
    return sorted(filter(is_reserved, {*claim.namespaces} - {*most.namespaces}))


def _labels_within(claim: Claim, most: Claim) -> bool:
    """Return whether each label map, of which an object needs one, asks for one of `most` too."""
    if not most.labels:
        return True
    return bool(claim.labels) and all(
        any(set(allowed) <= set(asked) for allowed in most.labels) for asked in claim.labels
    )
