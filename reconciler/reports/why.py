"""Explains a binding in one cluster: its lines in the files, and those of the plan. Pure.

Its health is for the command to read from the clusters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.blueprints.objects import parameters_digest
from reconciler.core.errors import Origin
from reconciler.core.live import Live, control_plane_ref_name
from reconciler.fleet import parsing, policies, reference_index
from reconciler.fleet.bindings import ResolvedBinding
from reconciler.fleet.load import Loaded
from reconciler.fleet.models import PolicyDocument
from reconciler.fleet.reference_index import ReferenceIndex
from reconciler.fleet.service_models import Selector
from reconciler.fleet.values import Claim, Fleet, PruneMode, UnitKey
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster
from reconciler.planning.prune_units import PRUNING
from reconciler.reports.imports import unmanaged_units
from reconciler.reports.partial_plans import Target, named_units, unknown

_OFF = Tripped("off", "prune.mode is off: units that left the files are ignored")


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a selector: its text, its place, and whether it holds for the cluster."""

    text: str
    origin: Origin
    holds: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a Policy over the Binding's file on it in the cluster."""

    name: str  # of the Policy
    origin: Origin  # of what allows it, else of the Policy
    allows: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A document by its name, and its place."""

    name: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Provenance:
    """A Binding of the files in one cluster.

    `clauses` are the parts of its selector; `selected` says what they come to. `template` is None
    where it names resources itself. `claims` are those of the cluster, empty where it is not
    selected. `parameters` is a digest, "" for none.
    """

    binding: Document
    cluster: Document
    control_plane: Document
    selected: bool
    clauses: tuple[Clause, ...]
    template: Document | None
    units: tuple[UnitKey, ...]
    claims: tuple[Claim, ...]
    parameters: str
    deletion_policy: str
    depends_on: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


def provenance(loaded: Loaded, target: Target) -> Provenance | None:
    """Return the Binding that a target names; None where no document has that cluster or name.

    A unit is that of the Binding that binds it in the cluster, else of the first that would.
    """
    cluster = loaded.fleet.clusters.get(target.cluster)
    found = _bound(loaded, target)
    if cluster is None or found is None:
        return None
    spec = found.document.model.spec
    plane = loaded.fleet.control_planes[cluster.control_plane]
    made = [key for key in found.keys(cluster.name) if key in loaded.fleet.units]
    first = loaded.fleet.units[made[0]] if made else None
    return Provenance(
        binding=Document(found.name, found.document.origin),
        cluster=Document(cluster.name, cluster.origin),
        control_plane=Document(plane.name, plane.origin),
        selected=cluster.name in found.clusters,
        clauses=tuple(_clauses(found, cluster.name, loaded.references)),
        template=Document(spec.template or "", found.template.origin) if found.template else None,
        units=found.keys(cluster.name),
        claims=first.claims if first else (),
        parameters=parameters_digest(first.parameters if first else spec.parameters),
        deletion_policy=spec.deletion_policy,
        depends_on=tuple(spec.depends_on),
        verdicts=tuple(_verdicts(loaded, found, cluster.name)),
    )


def _bound(loaded: Loaded, target: Target) -> ResolvedBinding | None:
    named = [bound for bound in loaded.bindings if bound.name == target.name]
    binding = [
        bound
        for bound in loaded.bindings
        if target.name in {key.name for key in bound.keys(target.cluster)}
    ]
    there = [one for one in binding if target.cluster in one.clusters]
    return next(iter((*named, *there, *binding)), None)


def _clauses(bound: ResolvedBinding, cluster: str, references: ReferenceIndex) -> Iterator[Clause]:
    selector, document = bound.document.model.spec.clusters, bound.document
    labels = {cluster: references.labels[cluster]}

    def clause(text: str, steps: Sequence[str | int], **part: Any) -> Clause:
        holds = bool(reference_index.selected(Selector(**part), labels))
        return Clause(text, document.at("spec", "clusters", *steps), holds)

    for key, value in sorted(selector.match_labels.items()):
        yield clause(f"{key}={value}", ("matchLabels", key), match_labels={key: value})
    for index, one in enumerate(selector.match_expressions):
        values = f" ({', '.join(one.values)})" if one.values else ""
        text = f"{one.key} {one.operator}{values}"
        yield clause(text, ("matchExpressions", index), match_expressions=[one])
    for field, names in (("names", selector.names), ("exclude", selector.exclude)):
        if cluster in names:
            steps = (field, names.index(cluster))
            yield clause(f"{field} {cluster}", steps, names=[cluster])


def _verdicts(loaded: Loaded, bound: ResolvedBinding, cluster: str) -> Iterator[Verdict]:
    path, template = bound.document.origin.path, bound.document.model.spec.template
    for document in loaded.policies:
        # Loading the fleet has reported its problems already.
        rule = policies.resolve(document, references=loaded.references, problems=[])
        if rule.governs(path):
            entry = _allowing(document, template, cluster, loaded.references.labels)
            yield Verdict(rule.name, entry or document.origin, entry is not None)


def _allowing(
    document: parsing.Document[PolicyDocument],
    template: str | None,
    cluster: str,
    labels: Mapping[str, Mapping[str, str]],
) -> Origin | None:
    """Return the first entry of a Policy that allows a template in a cluster."""
    for index, one in enumerate(document.model.spec.allow):
        if template in one.templates and cluster in reference_index.selected(one.clusters, labels):
            return document.at("spec", "allow", index)
    return None


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known about a target.

    `source` is None where no document binds it. `plan` has the lines about its units, those that
    hold its whole cluster back, the guards that hold them, and what could not be read of the way
    there. `unmanaged` are live units of that name that were not adopted.
    """

    target: Target
    source: Provenance | None
    units: tuple[UnitKey, ...]
    unmanaged: tuple[UnitKey, ...]
    plan: Plan

    @property
    def prunes(self) -> bool:
        """Whether a line of it counts against the budgets of the whole fleet."""
        return any(change.action in PRUNING for change in self.plan.changes)


def watching(fleet: Fleet) -> Fleet:
    """Return a fleet with a plan that also shows leavers, where pruning is off."""
    if fleet.guards.mode is not PruneMode.OFF:
        return fleet
    return replace(fleet, guards=replace(fleet.guards, mode=PruneMode.REPORT))


def explained(loaded: Loaded, live: Live, plan: Plan, target: Target) -> Explanation:
    """Explain a target by its files, lines and state. `plan` is the one that `watching` shows.

    Raises ConfigError where nothing of that name is in the files, nor live.
    """
    source = provenance(loaded, target)
    foreign = unmanaged_units(
        loaded.fleet, live, only={target.cluster} & loaded.fleet.clusters.keys()
    )
    named = {*named_units(plan.changes, target), *(source.units if source else ())}
    unmanaged = tuple(one for one in foreign if one in named or target.means(one, ""))
    lines = tuple(
        change
        for change in plan.changes
        if change.unit in named or (change.cluster == target.cluster and _is_whole(change))
    )
    unseen = tuple(_unseen(loaded.fleet, plan, target.cluster))
    if not named and not unmanaged and not unseen:
        raise unknown(loaded.fleet, plan, target, foreign)
    about = replace(
        plan,
        changes=lines,
        widened=tuple(claim for claim in plan.widened if claim.unit in named),
        held=tuple(_tripped(loaded.fleet, plan, lines)),
        unseen=unseen,
        warnings=(),
    )
    return Explanation(target, source, tuple(sorted(named)), unmanaged, about)


def _is_whole(change: Change) -> bool:
    """Return whether a line is about all of its cluster."""
    if change.unit is not None:
        return False
    return change.action is Action.BLOCKED or (change.subject == "cluster" and not change.ref.name)


def _tripped(fleet: Fleet, plan: Plan, lines: Iterable[Change]) -> Iterable[Tripped]:
    tripped = {(guard, line.cluster) for line in lines for guard in line.held}
    blocked = {line.cluster for line in lines if line.action is Action.BLOCKED}
    for held in plan.held:
        trips = any((held.guard, name) in tripped for name in held.clusters)
        if trips or (len(held.clusters) == 1 and held.clusters[0] in blocked):
            is_off = held.guard == "report" and fleet.guards.mode is PruneMode.OFF
            yield _OFF if is_off else held


def _unseen(fleet: Fleet, plan: Plan, cluster: str) -> Iterable[UnseenCluster]:
    document = fleet.clusters.get(cluster)
    way = {cluster}
    if document is not None:
        way.add(control_plane_ref_name(document.control_plane))
    elif cluster not in plan.sections:
        # Any control plane may be the one that knows a cluster that left.
        way |= {control_plane_ref_name(name) for name in fleet.control_planes}
    return (one for one in plan.unseen if one.name in way)
