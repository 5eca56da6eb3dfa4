"""Holds back releases, replaces and deletes that a run may not do (product.md, prune)."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.fleet.values import DeletionPolicy, Guards, PruneMode, UnitKey
from reconciler.planning.changes import Action, Change, Held

PRUNING = frozenset({Action.RELEASE, Action.DELETE, Action.REPLACE})


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a run would prune: `wanted` units in the files, `known` units live or wanted."""

    wanted: int
    known: int


def budget(guards: Guards, known: int) -> int:
    """Return how many units may be pruned: the smaller of both limits; percent rounds up."""
    share = max(1, math.ceil(known * guards.max_delete_percent / 100))
    return min(guards.max_deletes, share)


def held_back(guards: Guards, changes: Sequence[Change], extent: Extent) -> tuple[Held, ...]:
    """Return the guards that trip for the run as a whole; each holds back all pruning."""
    pruning = [change for change in changes if change.action in PRUNING]
    if not pruning:
        return ()
    # A cluster that leaves is a line without a unit.
    pruned = {change.unit for change in pruning if change.unit}
    clusters = tuple(sorted({change.cluster for change in pruning}))
    held = []
    if guards.mode is PruneMode.REPORT and any(change.leaves for change in pruning):
        message = "prune.mode is report: what left the files is shown and not done"
        held.append(Held("report", message, clusters))
    if not extent.wanted and not guards.allow_empty:
        message = (
            "the files want nothing at all: nothing is released, replaced or deleted; "
            "set prune.allowEmpty if that is meant"
        )
        held.append(Held("allow-empty", message, clusters))
    limit = budget(guards, extent.known)
    if len(pruned) > limit:
        message = (
            f"{len(pruned)} units would be released, replaced or deleted, and {limit} may be "
            f"(prune.maxDeletes {guards.max_deletes}, maxDeletePercent "
            f"{guards.max_delete_percent} of {extent.known}): none is; raise the budget in the "
            "files or take smaller steps"
        )
        held.append(Held("max-deletes", message, clusters))
    return tuple(held)


def units_in_use(
    guards: Guards,
    changes: Sequence[Change],
    in_use: Mapping[UnitKey, int | None],
    consented: Collection[UnitKey],
) -> dict[UnitKey, Held]:
    """Return the units that may not be replaced or deleted because instances of them may exist.

    `in_use` counts instances; None, or nothing, is unknown, which is not none. `consented` are
    units whose own policy is Delete: with keepIfInUse false their instances go as well.
    """
    held = {}
    for change in changes:
        risky = change.action in (Action.REPLACE, Action.DELETE) and not change.keeps_data
        if not risky or change.unit is None:
            continue
        count = in_use.get(change.unit)
        meant = change.action is Action.REPLACE or change.unit in consented
        if count == 0 or (meant and not guards.keep_if_in_use):
            continue
        exist = "it is not known whether instances" if count is None else f"{count} instances"
        message = (
            f"{change.unit}: {exist} exist, so it is not {change.action.value}d; "
            "remove them first, or release the unit instead"
        )
        held[change.unit] = Held("in-use", message, (change.cluster,))
    return held


def marked(
    changes: Sequence[Change], in_use: Mapping[UnitKey, Held], whole_run: Sequence[Held]
) -> tuple[Change, ...]:
    """Return the lines, each with the guards that hold it back.

    A cluster that leaves goes only after all its units, so what holds one of them holds it. What
    a cluster needs once carries all that is built upon it.
    """
    leaving = {unit.cluster for unit in in_use}
    blocked = {one.cluster for one in changes if one.unit is None and one.action is Action.BLOCKED}

    def holding(change: Change) -> Iterator[str]:
        if change.cluster in blocked and change.acts:
            yield "blocked"
        if change.action in PRUNING:
            if change.unit in in_use or (change.unit is None and change.cluster in leaving):
                yield "in-use"
            for held in whole_run:
                if held.guard != "report" or change.leaves:
                    yield held.guard

    return tuple(
        replace(one, held=names) if (names := tuple(holding(one))) else one for one in changes
    )


def leaving_policy(annotated: str) -> DeletionPolicy:
    """Return what to do with a unit that left: what its binding says, else Release."""
    return DeletionPolicy(annotated) if annotated in set(DeletionPolicy) else DeletionPolicy.RELEASE
