"""Plans nothing but the releases that a person named (`klutchctl release`). Pure.

What the files name is not let go: the next apply would bind it again. What is not ours is never
touched (mapping.md 0), and what its policy deletes or holds is not released in spite of that.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from reconciler.core.errors import ConfigError
from reconciler.fleet.values import DeletionPolicy, Fleet, PruneMode, UnitKey
from reconciler.planning import guards
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.guards import Extent
from reconciler.planning.planfile import identified
from reconciler.reports import targets
from reconciler.reports.targets import Target


def check(fleet: Fleet, named: Collection[Target]) -> None:
    """Raise ConfigError for a target that the files name, or whose cluster they suspend."""
    for target in named:
        cluster = fleet.clusters.get(target.cluster)
        if cluster is not None and cluster.suspended is not None:
            message = f"{cluster.name} is suspended: {cluster.suspended}"
            hint = "Take spec.suspend out of its document first"
            raise ConfigError(message, where=str(cluster.origin), hint=hint)
        for unit in targets.in_files(fleet, target):
            raise ConfigError(
                f"Binding {unit.binding} still binds {unit.key.name} in {target.cluster}, so the "
                "next apply would bind it again",
                where=str(unit.origin),
                hint="Take it out of the files first, or exclude the cluster in its selector",
            )


def letting_go(fleet: Fleet) -> Fleet:
    """Return a fleet whose plan releases what left it, whatever `prune` says of mode and clusters.

    A unit that its own policy deletes or holds is still deleted or held by that plan.
    """
    release = DeletionPolicy.RELEASE
    asked = replace(fleet.guards, mode=PruneMode.AUTO, on_cluster_leave=release)
    return replace(fleet, guards=asked)


def without_budgets(fleet: Fleet) -> Fleet:
    """Return a fleet for the apply of a plan that `releases` has held against the budgets.

    That apply plans all that left anew, and does nothing of it but what was approved.
    """
    return replace(fleet, guards=letting_go(fleet).guards.without_budgets())


def releases(
    fleet: Fleet, plan: Plan, named: Sequence[Target], *, foreign: Collection[UnitKey]
) -> Plan:
    """Return of `plan`, which is of `letting_go`, the releases that are named, with their guards.

    `foreign` are the live units that are not ours. What holds back a whole cluster, and what
    could not be read, stays in the plan. Raises ConfigError for a target that is not live, not
    ours, or of which the policy is Delete.
    """
    clusters = {target.cluster for target in named}
    whole = [
        change
        for change in plan.changes
        if change.cluster in clusters and _is_blocked_whole(change)
    ]
    stuck = {one.cluster for one in whole} | {cluster.name for cluster in plan.unseen}
    units: set[UnitKey] = set()
    for target in named:
        found = targets.in_plan(plan.changes, target)
        if not found and target.cluster not in stuck:
            raise _not_found(fleet, plan, target, foreign)
        units.update(found)
    lines = [change for change in plan.changes if change.unit in units or change in whole]
    for line in lines:
        _check_policy(line)
    return _guarded(fleet, plan, lines, clusters)


def _guarded(fleet: Fleet, plan: Plan, lines: Sequence[Change], clusters: Collection[str]) -> Plan:
    """Hold the lines against the budgets as a run of their own, which they are."""
    known = {*fleet.units, *(change.unit for change in plan.changes if change.unit is not None)}
    extent = Extent(wanted=len(fleet.units), known=len(known))
    free = [replace(line, held=()) for line in lines]
    held = guards.held_back(letting_go(fleet).guards, free, extent)
    misplaced = [
        one for one in plan.held if len(one.clusters) == 1 and _is_stuck(one.clusters[0], lines)
    ]
    return identified(
        replace(
            plan,
            changes=guards.marked(free, {}, held),
            sections={name: at for name, at in plan.sections.items() if name in clusters},
            widened=(),
            held=(*misplaced, *held),
            warnings=(),
        )
    )


def _is_stuck(cluster: str, lines: Sequence[Change]) -> bool:
    return any(line.cluster == cluster and _is_blocked_whole(line) for line in lines)


def _is_blocked_whole(change: Change) -> bool:
    return change.unit is None and change.action is Action.BLOCKED


def _check_policy(line: Change) -> None:
    if line.action is Action.DELETE:
        raise ConfigError(
            f"{line.unit} left the files with deletionPolicy Delete, so it is not for releasing",
            hint="Name it in the files again with deletionPolicy: Release, apply that, and then "
            "take it out",
        )


def _not_found(
    fleet: Fleet, plan: Plan, target: Target, foreign: Collection[UnitKey]
) -> ConfigError:
    if any(target.means(unit, "") for unit in foreign):
        return ConfigError(
            f"{target} is not ours: what nobody adopted is never touched",
            hint="Take it over first: `klutchctl import`, then `klutchctl apply`",
        )
    return targets.unknown(target, targets.known(fleet, plan.changes, foreign))
