"""Computes the conditions of a FleetStatus, in the form that kstatus reads.

kstatus calls an object in progress while Reconciling is True or Ready is not, failed where Stalled
is True, and current else. So Stalled is what only people can end, and a look that finds nothing to
do is no reconciling. These are metav1.Conditions; those of Klutch (core/conditions.py) have
severities, and a True one has no reason.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from reconciler.core.conditions import FALSE, READY, TRUE, UNKNOWN
from reconciler.core.decision import link_to
from reconciler.core.documents import first_of, one_line
from reconciler.core.manifest import JSON, Manifest, get_text
from reconciler.core.times import format_time
from reconciler.health.board import UNREADY
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Tripped
from reconciler.watch.agenda import AGAIN
from reconciler.watch.fleet_state import FleetState, SourceProblem, Waiting

_HTML: Final = frozenset("<>&")  # the API server stores each as six characters
_ESCAPED: Final = 6
_ELLIPSIS: Final = "..."


def cut(text: str, most: int) -> str:
    """Return a text on one line, at most `most` bytes of JSON however that is escaped.

    What cannot be printed becomes a blank: it may be half a character, or turn the line around.
    """
    clean = one_line(text[:most])
    if len(text) <= most and _size(clean) <= most:
        return clean
    room, kept = most - len(_ELLIPSIS), 0
    for one in clean:
        room -= _size(one)
        if room < 0:
            break
        kept += 1
    return f"{clean[:kept].rstrip()}{_ELLIPSIS}"


def _size(text: str) -> int:
    return len(json.dumps(text)) - 2 + (_ESCAPED - 1) * sum(one in _HTML for one in text)


RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
SOURCE_VERIFIED: Final = "SourceVerified"
_MESSAGE: Final = 1_024  # bytes
_SHORT: Final = 12  # characters of a commit
_FOR_PEOPLE: Final = frozenset({SourceProblem.INVALID, SourceProblem.UNVERIFIED})
_listed: Final = partial(first_of, comma="; ")
_NOT_SO: Final = (FALSE, "AsExpected", "")
_NOT_READ: Final = ("NotRead", "the files were not read yet")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a fleet. `reconciling`: it is being changed; `stalled`: people have to act.

    `ready` is the status of a condition; never are both others true.
    """

    ready: str
    reason: str
    message: str
    reconciling: bool = False
    stalled: bool = False

    @property
    def gravity(self) -> int:
        """Return how bad it is: 0 is Ready, 3 waits for people."""
        return 3 if self.stalled else (TRUE, UNKNOWN, FALSE).index(self.ready)


def short(revision: str) -> str:
    return revision[:_SHORT]


def verdict_of(state: FleetState) -> Verdict:
    """Return the verdict on a fleet: the first obstacle to being Ready."""
    source = state.source
    if source.problem is not SourceProblem.NONE:
        stalled = source.problem in _FOR_PEOPLE
        return Verdict(FALSE, source.problem.value, source.why, not stalled, stalled)
    if state.suspended:
        return Verdict(FALSE, "Suspended", f"nothing is written: {state.suspended}")
    if state.fleet is None:
        return Verdict(UNKNOWN, *_NOT_READ, reconciling=True)
    return _of_round(state) or _of_units(state)


def _of_round(state: FleetState) -> Verdict | None:
    """Return the gravest leftover of the last round."""
    waiting = state.waiting
    failed = {line.subject for line, end in waiting.lines if end and end.status in AGAIN}
    last = state.history[0] if state.history else None
    if guards := guards_of(waiting):
        message = _listed(f"{one.guard}: {one.message}" for one in guards)
        return Verdict(FALSE, "GuardHeld", message, stalled=True)
    if failed:
        message = f"lines of the plan failed: {_listed(sorted(failed))}"
        return Verdict(FALSE, "ApplyFailed", message, reconciling=True)
    if waiting.unseen:
        message = _listed(f"{one.name}: {one.reason}" for one in waiting.unseen)
        return Verdict(FALSE, "ClusterUnread", message, reconciling=True)
    if last is not None and last.result == "failed":
        return Verdict(FALSE, "RoundFailed", last.why, reconciling=True)
    if state.applied_at is None or waiting.lines:
        message = f"revision {short(state.source.revision)} is not in place yet"
        return Verdict(UNKNOWN, "Progressing", message, reconciling=True)
    return None


def guards_of(waiting: Waiting) -> Sequence[Tripped]:
    """Return the guards of lines: those that tripped, and lines that no apply may do."""
    explained = {name for one in waiting.held for name in one.clusters}
    blocked = [
        Tripped("blocked", f"{line.cluster}, {line.subject}: {line.reason}", (line.cluster,))
        for line, _ in waiting.lines
        if line.action is Action.BLOCKED and line.cluster not in explained
    ]
    return (*waiting.held, *blocked)


def _of_units(state: FleetState) -> Verdict:
    if state.board is None:
        return Verdict(UNKNOWN, "UnitsUnknown", "no unit was looked at yet", reconciling=True)
    if state.board.planes:
        message = _listed(f"{one.name}: {one.message}" for one in state.board.planes)
        return Verdict(FALSE, state.board.planes[0].reason, message)
    units = [one.health for one in state.board.units if not one.leaving]
    states = Counter(one.state for one in units)
    total = f"{len(units)} unit{'' if len(units) == 1 else 's'}"
    for worst in UNREADY:
        if count := states[worst]:
            found = {f"{one.unit.cluster}: {one.reason}" for one in units if one.state is worst}
            message = f"{count} of {total} {'is' if count == 1 else 'are'} {worst.value}"
            message = f"{message} ({_listed(sorted(found))})"
            progressing = worst is State.PROGRESSING
            ready = UNKNOWN if progressing else FALSE
            return Verdict(ready, f"Units{worst.value}", message, reconciling=progressing)
    note = state.source.looked.note and f"; later commits wait: {state.source.looked.note}"
    are = "is" if len(units) == 1 else "are"
    sums = f"{states[State.READY]} of {total} {are} Ready{note}"
    return Verdict(TRUE, "Applied", f"revision {short(state.source.revision)}: {sums}")


def conditions_of(
    state: FleetState, before: Sequence[Manifest], *, generation: int, now: datetime, docs: str = ""
) -> list[JSON]:
    """Return the conditions; one with the same status as `before` keeps its time."""
    found = verdict_of(state)
    link = "" if found.ready == TRUE else link_to(found.reason, docs)
    why = (found.reason, cut(found.message, _MESSAGE - len(link)) + link)
    wanted = (
        (READY, found.ready, *why),
        (RECONCILING, *((TRUE, *why) if found.reconciling else _NOT_SO)),
        (STALLED, *((TRUE, *why) if found.stalled else _NOT_SO)),
        (SOURCE_VERIFIED, *_verified(state)),
    )
    times = {get_text(one, "type"): one for one in before}
    return [
        {
            "type": kind,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": _time(times.get(kind, {}), status, now),
            "reason": reason,
            "message": cut(message, _MESSAGE),
        }
        for kind, status, reason, message in wanted
    ]


def _verified(state: FleetState) -> tuple[str, str, str]:
    source = state.source
    if source.problem is SourceProblem.UNVERIFIED:
        return FALSE, source.problem.value, source.why
    if source.signature is None:
        return UNKNOWN, *(("Off", "no signature is asked for") if source.revision else _NOT_READ)
    only = ", the first commit, so no other was looked at" if source.signature.first else ""
    return TRUE, "Verified", f"{source.signature.kind} signature of {source.signature.signer}{only}"


def _time(before: Manifest, status: str, now: datetime) -> str:
    same = get_text(before, "status") == status
    return (same and get_text(before, "lastTransitionTime")) or format_time(now)
