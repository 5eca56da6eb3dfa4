"""Explains a binding in one cluster: its lines in the files, and those of the plan. Pure.

Says nothing about its health: that is for who can read clusters.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from reconciler.core.errors import ConfigError
from reconciler.core.live import Live, control_plane_ref_name
from reconciler.fleet.load import Loaded
from reconciler.fleet.values import Fleet, PruneMode, UnitKey
from reconciler.planning.changes import Action, Change, Held, Plan, UnseenCluster
from reconciler.planning.guards import PRUNING
from reconciler.reports import targets
from reconciler.reports.provenance import Provenance, provenance
from reconciler.reports.targets import Target
from reconciler.reports.unmanaged import unmanaged_bindings

_OFF = Held("off", "prune.mode is off: what left the files is not looked at")


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
    """Return a fleet whose plan also shows what left the files, where pruning is off."""
    if fleet.guards.mode is not PruneMode.OFF:
        return fleet
    return replace(fleet, guards=replace(fleet.guards, mode=PruneMode.REPORT))


def explained(loaded: Loaded, live: Live, plan: Plan, target: Target) -> Explanation:
    """Return what a target comes to. `plan` is of the fleet as `watching` shows it.

    Raises ConfigError where nothing of that name is in the files, nor live.
    """
    source = provenance(loaded, target)
    found = unmanaged_bindings(
        loaded.fleet, live, only={target.cluster} & loaded.fleet.clusters.keys()
    )
    foreign = [one.unit for one in found]
    named = {*targets.in_plan(plan.changes, target), *(source.units if source else ())}
    unmanaged = tuple(one for one in foreign if one in named or target.means(one, ""))
    lines = tuple(
        change
        for change in plan.changes
        if change.unit in named or (change.cluster == target.cluster and _is_whole(change))
    )
    unseen = tuple(_unseen(loaded.fleet, plan, target.cluster))
    if not named and not unmanaged and not unseen:
        raise _unknown(loaded.fleet, plan, target, foreign)
    about = replace(
        plan,
        changes=lines,
        widened=tuple(claim for claim in plan.widened if claim.unit in named),
        held=tuple(_held(loaded.fleet, plan, lines)),
        unseen=unseen,
        warnings=(),
    )
    return Explanation(target, source, tuple(sorted(named)), unmanaged, about)


def _unknown(fleet: Fleet, plan: Plan, target: Target, foreign: Collection[UnitKey]) -> ConfigError:
    return targets.unknown(target, targets.known(fleet, plan.changes, foreign))


def _is_whole(change: Change) -> bool:
    """Tell whether a line says what holds for all of its cluster."""
    if change.unit is not None:
        return False
    return change.action is Action.BLOCKED or (change.subject == "cluster" and not change.ref.name)


def _held(fleet: Fleet, plan: Plan, lines: Iterable[Change]) -> Iterable[Held]:
    tripped = {(guard, line.cluster) for line in lines for guard in line.held}
    blocked = {line.cluster for line in lines if line.action is Action.BLOCKED}
    for held in plan.held:
        holds = any((held.guard, name) in tripped for name in held.clusters)
        if holds or (len(held.clusters) == 1 and held.clusters[0] in blocked):
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
