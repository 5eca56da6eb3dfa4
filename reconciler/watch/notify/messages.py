"""Decides the messages about a fleet: one for each change of a commit's state. Pure.

`title` is made of our words alone, fit for the pages of a public repository; `detail` may name
clusters and objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconciler.apply import Status
from reconciler.core.documents import one_line
from reconciler.fleet.wording import few
from reconciler.planning.changes import Action
from reconciler.watch.fleet_state import FleetState, SourceProblem, Waiting

_LONGEST: Final = 1000  # characters of a detail
_LONGEST_CONTEXT: Final = 255


class Phase(StrEnum):
    """The phase of a commit; the values are the words of commit statuses."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


class Reason(StrEnum):
    """Why; a commit whose phase and reason stay has not changed its state."""

    OPEN = "Open"
    SUSPENDED = "Suspended"
    IN_PLACE = "InPlace"
    READABLE = "SourceReadable"
    FAILED = "Failed"
    HELD = "Held"
    BLOCKED = "Blocked"
    SOURCE_UNREADABLE = "SourceUnreadable"
    SOURCE_INVALID = "SourceInvalid"
    SOURCE_UNVERIFIED = "SourceUnverified"


_UNUSED: Final = "so nothing is written"
_MEANINGS: Final[Mapping[Reason, tuple[Phase, str]]] = {
    Reason.OPEN: (Phase.PENDING, "being put in place"),
    Reason.SUSPENDED: (Phase.PENDING, "waits, because the fleet is suspended"),
    Reason.IN_PLACE: (Phase.SUCCESS, "in place"),
    Reason.READABLE: (Phase.SUCCESS, "the source can be used again"),
    Reason.FAILED: (Phase.FAILURE, "could not be put in place"),
    Reason.HELD: (Phase.FAILURE, "held back by a guard"),
    Reason.BLOCKED: (Phase.FAILURE, "blocked"),
    Reason.SOURCE_UNREADABLE: (Phase.FAILURE, f"the source cannot be read, {_UNUSED}"),
    Reason.SOURCE_INVALID: (Phase.FAILURE, f"the files are not a fleet, {_UNUSED}"),
    Reason.SOURCE_UNVERIFIED: (Phase.FAILURE, f"not verified, {_UNUSED}"),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a commit now."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A state change. `commit` is "" where it is about the source as a whole.

    `context` tells apart what several fleets, or shards of one, report of one commit.
    """

    fleet: str
    context: str
    commit: str
    reason: Reason
    detail: str = ""

    @property
    def phase(self) -> Phase:
        return _MEANINGS[self.reason][0]

    @property
    def title(self) -> str:
        """The title of a message, in words of ours alone."""
        return _MEANINGS[self.reason][1]


def messages(before: FleetState, after: FleetState) -> tuple[Message, ...]:
    """Return the messages from one state to the next, once for each commit."""
    old, new = standings(before), standings(after)
    found = {
        commit: standing
        for commit, standing in new.items()
        if commit not in old or old[commit].reason is not standing.reason
    }
    if "" in old and "" not in new:
        found[""] = Standing(Reason.READABLE)
    return tuple(
        Message(
            after.name,
            _context(after),
            commit,
            standing.reason,
            one_line(standing.detail)[:_LONGEST],
        )
        for commit, standing in found.items()
    )


def _context(state: FleetState) -> str:
    shard = ",".join(sorted(state.shard))
    return f"klutchctl/{state.name}{'/' if shard else ''}{shard}"[:_LONGEST_CONTEXT]


def standings(state: FleetState) -> Mapping[str, Standing]:
    """Return how it is with the commit in use, and the one that is refused, by their ids.

    A source whose trouble is no certain commit's stands under "".
    """
    source = state.source
    found = {}
    if source.revision:
        found[source.revision] = _of_commit(state)
    if source.problem is not SourceProblem.NONE:
        found[source.refused] = Standing(Reason(source.problem.value), source.why)
    return found


def _of_commit(state: FleetState) -> Standing:
    failed = _failure(state.waiting)
    last = state.history[0] if state.history else None
    if failed is not None:
        return failed
    if state.applied_at is not None:
        return Standing(Reason.IN_PLACE)
    if last is not None and last.result == "failed" and last.revision == state.source.revision:
        return Standing(Reason.FAILED, last.why)
    return Standing(Reason.SUSPENDED, state.suspended) if state.suspended else Standing(Reason.OPEN)


def _failure(waiting: Waiting) -> Standing | None:
    """Return the failure that people have to look at: others are tried again."""
    failed = [
        f"{change.cluster}, {change.subject}: {outcome.message}"
        for change, outcome in waiting.lines
        if outcome is not None and outcome.status is Status.FAILED
    ]
    if failed:
        return Standing(Reason.FAILED, f"{len(failed)} lines failed. {failed[0]}")
    if waiting.held:
        return Standing(Reason.HELD, "; ".join(one.message for one in waiting.held))
    if blocked := [change for change, _ in waiting.lines if change.action is Action.BLOCKED]:
        return Standing(Reason.BLOCKED, few(change.cluster for change in blocked))
    return None
