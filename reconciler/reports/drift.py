"""Finds the repairs in a plan: objects of ours that differ from the files (mapping.md 0, Drift).

A plan tells what differs, not who changed it: an edit of the files and an edit in a cluster look
alike. Lost is what has to be created although the rest of it is there and ours: the Secret of a
space, the binding whose export exists. A unit of which nothing is left looks like a new one, and
is not here.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from reconciler.api.bindings import APP_CLUSTER_BINDING
from reconciler.core import names
from reconciler.core.refs import NAMESPACE
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan
from reconciler.planning.planfile import identified

_Group: TypeAlias = tuple[str, UnitKey | str]  # an app cluster, and a unit or what comes once

_REPAIRS: Final = frozenset({Action.UPDATE, Action.REPLACE})
_LIVES: Final = _REPAIRS | {Action.NOOP}


def drift(plan: Plan) -> Plan:
    """Return the plan of the repairs alone, with an id of its own.

    What could not be compared, because it is blocked or was not read, stays in it: unknown is
    not the same as none. What agrees stays to be counted. Notes are left out.
    """
    groups: dict[_Group, list[Change]] = defaultdict(list)
    for change in plan.changes:
        groups[_group(change)].append(change)
    homes = _our_homes(plan.changes, groups)
    kept = tuple(change for change in plan.changes if _stays(change, groups[_group(change)], homes))
    repaired = {change.unit for change in kept if change.action in _REPAIRS}
    return identified(
        replace(
            plan,
            changes=kept,
            widened=tuple(claim for claim in plan.widened if claim.unit in repaired),
            held=tuple(
                held
                for held in plan.held
                if any(
                    _holds(held.guard, change) for change in kept if change.cluster in held.clusters
                )
            ),
            warnings=(),
        )
    )


def _group(change: Change) -> _Group:
    if change.unit is not None:
        return change.cluster, change.unit
    return change.cluster, names.KONNECTOR if change.subject == names.KONNECTOR else ""


def _our_homes(changes: Sequence[Change], groups: Mapping[_Group, list[Change]]) -> frozenset[str]:
    """Return the clusters whose space, or AppClusterBinding, is live and ours."""
    homes: dict[str, Change] = {}
    for change in changes:
        if change.unit is None and change.ref.kind == APP_CLUSTER_BINDING:
            homes[change.cluster] = change
        elif change.ref.kind == NAMESPACE and change.subject == "space":
            homes.setdefault(change.cluster, change)
    return frozenset(
        name
        for name, home in homes.items()
        if home.action in _LIVES and not _is_adopted(home, groups[_group(home)])
    )


def _stays(change: Change, group: list[Change], homes: frozenset[str]) -> bool:
    match change.action:
        case Action.NOOP | Action.UNKNOWN:
            return True
        case Action.BLOCKED:
            return change.origin is not None  # else it left the files
        case Action.UPDATE | Action.REPLACE:
            return not change.only_notes and not _is_adopted(change, group)
        case Action.CREATE:
            return change.cluster in homes and _is_lost(group)
        case _:
            return False


def _is_adopted(change: Change, group: list[Change]) -> bool:
    """Tell whether an object, or any of a unit's, is not ours yet."""
    return any(
        one.action is Action.ADOPT and (change.unit is not None or one.ref == change.ref)
        for one in group
    )


def _is_lost(group: list[Change]) -> bool:
    actions = {change.action for change in group}
    return bool(actions & _LIVES) and Action.ADOPT not in actions


def _holds(guard: str, change: Change) -> bool:
    """Tell whether a guard holds this line; one that is misplaced is held as a whole cluster."""
    return guard in change.held or (change.action is Action.BLOCKED and change.unit is None)
