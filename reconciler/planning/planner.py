"""Plans a fleet: compares files and live state for each cluster, then applies guards to all.

Deterministic: the same fleet and the same live state give the same plan, byte for byte. Nothing
that was not seen completely is ever released, replaced or deleted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from reconciler import api
from reconciler.api import leases
from reconciler.core.live import (
    ClusterState,
    Live,
    Questions,
    Unavailable,
    control_plane_ref_name,
    instances,
)
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE, SERVICE_ACCOUNT, Ref
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import (
    AppCluster,
    Claim,
    DeletionPolicy,
    Fleet,
    PruneMode,
    Unit,
    UnitKey,
)
from reconciler.planning import app_cluster_bindings, preflight, prune_clusters, prune_units, roots
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster, WidenedClaim
from reconciler.planning.clusters import address_warnings, plan_cluster
from reconciler.planning.permission_claims import offered_by
from reconciler.planning.placement import LOOKED_AT, Blocked
from reconciler.planning.planfile import identified
from reconciler.planning.site import Index, Site
from reconciler.planning.units import UnitPlan, line_of, owner_changes, plan_unit

_EXAMPLES = 3  # of what a control plane offers, in a sentence
# Of copies whose space others still use (mapping.md 9).
_ENDANGERED = (
    "its released copies stay beside those of other units; the original konnector and backend "
    "delete them with their app namespace"
)


@dataclass(slots=True)
class _Draft:
    """The decisions so far; only this module fills it."""

    changes: list[Change] = field(default_factory=list)
    widened: list[WidenedClaim] = field(default_factory=list)
    held: list[Tripped] = field(default_factory=list)
    unseen: list[UnseenCluster] = field(default_factory=list)
    warnings: set[str] = field(default_factory=set)
    bodies: set[Ref] = field(default_factory=set)
    awaiting: set[str] = field(default_factory=set)  # control planes whose backend has to act
    in_use: dict[UnitKey, int | None] = field(default_factory=dict)  # None = not counted yet
    # Units whose own policy is Delete: only these may be deleted in spite of instances.
    consented: set[UnitKey] = field(default_factory=set)
    unread: frozenset[UnitKey] = frozenset()
    sections: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and the open questions without which it is not final."""

    plan: Plan
    questions: Questions


def decide(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Decided:
    """Plan all app clusters, or `only` some.

    Where there are questions, the plan is final only with their answers in `live`.
    """
    draft = _draft(fleet, live, only)
    uncounted = (key for key, count in draft.in_use.items() if count is None)
    asked = Questions(
        in_use=frozenset((key.cluster, instances(key.group, key.resource)) for key in uncounted),
        bodies=frozenset(draft.bodies),
    )
    return Decided(_plan(fleet, live, draft), asked)


def plan(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Plan:
    """Return the plan of a live state that holds all answers, such as a snapshot."""
    return decide(fleet, live, only=only).plan


def _plan(fleet: Fleet, live: Live, draft: _Draft) -> Plan:
    in_use = prune_units.units_in_use(fleet.guards, draft.changes, draft.in_use, draft.consented)
    whole_run = prune_units.run_guards(fleet, draft.changes, draft.changes, draft.unread)
    changes = prune_units.marked(draft.changes, in_use, whole_run)
    tripped = [*draft.held, *(in_use[unit] for unit in sorted(in_use)), *whole_run]
    made = Plan(
        fleet=fleet.name,
        revision=fleet.revision,
        digest=fleet.digest,
        changes=changes,
        sections=draft.sections,
        widened=tuple(draft.widened),
        held=tuple(tripped),
        unseen=tuple(sorted(draft.unseen, key=lambda one: one.name)),
        warnings=tuple(sorted(draft.warnings)),
        clusters_total=len(live.control_planes) + len(draft.sections),
    )
    return identified(made)


def _draft(fleet: Fleet, live: Live, only: Collection[str] | None) -> _Draft:
    draft = _Draft()
    planes = preflight.control_planes(fleet, live)
    names = sorted(name for name in fleet.clusters if only is None or name in only)
    draft.unseen += _unseen(fleet, live, names)
    draft.warnings |= set(roots.warnings(fleet, {name: one.seen for name, one in planes.items()}))
    preflights = preflight.preflights(fleet, live, planes, names)
    units = units_by_cluster(fleet)
    for name in names:
        cluster, wanted = fleet.clusters[name], units.get(name, ())
        draft.sections[name] = cluster.control_plane
        found = preflights.get(name)
        if cluster.suspended is not None:
            draft.changes.append(_whole(cluster, f"suspended: {cluster.suspended}", Action.NOOP))
            draft.warnings.add(f"{name}/cluster: suspended: {cluster.suspended}")
        elif found is None:
            reason = "the cluster, or its control plane, could not be read"
            draft.changes += _each(wanted, reason, Action.UNKNOWN)
        elif isinstance(found, Blocked):
            _block(draft, cluster, wanted, found)
        else:
            _site(draft, found, wanted)
    for plane in sorted(draft.awaiting):
        lease = leases.of_backend(control_plane_ref_name(plane))
        draft.bodies.add(lease)
        draft.warnings |= _without_backend(plane, planes[plane].seen.bodies, lease)
    removed = prune_clusters.removed(fleet, live)
    states = [
        (name, one)
        for name, one in sorted({**live.clusters, **removed}.items())
        if (only is None or name in only) and (name in removed or name in fleet.clusters)
    ]
    seen = [Index(name, one) for name, one in states if isinstance(one, ClusterState)]
    left = [app for app in seen if app.name in removed]
    unread = [name for name, one in states if isinstance(one, Unavailable)]
    awake = {name for name in names if fleet.clusters[name].suspended is None}
    unplaced = [
        app for app in seen if app.name in awake and not isinstance(preflights.get(app.name), Site)
    ]
    if left or unread or unplaced:
        known = prune_clusters.known_of(fleet, live)
        _leave(draft, known, left, planes)
        draft.unread = prune_clusters.unread(known, planes.values(), unread, unplaced)
    return draft


def _without_backend(plane: str, known: Mapping[Ref, Manifest | None], lease: Ref) -> set[str]:
    if lease not in known:
        return set()
    look = leases.look_of(known[lease])
    problem = leases.NO_BACKEND
    if look is not None and look.renewed_at is not None:
        problem = leases.backend_stopped(look.namespace, look.renewed_at)
    return {f"control plane {plane}: {problem}; new bindings wait for it"}


def _leave(
    draft: _Draft, known: prune_clusters.Known, left: Iterable[Index], planes: Mapping[str, Index]
) -> None:
    """Let clusters go that no document names."""
    # Two documents may name one control plane: what is there leaves once.
    distinct = {planes[name].seen.uid: name for name in sorted(planes, reverse=True)}
    for app, plane_name in product(left, sorted(distinct.values())):
        for gone in prune_clusters.cluster_prunes(known, planes[plane_name], app):
            draft.sections[app.name] = plane_name
            for prune in gone.prunes:
                _prune(draft, gone.site, prune)
            draft.changes.append(
                replace(prune_clusters.change_of(gone), placement=gone.site.placement)
            )


def _prune(draft: _Draft, site: Site, prune: prune_units.Prune) -> None:
    count = _count(draft, site.app, prune.key)
    if prune.own is DeletionPolicy.DELETE:
        draft.consented.add(prune.key)
    change = prune_units.change_of(site, prune, in_use=count)
    draft.changes.append(replace(change, placement=site.placement))


def _site(draft: _Draft, site: Site, wanted: Sequence[Unit]) -> None:
    """Plan one app cluster: its interrupted releases, its own objects, its units, its prunes."""
    fleet, first = site.fleet, len(draft.changes)
    rules = prune_units if site.is_direct else app_cluster_bindings
    draft.changes += map(partial(_resumed, site), rules.interrupted(site))
    leaving = rules.prunes(site)
    if wanted or site.control_plane.get(NAMESPACE, "", site.placement.space) is not None:
        stays = any(
            fleet.guards.mode is not PruneMode.AUTO or prune.policy is DeletionPolicy.BLOCK
            for prune in leaving
        )
        needs = plan_cluster(site, wanted, keeps_rights=stays)
        draft.changes += needs
        # Of the account of a new space, it is not known that its name is free.
        draft.bodies |= {
            change.ref
            for change in needs
            if change.action is Action.CREATE
            and (change.ref.cluster, change.ref.kind) == (site.control_plane.name, SERVICE_ACCOUNT)
            and change.ref not in site.control_plane.seen.bodies
        }
        draft.warnings |= address_warnings(site, needs)
    undecided = site.undecided
    for unit, planned in _units(site, wanted):
        _add_unit(draft, site, unit, planned, undecided=undecided)
    at, of = site.placement.space, site.control_plane
    # What only a backend makes, also by an apply before.
    if any(of.get(api.API_SERVICE_EXPORT, at, unit.key.name) is None for unit in wanted):
        draft.awaiting.add(site.cluster.control_plane)
    draft.warnings |= rules.unmanaged_warning(site)
    if fleet.guards.mode is not PruneMode.OFF:
        for prune in leaving:
            _prune(draft, site, prune)
            if wanted and prune.policy is DeletionPolicy.RELEASE:
                draft.warnings.add(f"{prune.key}: {_ENDANGERED}")
    draft.changes[first:] = [
        replace(change, placement=site.placement) if change.acts else change
        for change in draft.changes[first:]
    ]


def _resumed(site: Site, prune: prune_units.Prune) -> Change:
    """Return the line that ends an interrupted release of a unit that the files want again."""
    line = prune_units.change_of(site, replace(prune, policy=DeletionPolicy.RELEASE))
    reason = "its release had not ended, and the files name it again"
    # It stays, so no guard of what leaves holds it.
    return replace(line, action=Action.UPDATE, reason=reason)


def _add_unit(draft: _Draft, site: Site, unit: Unit, planned: UnitPlan, *, undecided: bool) -> None:
    others = tuple(sorted({site.fleet.units[key].binding for key in unit.depends_on}))
    draft.changes += (
        replace(change, waits_for=others) if change.acts else change
        for change in (
            *(
                # Of a unit whose credentials only an apply may read.
                replace(one, reason=f"{one.reason}; {LOOKED_AT}") if undecided else one
                for one in planned.changes
            ),
            *owner_changes(site, unit, planned),
        )
    )
    draft.widened += planned.widened
    draft.warnings |= set(planned.warnings)
    draft.bodies |= planned.bodies
    if any(change.action is Action.REPLACE and not change.keeps_data for change in planned.changes):
        _count(draft, site.app, unit.key)


def _units(site: Site, wanted: Sequence[Unit]) -> Iterator[tuple[Unit, UnitPlan]]:
    """Plan the units; a claim that no resource of its Binding offers blocks all of them."""
    planned = [(unit, plan_unit(site, unit)) for unit in wanted]
    nowhere: dict[str, set[Claim]] = {}
    for unit, one in planned:
        missing = set(one.unoffered)
        nowhere[unit.binding] = nowhere.get(unit.binding, missing) & missing
    for unit, one in planned:
        lost = sorted(nowhere[unit.binding], key=lambda claim: claim.origin)
        if not lost or one.changes[0].action is Action.BLOCKED:
            yield unit, one
            continue
        blocked = line_of(unit, one.changes[-1].ref, Action.BLOCKED, _nowhere(site, unit, lost[0]))
        yield unit, UnitPlan((blocked,), bodies=one.bodies)


def _nowhere(site: Site, unit: Unit, claim: Claim) -> str:
    """Describe a claim that no resource of its Binding offers."""
    problem = (
        f"the claim on {claim.resource} ({claim.origin}) is offered by no resource of "
        f"binding {unit.binding}: take it out"
    )
    found = offered_by(site.control_plane, claim)
    listed = ", ".join(found[:_EXAMPLES])
    return f"{problem}, or add a resource that offers it ({listed})" if found else problem


def _count(draft: _Draft, app: Index, key: UnitKey) -> int | None:
    """Note that a unit's instances matter, and return their number where it is known."""
    count = app.seen.in_use.get(instances(key.group, key.resource))
    if count is None and app.get(CRD, "", key.name) is None:
        count = 0  # a kind without a CRD has no instances
    draft.in_use[key] = count
    return count


def _block(draft: _Draft, cluster: AppCluster, wanted: Sequence[Unit], misplaced: Blocked) -> None:
    """Hold back a whole cluster, or leave it to an apply."""
    action = Action.ADOPT if misplaced.by_apply else Action.BLOCKED
    if action is Action.BLOCKED:
        draft.held.append(Tripped(misplaced.guard, misplaced.reason, (cluster.name,)))
    draft.changes.append(_whole(cluster, misplaced.reason, action))
    draft.changes += _each(wanted, misplaced.reason, action)


def _whole(cluster: AppCluster, reason: str, action: Action) -> Change:
    return Change(
        cluster=cluster.name,
        subject="cluster",
        ref=Ref(cluster.name, NAMESPACE, "", ""),
        action=action,
        reason=reason,
        origin=cluster.origin,
    )


def _each(units: Sequence[Unit], reason: str, action: Action) -> Iterator[Change]:
    """Yield a line for each unit, about all its objects in its app cluster."""
    for unit in units:
        yield line_of(unit, prune_units.all_of(unit.key, unit.key.cluster), action, reason)


def _unseen(fleet: Fleet, live: Live, names: Sequence[str]) -> Iterator[UnseenCluster]:
    """Yield the clusters that could not be read, but no suspended one.

    What is not in `live` at all, as in a snapshot older than the files, was not read either.
    """
    absent = Unavailable("it was not read", "Take a snapshot with the files as they are now")
    awake = [name for name in names if fleet.clusters[name].suspended is None]
    needed = {fleet.clusters[name].control_plane for name in awake} | live.control_planes.keys()
    planes = [
        (control_plane_ref_name(name), live.control_planes.get(name, absent)) for name in needed
    ]
    clusters = [(name, live.clusters.get(name, absent)) for name in awake]
    return (
        UnseenCluster(name, seen.reason, seen.remedy)
        for name, seen in (*planes, *clusters, *prune_clusters.removed(fleet, live).items())
        if isinstance(seen, Unavailable)
    )
