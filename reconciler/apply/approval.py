"""Which lines of a fresh plan are those that were approved, and which are not any more. Pure.

Lines of one unit belong together, and so do those of what a cluster needs once: if one of them
is not as it was approved, none of them is done (mapping.md 0, Staleness).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from reconciler.apply.outcomes import Outcome, Status
from reconciler.core.manifest import JSON, canonical
from reconciler.core.refs import SECRET
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan

Group: TypeAlias = tuple[str, UnitKey | None]  # an app cluster, and a unit or what comes once


@dataclass(frozen=True, slots=True)
class Approved:
    """What may be done, by app cluster and in the order of the plan, and what may not."""

    lines: Mapping[str, Sequence[Change]]
    refused: tuple[Outcome, ...]


def clusters_to_change(plan: Plan) -> frozenset[str]:
    """Return the app clusters for which an apply of this plan would write anything."""
    return frozenset(one.cluster for one in plan.changes if one.acts and not one.held)


def match(approved: Plan, fresh: Plan) -> Approved:
    """Hold a plan that somebody approved against one made a moment ago, under the lock."""
    now = _groups(fresh)
    blocked = {(o.cluster, o.unit): o.reason for o in fresh.changes if o.action is Action.BLOCKED}
    unseen = {one.name: one.reason for one in fresh.unseen}
    places = {id(change): place for place, change in enumerate(fresh.changes)}
    lines: dict[str, list[tuple[int, Change]]] = defaultdict(list)
    refused: list[Outcome] = []
    for group, wanted in _groups(approved).items():
        found = now.get(group, [])
        since = "" if found else blocked.get(group) or blocked.get((group[0], None)) or ""
        lost = not found and (bool(since) or group[0] in unseen)
        same = not lost and _is_covered(wanted, found)
        if same and (more := _more_instances(wanted, found)):
            refused += (Outcome(one, Status.STALE, more) for one in wanted)
        elif same:
            # Also what is held: what stands beside it has to know that it does not leave.
            known = {(one.ref, one.action): one for one in wanted}
            lines[group[0]] += (
                (places[id(one)], _held_as(one, known.get((one.ref, one.action), one)))
                for one in found
            )
            refused += (
                Outcome(one, Status.UNCHANGED, "looked at")
                for one in wanted
                if one.undecided and not one.held
            )
        elif all(one.held for one in wanted):
            refused += (Outcome(one, Status.HELD, _held(one)) for one in wanted)
        elif group[0] in unseen:
            told = f"it cannot be read any more: {unseen[group[0]]}"
            refused += (Outcome(one, Status.FAILED, told) for one in wanted)
        elif since:
            refused += (Outcome(one, Status.STALE, f"blocked since: {since}") for one in wanted)
        elif not found:
            done = "it is so already"
            refused += (Outcome(one, Status.UNCHANGED, done) for one in wanted)
        else:
            refused += (Outcome(one, Status.STALE, _difference(wanted, found)) for one in wanted)
    staying = {one.change.cluster for one in refused if one.change.leaves}
    ordered: dict[str, list[Change]] = {}
    for name in sorted(lines):
        mine = [one for _, one in sorted(lines[name], key=_place)]
        # Its konnector still needs the rights that it has.
        kept = [one for one in mine if name in staying and one.changes_rights]
        refused += (Outcome(one, Status.SKIPPED, "not all leaves that was to") for one in kept)
        ordered[name] = [one for one in mine if one not in kept]
    return Approved(ordered, tuple(refused))


def _held(change: Change) -> str:
    return f"held back: {', '.join(change.held)}"


def _place(line: tuple[int, Change]) -> int:
    return line[0]


def _held_as(fresh: Change, approved: Change) -> Change:
    """Return a line held by every guard that held it when it was approved, or does now.

    The fresh plan may be of fewer clusters, among which no budget trips.
    """
    return replace(fresh, held=tuple(dict.fromkeys((*approved.held, *fresh.held))))


def _groups(plan: Plan) -> Mapping[Group, list[Change]]:
    groups: dict[Group, list[Change]] = defaultdict(list)
    for change in plan.changes:
        if change.acts:
            groups[change.cluster, change.unit].append(change)
    return groups


def _is_covered(wanted: Sequence[Change], found: Sequence[Change]) -> bool:
    """Tell whether what was approved is all that would be done now.

    Who plans may not read Secrets (trust.md T2). So one that he would create may be there, what
    its kubeconfig is may be noted, and where he left the rest to an apply, that may take over
    what is there, and make Secrets that are lacking: it changes nothing that is in force.
    """
    left_open = any(one.undecided for one in wanted)
    now = {one.ref for one in found}

    def is_open(one: Change) -> bool:
        return one.only_notes or (left_open and _is_harmless(one))

    def is_there(one: Change) -> bool:
        secret = one.ref.kind == SECRET and one.action is Action.CREATE
        return secret and not one.unit and one.ref not in now

    # Of a kubeconfig he knows what is noted of it; whoever applies has read it anew.
    unread = {one.ref for one in wanted if one.ref.kind == SECRET and not one.uid}
    return [_said(one, known=one.ref not in unread) for one in found if not is_open(one)] == [
        _said(one, known=one.ref not in unread)
        for one in wanted
        if not is_open(one) and not is_there(one)
    ]


def _is_harmless(change: Change) -> bool:
    if change.action is Action.CREATE:
        return change.ref.kind == SECRET
    marks = all(one.path.startswith("/metadata/") for one in change.fields)
    return change.action is Action.ADOPT or (
        change.action is Action.UPDATE and marks and not change.steps
    )


def _said(change: Change, *, known: bool = True) -> bytes:
    """Return what an approval covers: what is written where, and over what, where that is known."""
    said: dict[str, JSON] = {
        "action": change.action.value,
        "ref": str(change.ref),
        "uid": change.uid if known else "",
        "before": change.before if known else "",
        "after": change.after,
        "steps": [[step.verb.value, str(step.ref)] for step in change.steps],
    }
    return canonical(said)


def _more_instances(wanted: Sequence[Change], found: Sequence[Change]) -> str:
    """Tell of instances that would be deleted and were not there when it was approved."""
    known = {one.ref: one for one in found}
    for one in wanted:
        other = known.get(one.ref, one)
        if one.held or other.held:
            continue  # nothing is deleted
        then, now = one.instances, other.instances
        if then is not None and (now is None or now > then):
            counted = "an unknown number" if now is None else now
            return f"instances to delete: {then} when it was approved, {counted} now; plan again"
    return ""


def _difference(wanted: Sequence[Change], found: Sequence[Change]) -> str:
    known = {one.ref: one for one in found}
    for one in wanted:
        other = known.get(one.ref)
        if other is None:
            return f"{one.ref.object} is not as the plan saw it: plan again"
        if _said(one) != _said(other):
            return f"{one.ref.object} has changed since the plan: plan again"
    return "more would have to be done than was approved: plan again"
