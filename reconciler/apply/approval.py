"""Matches the lines of a fresh plan with those that were approved. Pure.

Lines of one unit belong together, and so do the lines of a cluster's shared objects. If one line
differs from the approved plan, none of them is applied (mapping.md 0, Staleness).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from reconciler.apply import Outcome, Status
from reconciler.core.manifest import JSON, canonical, grouped
from reconciler.core.refs import SECRET, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan

Group: TypeAlias = tuple[str, UnitKey | None]  # an app cluster, and a unit or what comes once
LineKey: TypeAlias = tuple[str, UnitKey | None, Ref, Action]

_SO_ALREADY: Final = "it is so already"


@dataclass(frozen=True, slots=True)
class Approved:
    """The lines that may be done, by app cluster and in the order of the plan, and the others."""

    lines: Mapping[str, Sequence[Change]]
    refused: tuple[Outcome, ...]


def clusters_to_change(plan: Plan) -> frozenset[str]:
    """Return the app clusters for which an apply of this plan would write anything."""
    return frozenset(change.cluster for change in plan.changes if change.acts and not change.held)


def match(approved: Plan, fresh: Plan) -> Approved:
    """Match the approved plan with a fresh one, which was made under the lock."""
    now = _Fresh.of(fresh)
    lines: dict[str, list[Change]] = defaultdict(list)
    refused: list[Outcome] = []
    for group, wanted in _groups(approved).items():
        refusal = now.refusal(group, wanted)
        if refusal is not None:
            status, why = refusal
            refused += (
                Outcome(line, status, why) if why else Outcome.held(line) for line in wanted
            )
            continue
        # Also what is held: what stands beside it has to know that it does not leave.
        known = {(line.ref, line.action): line.held for line in wanted}
        # Held by each guard that held it when it was approved, or does now: the fresh plan may be
        # of fewer clusters, among which no budget trips.
        lines[group[0]] += (
            replace(
                line,
                held=tuple(dict.fromkeys((*known.get((line.ref, line.action), ()), *line.held))),
            )
            for line in now.lines(group)
        )
        found = {line.ref for line in now.lines(group)}
        refused += (
            Outcome(line, Status.UNCHANGED, "looked at" if line.undecided else _SO_ALREADY)
            for line in wanted
            if not line.held and (line.undecided or line.ref not in found)
        )
    return _keeping_rights(now.ordered(lines), refused)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A fresh plan: its lines, and why others are lacking. `places` are those of its lines."""

    groups: Mapping[Group, Sequence[Change]]
    blocked: Mapping[Group, str]
    unseen: Mapping[str, str]
    places: Mapping[LineKey, int]

    @classmethod
    def of(cls, plan: Plan) -> "_Fresh":
        blocked = [change for change in plan.changes if change.action is Action.BLOCKED]
        return cls(
            groups=_groups(plan),
            blocked={(change.cluster, change.unit): change.reason for change in blocked},
            unseen={cluster.name: cluster.reason for cluster in plan.unseen},
            places={line_key(change): place for place, change in enumerate(plan.changes)},
        )

    def lines(self, group: Group) -> Sequence[Change]:
        """Return the lines of a fresh plan for a unit, or for the cluster itself."""
        return self.groups.get(group, ())

    def refusal(self, group: Group, wanted: Sequence[Change]) -> tuple[Status, str] | None:
        """Return how lines end that are not done, and why, "" for held; None for lines to do."""
        found, (cluster, _) = self.lines(group), group
        since = "" if found else self.blocked.get(group) or self.blocked.get((cluster, None)) or ""
        lost = not found and (bool(since) or cluster in self.unseen)
        if not lost and _is_covered(wanted, found):
            more = _more_instances(wanted, found)
            return (Status.STALE, more) if more else None
        if all(line.held for line in wanted):
            return Status.HELD, ""
        if cluster in self.unseen:
            return Status.FAILED, f"it cannot be read any more: {self.unseen[cluster]}"
        if since:
            return Status.STALE, f"blocked since: {since}"
        if not found:
            return Status.UNCHANGED, _SO_ALREADY
        return Status.STALE, _difference(wanted, found)

    def ordered(self, lines: Mapping[str, Sequence[Change]]) -> Mapping[str, Sequence[Change]]:
        """Return the lines of each cluster in the order of the plan."""
        return {
            name: sorted(lines[name], key=lambda line: self.places[line_key(line)])
            for name in sorted(lines)
        }


def line_key(change: Change) -> LineKey:
    """Return a key that distinguishes a line from all others of its plan."""
    return change.cluster, change.unit, change.ref, change.action


def _keeping_rights(lines: Mapping[str, Sequence[Change]], refused: Sequence[Outcome]) -> Approved:
    """Leave the konnector its rights where something stays that was to leave."""
    staying = {outcome.change.cluster for outcome in refused if outcome.change.leaves}
    kept = [
        line
        for name, some in lines.items()
        for line in some
        if name in staying and line.changes_rights
    ]
    skipped = [Outcome(line, Status.SKIPPED, "not all leaves that was to") for line in kept]
    rest = {name: [line for line in some if line not in kept] for name, some in lines.items()}
    return Approved(rest, (*refused, *skipped))


def _groups(plan: Plan) -> Mapping[Group, list[Change]]:
    acting = (change for change in plan.changes if change.acts)
    return grouped(acting, lambda change: (change.cluster, change.unit))


def _is_covered(wanted: Sequence[Change], found: Sequence[Change]) -> bool:
    """Return whether an approval covers all lines that would be done now.

    Who plans may not read Secrets (trust.md T2). So one that he would create may be there, what
    its kubeconfig is may be noted, and where he left the rest to an apply, that may take over
    what is there, and make Secrets that are lacking: it changes nothing that is in force. One that
    he would change by what is noted of it may hold just that already.
    """
    left_open = any(line.undecided for line in wanted)
    now = {line.ref for line in found}

    def is_open(one: Change) -> bool:
        return one.only_notes or (left_open and _is_harmless(one))

    def is_there(one: Change) -> bool:
        secret = one.ref.kind == SECRET and (one.action is Action.CREATE or not one.uid)
        return secret and not one.unit and one.ref not in now

    # A plan knows the note of a kubeconfig only; the apply has read the Secret itself.
    unread = {line.ref for line in wanted if line.ref.kind == SECRET and not line.uid}
    return [_scope(line, known=line.ref not in unread) for line in found if not is_open(line)] == [
        _scope(line, known=line.ref not in unread)
        for line in wanted
        if not is_open(line) and not is_there(line)
    ]


def _is_harmless(change: Change) -> bool:
    if change.action is Action.CREATE:
        return change.ref.kind == SECRET
    marks = all(field.path.startswith("/metadata/") for field in change.fields)
    return change.action is Action.ADOPT or (
        change.action is Action.UPDATE and marks and not change.steps
    )


def _scope(change: Change, *, known: bool = True) -> bytes:
    """Return the scope of an approval: the write, its object, and the state before, where known."""
    content: dict[str, JSON] = {
        "action": change.action.value,
        "ref": str(change.ref),
        "uid": change.uid if known else "",
        "before": change.before if known else "",
        "after": change.after,
        "steps": [[step.verb.value, str(step.ref)] for step in change.steps],
    }
    return canonical(content)


def _more_instances(wanted: Sequence[Change], found: Sequence[Change]) -> str:
    """Return instances that would be deleted, and did not exist at the approval."""
    known = {line.ref: line for line in found}
    for line in wanted:
        other = known.get(line.ref, line)
        if line.held or other.held:
            continue  # nothing is deleted
        then, now = line.instances, other.instances
        if then is not None and (now is None or now > then):
            counted = "an unknown number" if now is None else now
            return f"instances to delete: {then} when it was approved, {counted} now; plan again"
    return ""


def _difference(wanted: Sequence[Change], found: Sequence[Change]) -> str:
    known = {line.ref: line for line in found}
    for line in wanted:
        other = known.get(line.ref)
        if other is None:
            return f"{line.ref.object} is not as the plan saw it: plan again"
        if _scope(line) != _scope(other):
            return f"{line.ref.object} has changed since the plan: plan again"
    return "more would have to be done than was approved: plan again"
