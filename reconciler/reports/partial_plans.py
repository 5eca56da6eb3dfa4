"""Takes parts of a plan as plans of their own: releases by name, or repairs. Pure.

Releases (`klutchctl release`): a unit that the files name is refused, because the next apply would
bind it again. So are units of others (mapping.md 0), and units that their policy deletes or keeps.


Repairs (mapping.md 0, Drift): our objects that differ from the files. A plan cannot distinguish an
edit of the files from an edit in a cluster. An object counts as lost if it is missing, and the rest
of its unit exists and is ours: the Secret of a space, the binding of an existing export. A unit
without any object looks like a new one, and is no repair.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core import names
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import grouped
from reconciler.core.refs import NAMESPACE
from reconciler.fleet import wording
from reconciler.fleet.values import DeletionPolicy, Fleet, PruneMode, UnitKey
from reconciler.planning import prune_units
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.planfile import identified

_Group: TypeAlias = tuple[str, UnitKey | str]  # an app cluster, and a unit or what comes once

_TARGET: Final = re.compile("[^./][^/]*/[^./][^/]*")
_REPAIRS: Final = frozenset({Action.UPDATE, Action.REPLACE})
_LIVES: Final = _REPAIRS | {Action.NOOP}


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """An app cluster, and the name of a Binding or of a unit (`plural.group`) in it."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"

    def means(self, unit: UnitKey, binding: str) -> bool:
        return unit.cluster == self.cluster and self.name in (unit.name, binding)


def parse_target(text: str) -> Target:
    """Parse the name of a cluster or a unit. Raises ConfigError where it has another form."""
    cluster, _, name = text.partition("/")
    if not _TARGET.fullmatch(text):
        hint = "Such as shop-eu-1/orders-db, or shop-eu-1/postgresqlinstances.anynines.com"
        raise ConfigError("it is not CLUSTER/BINDING", where=wording.quoted(text), hint=hint)
    return Target(cluster, name)


def targets_and_path(arguments: Sequence[str]) -> tuple[list[Target], str]:
    """Return the targets that a command line names, and the path behind them, "" for none.

    The last of several arguments is a path where it has not the form of a target, as `.`, `fleet`
    and `./fleets/eu`. Raises ConfigError.
    """
    *before, last = arguments
    if before and not _TARGET.fullmatch(last):
        return [parse_target(one) for one in before], last
    return [parse_target(one) for one in arguments], ""


def named_units(changes: Iterable[Change], target: Target) -> set[UnitKey]:
    return {
        change.unit
        for change in changes
        if change.unit is not None and target.means(change.unit, change.subject)
    }


def unknown(fleet: Fleet, plan: Plan, target: Target, foreign: Collection[UnitKey]) -> ConfigError:
    """Return the error of a target that is neither in the files nor live, with the nearest name.

    `foreign` are the live units that are not ours.
    """
    known = {
        *((key, unit.binding) for key, unit in fleet.units.items()),
        *((line.unit, line.subject) for line in plan.changes if line.unit is not None),
        *((key, key.name) for key in foreign),
    }
    clusters = {*fleet.clusters, *(line.cluster for line in plan.changes)}
    if target.cluster not in clusters:
        hint = wording.nearest(target.cluster, clusters)
        return ConfigError("there is no such cluster", where=str(target), hint=hint)
    there = chain(*((key.name, binding) for key, binding in known if key.cluster == target.cluster))
    message = f"{wording.quoted(target.name)} is neither in the files nor live in {target.cluster}"
    return ConfigError(message, where=str(target), hint=wording.nearest(target.name, {*there}))


def check(fleet: Fleet, named: Collection[Target]) -> None:
    """Raise ConfigError for a target that the files name, or in a suspended cluster."""
    for target in named:
        cluster = fleet.clusters.get(target.cluster)
        if cluster is not None and cluster.suspended is not None:
            message = f"{cluster.name} is suspended: {cluster.suspended}"
            hint = "Take spec.suspend out of its document first"
            raise ConfigError(message, where=str(cluster.origin), hint=hint)
        for _, unit in sorted(fleet.units.items()):
            if target.means(unit.key, unit.binding):
                raise ConfigError(
                    f"Binding {unit.binding} still binds {unit.key.name} in {target.cluster}, so "
                    "the next apply would bind it again",
                    where=str(unit.origin),
                    hint="Take it out of the files first, or exclude the cluster in its selector",
                )


def letting_go(fleet: Fleet) -> Fleet:
    """Return a fleet with a plan that releases its leavers, whatever `prune` sets.

    Nor do its budgets count: a person names each unit. A unit that its own policy deletes or holds
    is still deleted or held by that plan.
    """
    asked = replace(
        fleet.guards,
        mode=PruneMode.AUTO,
        max_deletes=sys.maxsize,
        max_delete_percent=100,
        on_cluster_leave=DeletionPolicy.RELEASE,
    )
    return replace(fleet, guards=asked)


def without_budgets(fleet: Fleet) -> Fleet:
    """Return a fleet for the apply of a plan that `releases` has held against the guards.

    That apply plans all that left again, and does nothing of it but what was approved.
    """
    return replace(fleet, guards=replace(letting_go(fleet).guards, allow_empty=True))


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
        found = named_units(plan.changes, target)
        if not found and target.cluster not in stuck:
            raise _not_found(fleet, plan, target, foreign)
        units |= found
    lines = [change for change in plan.changes if change.unit in units or change in whole]
    for line in lines:
        if line.action is Action.DELETE:
            raise ConfigError(
                "left the files with deletionPolicy Delete: it is not for releasing",
                where=str(line.unit),
                hint="Name it in the files again with deletionPolicy: Release, apply that, and "
                "then take it out",
            )
    return _guarded(fleet, plan, lines, clusters)


def _guarded(fleet: Fleet, plan: Plan, lines: Sequence[Change], clusters: Collection[str]) -> Plan:
    """Hold the lines against the guards as a run of their own, which they are."""
    free = [replace(line, held=()) for line in lines]
    tripped = prune_units.run_guards(letting_go(fleet), free, plan.changes)
    stuck = {(line.cluster,) for line in lines if _is_blocked_whole(line)}
    misplaced = [one for one in plan.held if one.clusters in stuck]
    return identified(
        replace(
            plan,
            changes=prune_units.marked(free, {}, tripped),
            sections={name: at for name, at in plan.sections.items() if name in clusters},
            widened=(),
            held=(*misplaced, *tripped),
            warnings=(),
        )
    )


def _is_blocked_whole(change: Change) -> bool:
    return change.unit is None and change.action is Action.BLOCKED


def _not_found(
    fleet: Fleet, plan: Plan, target: Target, foreign: Collection[UnitKey]
) -> ConfigError:
    if any(target.means(unit, "") for unit in foreign):
        return ConfigError(
            "is not ours: klutchctl does not touch it before you adopt it",
            where=str(target),
            hint="Take it over first: `klutchctl import`, then `klutchctl apply`",
        )
    return unknown(fleet, plan, target, foreign)


def drift(plan: Plan) -> Plan:
    """Return the plan of the repairs alone, with an id of its own.

    What could not be compared, because it is blocked or was not read, stays in it: unknown is
    not the same as none. What agrees stays to be counted. Notes are left out.
    """
    groups = grouped(plan.changes, _group)
    roots = _our_roots(plan.changes, groups)
    kept = tuple(change for change in plan.changes if _stays(change, groups[_group(change)], roots))
    repaired = {change.unit for change in kept if change.action in _REPAIRS}
    return identified(
        replace(
            plan,
            changes=kept,
            widened=tuple(claim for claim in plan.widened if claim.unit in repaired),
            held=tuple(
                tripped
                for tripped in plan.held
                if any(  # one that is misplaced is held as a whole cluster
                    tripped.guard in one.held or (one.action is Action.BLOCKED and one.unit is None)
                    for one in kept
                    if one.cluster in tripped.clusters
                )
            ),
            warnings=(),
        )
    )


def _group(change: Change) -> _Group:
    if change.unit is not None:
        return change.cluster, change.unit
    return change.cluster, names.KONNECTOR if change.subject == names.KONNECTOR else ""


def _our_roots(changes: Sequence[Change], groups: Mapping[_Group, list[Change]]) -> frozenset[str]:
    """Return the clusters whose space, or AppClusterBinding, is live and ours."""
    roots: dict[str, Change] = {}
    for change in changes:
        if change.unit is None and change.ref.kind == APP_CLUSTER_BINDING:
            roots[change.cluster] = change
        elif change.ref.kind == NAMESPACE and change.subject == "space":
            roots.setdefault(change.cluster, change)
    return frozenset(
        name
        for name, root in roots.items()
        if root.action in _LIVES and not _is_adopted(root, groups[_group(root)])
    )


def _stays(change: Change, group: list[Change], roots: frozenset[str]) -> bool:
    match change.action:
        case Action.NOOP | Action.UNKNOWN:
            return True
        case Action.BLOCKED:
            return change.origin is not None  # else it left the files
        case Action.UPDATE | Action.REPLACE:
            return not change.only_notes and not _is_adopted(change, group)
        case Action.CREATE:
            actions = {one.action for one in group}
            is_lost = bool(actions & _LIVES) and Action.ADOPT not in actions
            return change.cluster in roots and is_lost
        case _:
            return False


def _is_adopted(change: Change, group: list[Change]) -> bool:
    """Return whether an object, or any of a unit's, is not ours yet."""
    return any(
        one.action is Action.ADOPT and (change.unit is not None or one.ref == change.ref)
        for one in group
    )
