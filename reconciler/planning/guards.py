"""Which releases, replaces and deletes may not happen in this run, and why (product.md, prune)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.fleet.values import DeletionPolicy, Guards, PruneMode
from reconciler.planning.changes import Action, Change, Held

PRUNING = frozenset({Action.RELEASE, Action.REPLACE, Action.DELETE})


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
    pruned = {(one.cluster, one.unit) for one in changes if one.action in PRUNING and one.unit}
    if not pruned:
        return ()
    clusters = tuple(sorted({cluster for cluster, _ in pruned}))
    held = []
    if guards.mode is PruneMode.REPORT:
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


def held_units(guards: Guards, changes: Sequence[Change], in_use: Mapping[str, int]) -> list[Held]:
    """Return the units that may not be replaced or deleted because instances of them exist.

    `in_use` counts instances by the text of a unit's key.
    """
    held = []
    for change in changes:
        count = in_use.get(str(change.unit), 0)
        risky = change.action in (Action.REPLACE, Action.DELETE) and not change.keeps_data
        if risky and change.unit and count and guards.keep_if_in_use:
            message = (
                f"{change.unit}: {count} instances exist, so it is not {change.action.value}d; "
                "remove them first, or release the unit instead"
            )
            held.append(Held("in-use", message, (change.cluster,)))
    return held


def leaving_policy(annotated: str) -> DeletionPolicy:
    """Return what to do with a unit that left: what its binding says, else Release."""
    return DeletionPolicy(annotated) if annotated in set(DeletionPolicy) else DeletionPolicy.RELEASE
