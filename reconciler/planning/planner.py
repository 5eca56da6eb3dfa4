"""The plan: what the files want against what is live, cluster by cluster, and then as a whole.

Deterministic: the same fleet and the same live state give the same plan, byte for byte. Nothing
that was not seen completely is ever released, replaced or deleted.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.core.live import Live, Questions, Seen, Unseen, control_plane_ref_name, instances
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import AppCluster, Claim, Fleet, Mode, PruneMode, Unit, UnitKey
from reconciler.planning import addresses, app_cluster_bindings, guards, leavers, leaving, placement
from reconciler.planning.changes import (
    Action,
    Change,
    Held,
    Plan,
    UnseenCluster,
    WidenedClaim,
)
from reconciler.planning.clusters import plan_cluster
from reconciler.planning.index import Index
from reconciler.planning.placement import Misplaced
from reconciler.planning.planfile import plan_id
from reconciler.planning.units import Site, UnitPlan, blocked, plan_unit


@dataclass(slots=True)
class _Draft:
    """What has been decided so far; only this module fills it."""

    changes: list[Change] = field(default_factory=list)
    widened: list[WidenedClaim] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    unseen: list[UnseenCluster] = field(default_factory=list)
    warnings: set[str] = field(default_factory=set)
    bodies: set[Ref] = field(default_factory=set)
    in_use: dict[UnitKey, int | None] = field(default_factory=dict)  # None = not counted yet
    sections: dict[str, str] = field(default_factory=dict)


def questions(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Questions:
    """Return what has to be read, beyond the usual, before `plan` can decide everything."""
    draft = _draft(fleet, live, only)
    uncounted = (key for key, count in draft.in_use.items() if count is None)
    return Questions(
        in_use=frozenset((key.cluster, instances(key.group, key.resource)) for key in uncounted),
        bodies=frozenset(draft.bodies),
    )


def plan(fleet: Fleet, live: Live, *, only: Collection[str] | None = None) -> Plan:
    """Return the plan, of all app clusters or `only` some.

    `live` should hold the answers to `questions`.
    """
    draft = _draft(fleet, live, only)
    counts = {str(key): count for key, count in draft.in_use.items() if count}
    known = set(fleet.units) | {one.unit for one in draft.changes if one.unit is not None}
    extent = guards.Extent(wanted=len(fleet.units), known=len(known))
    held = [
        *draft.held,
        *guards.held_units(fleet.guards, draft.changes, counts),
        *guards.held_back(fleet.guards, draft.changes, extent),
    ]
    made = Plan(
        fleet=fleet.name,
        revision=fleet.revision,
        digest=fleet.digest,
        changes=tuple(draft.changes),
        sections=draft.sections,
        widened=tuple(draft.widened),
        held=tuple(held),
        unseen=tuple(sorted(draft.unseen, key=lambda one: one.name)),
        warnings=tuple(sorted(draft.warnings)),
        clusters_total=len(live.control_planes) + len(draft.sections),
    )
    return replace(made, id=plan_id(made))


def _draft(fleet: Fleet, live: Live, only: Collection[str] | None) -> _Draft:
    draft = _Draft()
    draft.unseen += _unseen(fleet, live)
    planes = {
        name: Index(control_plane_ref_name(name), seen)
        for name, seen in live.control_planes.items()
        if isinstance(seen, Seen)
    }
    twins = _twins(live)
    units = units_by_cluster(fleet)
    for name in sorted(fleet.clusters if only is None else only):
        cluster, wanted = fleet.clusters[name], units.get(name, ())
        draft.sections[name] = cluster.control_plane
        seen = live.clusters.get(name, Unseen("it was not read"))
        plane = planes.get(cluster.control_plane)
        if cluster.suspended is not None:
            draft.changes.append(_whole(cluster, f"suspended: {cluster.suspended}", Action.NOOP))
        elif isinstance(seen, Unseen) or plane is None:
            draft.changes += (_unknown(cluster, unit) for unit in wanted)
        elif name in twins:
            others = ", ".join(sorted(twins[name] - {name}))
            reason = f"{others} leads to the same cluster (kube-system {seen.uid})"
            _hold(draft, cluster, wanted, Misplaced("identity", reason))
        else:
            _site(draft, fleet, cluster, plane, Index(name, seen), wanted)
    for name, seen in sorted(live.leaving.items()):
        if isinstance(seen, Seen):
            _leave(draft, fleet, Index(name, seen), planes)
    return draft


def _leave(draft: _Draft, fleet: Fleet, app: Index, planes: Mapping[str, Index]) -> None:
    """Let a cluster go that no document names."""
    for plane_name in sorted(planes):
        for gone in leavers.leavings(fleet, app.name, planes[plane_name], app):
            draft.sections[app.name] = plane_name
            for departure in gone.departures:
                count = _count(draft, app, departure.key)
                draft.changes.append(leaving.change_of(gone.site, departure, in_use=count))
            draft.changes.append(leavers.change_of(gone))


def _site(
    draft: _Draft,
    fleet: Fleet,
    cluster: AppCluster,
    plane: Index,
    app: Index,
    wanted: Sequence[Unit],
) -> None:
    direct = fleet.control_planes[cluster.control_plane].mode is Mode.DIRECT
    finder = placement.place if direct else app_cluster_bindings.place
    footing = placement.wrong_identity(cluster, app) or finder(fleet, cluster, plane, app)
    if isinstance(footing, Misplaced):
        _hold(draft, cluster, wanted, footing)
        return
    site = Site(fleet, footing, plane, app)
    if wanted or plane.get(NAMESPACE, "", footing.space) is not None:
        needs = plan_cluster(site, cluster, wanted)
        draft.changes += needs
        draft.warnings |= _address_warnings(fleet, cluster, site, needs)
    for unit, planned in _units(site, wanted, direct=direct):
        draft.changes += planned.changes
        draft.widened += planned.widened
        draft.warnings |= set(planned.warnings)
        draft.bodies |= planned.bodies
        if any(one.action is Action.REPLACE and not one.keeps_data for one in planned.changes):
            _count(draft, app, unit.key)
    if fleet.guards.mode is not PruneMode.OFF:
        gone = (
            leaving.departures(site, cluster.name)
            if direct
            else app_cluster_bindings.departures(site, cluster)
        )
        for departure in gone:
            count = _count(draft, app, departure.key)
            draft.changes.append(leaving.change_of(site, departure, in_use=count))


def _address_warnings(
    fleet: Fleet, cluster: AppCluster, site: Site, needs: Sequence[Change]
) -> set[str]:
    """Warn where a kubeconfig that would be made leads nowhere from the other side."""
    made = any(one.ref.kind == SECRET and one.action is Action.CREATE for one in needs)
    plane = fleet.control_planes[cluster.control_plane]
    target = plane if plane.mode is Mode.DIRECT else cluster
    said = addresses.warning(target, site.footing.address) if site.footing.address else ""
    return {said} if made and said else set()


def _units(site: Site, wanted: Sequence[Unit], *, direct: bool) -> Iterator[tuple[Unit, UnitPlan]]:
    """Plan the units; a claim that no resource of its Binding offers blocks all of them."""
    decide = plan_unit if direct else app_cluster_bindings.plan_unit
    planned = [(unit, decide(site, unit)) for unit in wanted]
    nowhere: dict[str, set[Claim]] = {}
    for unit, one in planned:
        missing = set(one.unoffered)
        nowhere[unit.binding] = nowhere.get(unit.binding, missing) & missing
    for unit, one in planned:
        lost = sorted(nowhere[unit.binding], key=lambda claim: claim.origin)
        if not lost or one.changes[0].action is Action.BLOCKED:
            yield unit, one
            continue
        reason = (
            f"the claim on {lost[0].resource} ({lost[0].origin}) is offered by no resource of "
            f"binding {unit.binding}"
        )
        yield unit, UnitPlan((blocked(unit, one.changes[-1].ref, reason),), bodies=one.bodies)


def _count(draft: _Draft, app: Index, key: UnitKey) -> int | None:
    """Note that a unit's instances matter, and return their number where it is known."""
    count = app.seen.in_use.get(instances(key.group, key.resource))
    draft.in_use[key] = count
    return count


def _hold(draft: _Draft, cluster: AppCluster, wanted: Sequence[Unit], misplaced: Misplaced) -> None:
    """Hold back a whole cluster."""
    draft.held.append(Held(misplaced.guard, misplaced.reason, (cluster.name,)))
    draft.changes.append(_whole(cluster, misplaced.reason, Action.BLOCKED))
    draft.changes += (
        replace(_unknown(cluster, unit), action=Action.BLOCKED, reason=misplaced.reason)
        for unit in wanted
    )


def _whole(cluster: AppCluster, reason: str, action: Action) -> Change:
    return Change(
        cluster=cluster.name,
        subject="cluster",
        ref=Ref(cluster.name, NAMESPACE, "", ""),
        action=action,
        reason=reason,
        origin=cluster.origin,
    )


def _unknown(cluster: AppCluster, unit: Unit) -> Change:
    key = unit.key
    return Change(
        cluster=cluster.name,
        subject=unit.binding,
        ref=Ref(cluster.name, instances(key.group, key.resource), "", ""),
        action=Action.UNKNOWN,
        reason="the cluster, or its control plane, could not be read",
        origin=unit.origin,
        unit=key,
    )


def _unseen(fleet: Fleet, live: Live) -> Iterator[UnseenCluster]:
    """Yield what could not be read; a suspended cluster was not meant to be."""
    planes = [(control_plane_ref_name(n), one) for n, one in live.control_planes.items()]
    asleep = {name for name, one in fleet.clusters.items() if one.suspended is not None}
    clusters = [(name, one) for name, one in live.clusters.items() if name not in asleep]
    for name, seen in (*planes, *clusters, *live.leaving.items()):
        if isinstance(seen, Unseen):
            yield UnseenCluster(name, seen.reason, seen.remedy)


def _twins(live: Live) -> dict[str, set[str]]:
    """Return, for each cluster that another document leads to as well, all their names."""
    by_uid: dict[str, set[str]] = defaultdict(set)
    for name, seen in live.clusters.items():
        if isinstance(seen, Seen):
            by_uid[seen.uid].add(name)
    return {name: names for names in by_uid.values() if len(names) > 1 for name in names}
