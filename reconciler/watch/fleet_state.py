"""The state of a watched fleet, and its change by each event.

One value, and many projections of it: FleetStatus, metrics, notifications, the board. Pure: the
time is passed in, and what a projection needs of the past stands in the value.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from reconciler.apply import GOOD, Outcome, Report, approval
from reconciler.core.live import control_plane_ref_name
from reconciler.fleet.values import Fleet, UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth, ordered
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import Action, Change, Tripped, UnseenCluster
from reconciler.source.following import Looked
from reconciler.source.signature import Signature
from reconciler.watch.agenda import Scope, Task, Trigger

REMEMBERED: Final = 10  # rounds in the history


class SourceProblem(StrEnum):
    """Why the files are not used; the values are reasons of conditions."""

    NONE = ""
    UNREADABLE = "SourceUnreadable"  # the repository or a file cannot be read
    INVALID = "SourceInvalid"  # it can, and is not a fleet
    UNVERIFIED = "SourceUnverified"  # a signature is missing, or the history is another


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The source of the files, and whether they can be used now.

    `revision` is the commit in use, "" before the first. It stays while a newer commit is refused:
    `refused` is the id of that commit, if it is known. `looked` is the commit that was read last.
    `why` describes a problem, and `since` is its start.
    """

    url: str = ""
    ref: str = ""
    revision: str = ""
    changed_at: datetime | None = None
    read_at: datetime | None = None
    signature: Signature | None = None
    problem: SourceProblem = SourceProblem.NONE
    why: str = ""
    refused: str = ""
    looked: Looked = field(default_factory=Looked)
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """A round that has ended. `result` is a word of `loop.result_of`, or locked, failed.

    `done` and `failed` count lines. `why` is the error of a failed round, or the list of repaired
    objects. Later rounds with the same result and no write are not recorded, but renew `why`.
    """

    ended_at: datetime
    seconds: float
    trigger: Trigger
    revision: str
    result: str
    done: int = 0
    failed: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The differences from the files after the last round, by its plan.

    `lines` with what became of each; one that was not its turn, such as a blocked one, has None.
    """

    lines: tuple[tuple[Change, Outcome | None], ...] = ()
    held: tuple[Tripped, ...] = ()
    unseen: tuple[UnseenCluster, ...] = ()
    plan_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """An object that another manager keeps changing back. Nothing repairs it before `until`."""

    cluster: str
    object: str
    manager: str
    repairs: int
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """All that is known of a fleet that is operated. A value: each event makes another.

    `suspended` is why nothing is written, or "". `shard`: the control planes that this process is
    about; () is all. `history` is newest first. `applied_at`: when a round first left nothing to
    do for `source.revision`; None until then. `looked_at`: when all clusters were last looked at
    for the board; some of it is newer.
    """

    name: str
    source: SourceView = SourceView()
    fleet: Fleet | None = None
    board: Board | None = None
    waiting: Waiting = Waiting()
    running: Task | None = None
    history: tuple[RoundRecord, ...] = ()
    storms: tuple[Storm, ...] = ()
    suspended: str = ""
    shard: tuple[str, ...] = ()
    applied_at: datetime | None = None
    looked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The end of a round: its report, and how units are after it; None where nobody looked."""

    report: Report
    board: Board | None = None
    storms: tuple[Storm, ...] = ()


def looked_at(state: FleetState, looked: Looked) -> FleetState:
    """Return the state after a look at a commit, whatever it is good for."""
    return replace(state, source=replace(state.source, looked=looked))


def source_read(
    state: FleetState, fleet: Fleet, signature: Signature | None, *, now: datetime
) -> FleetState:
    """Return the state after a look at the source that found it in order.

    Where another commit says the same, what was in place still is. After a suspension nobody knows.
    """
    before = state.fleet
    source = replace(
        state.source,
        revision=fleet.revision,
        read_at=now,
        signature=signature,
        problem=SourceProblem.NONE,
        why="",
        refused="",
        since=None,
    )
    same = before is not None and before.digest == fleet.digest
    if not same or state.source.revision != fleet.revision:
        source = replace(source, changed_at=now)
        state = replace(state, applied_at=now if same and state.applied_at else None)
    suspended = fleet.suspended or ""
    if state.suspended and not suspended:
        state = replace(state, applied_at=None)
    return replace(state, source=source, fleet=fleet, name=fleet.name, suspended=suspended)


def source_failed(
    state: FleetState, problem: SourceProblem, why: str, *, refused: str = "", now: datetime
) -> FleetState:
    """Return the state after a look at the source that found it of no use."""
    began = state.source.since if state.source.problem is problem else now
    source = replace(state.source, problem=problem, why=why, refused=refused, since=began)
    return replace(state, source=source)


def round_began(state: FleetState, task: Task) -> FleetState:
    return replace(state, running=task)


def round_ended(
    state: FleetState, task: Task, result: RoundResult, record: RoundRecord
) -> FleetState:
    waiting = _waiting(state.waiting, task.scope, result.report)
    applied = state.applied_at
    left = waiting.lines or waiting.held or waiting.unseen
    # A round that is suspended compares nothing.
    if applied is None and record.result in ("done", "nothing") and not (left or state.suspended):
        applied = record.ended_at
    return replace(
        board_seen(state, result.board, task.scope),
        running=None,
        waiting=waiting,
        storms=result.storms,
        history=_remembered(state.history, record),
        applied_at=applied,
    )


def round_failed(state: FleetState, record: RoundRecord) -> FleetState:
    """Return the state after a round that did not come to its end."""
    return replace(state, running=None, history=_remembered(state.history, record))


def board_seen(state: FleetState, board: Board | None, scope: Scope) -> FleetState:
    """Return the state after a look at units; None is no look."""
    if board is None:
        return state
    older = state.board
    if older is not None:
        # Some of the older board is newer than this; what is said to have begun since then, did.
        some = (one for one in older.clusters if scope is None or one.name in scope)
        before = replace(older, clusters=tuple(some), time=state.looked_at or older.time)
        board = merged(older, remembering(before, board), scope)
    return replace(state, board=board, looked_at=board.time if scope is None else state.looked_at)


def _waiting(before: Waiting, scope: Scope, report: Report) -> Waiting:
    plan = report.plan
    found = _undone(report)
    if scope is None:
        return Waiting(found, plan.held, plan.unseen, plan.id)
    looked_at = scope | set(map(control_plane_ref_name, plan.sections.values()))
    lines = [line for line in before.lines if line[0].cluster not in scope]
    unseen = [one for one in before.unseen if one.name not in looked_at]
    others = [one for one in before.held if not one.clusters or not scope.issuperset(one.clusters)]
    tripped = {(one.guard, one.clusters): one for one in (*others, *plan.held)}
    return Waiting(
        tuple(sorted((*lines, *found), key=lambda line: line[0].cluster)),
        tuple(tripped.values()),
        (*unseen, *plan.unseen),
        plan.id,
    )


def _undone(report: Report) -> tuple[tuple[Change, Outcome | None], ...]:
    """Return the lines that were not done. An apply makes its own of the plan's, when it begins."""
    lines = {
        approval.line_key(change): (change, None)
        for change in report.plan.changes
        if change.action is not Action.NOOP
    }
    ends = {approval.line_key(one.change): one for one in report.outcomes}
    found = lines | {
        key: (lines[key][0] if key in lines else end.change, end) for key, end in ends.items()
    }
    return tuple(
        (line, end) for line, end in found.values() if end is None or end.status not in GOOD
    )


def merged(before: Board, after: Board, scope: Scope) -> Board:
    """Return the newer board, with the older one's clusters outside `scope`.

    A look at some app clusters reads their control planes too.
    """
    if scope is None:
        return after
    looked_at = scope | {control_plane_ref_name(one.control_plane) for one in after.clusters}
    clusters = {one.name: one for one in before.clusters if one.name not in scope}
    clusters |= {one.name: one for one in after.clusters}
    unread = {one.name: one for one in before.unread if one.name not in looked_at}
    unread |= {one.name: one for one in after.unread}
    planes = [one for one in before.planes if control_plane_ref_name(one.name) not in looked_at]
    return replace(
        after,
        clusters=tuple(clusters[name] for name in sorted(clusters)),
        unread=tuple(unread[name] for name in sorted(unread)),
        planes=tuple(sorted((*planes, *after.planes), key=lambda one: one.name)),
    )


def _remembered(history: tuple[RoundRecord, ...], record: RoundRecord) -> tuple[RoundRecord, ...]:
    """Return the history with a round, which replaces the newest one if it is equal."""
    if not history or record.done or history[0].revision != record.revision:
        return (record, *history)[:REMEMBERED]
    last = history[0]
    if record.result == "nothing" and last.result in ("done", "nothing"):
        return history
    if last.done or (last.result, last.failed) != (record.result, record.failed):
        return (record, *history)[:REMEMBERED]
    return (replace(last, why=record.why), *history[1:])


# A unit, how it was, and how it is; None: it was not there, or is gone.
Turn: TypeAlias = tuple[UnitKey, BoundUnit | None, BoundUnit | None]


def changed(before: Iterable[ClusterHealth], after: Iterable[ClusterHealth]) -> Iterator[Turn]:
    """Yield the units with another state or reason than before, by cluster."""
    old, new = ({one.name: one for one in clusters} for clusters in (before, after))
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if was is now:
            continue
        units = now.units if now else ()
        known = {unit.health.unit: unit for unit in (was.units if was else ())}
        for unit in units:
            last, health = known.get(unit.health.unit), unit.health
            if last and (last.health.state, last.health.reason) == (health.state, health.reason):
                continue
            yield health.unit, last, unit
        gone = known.keys() - {unit.health.unit for unit in units}
        yield from ((key, last, None) for key, last in known.items() if key in gone)


def remembering(before: Board, after: Board) -> Board:
    """Return `after`, with the state and time of unread parts as `before`.

    What cannot be read is neither gone nor well: it is as it was when it was last read. Also units
    that are not in the files: only what is read tells that those are there.
    """
    known = {one.health.unit: one.health for one in before.units}
    clusters = {one.name: one for one in after.clusters}
    for unseen in _unseen(before, after):
        there = clusters.get(unseen.name, unseen)
        units = {one.health.unit: one for one in (*there.units, *unseen.units)}
        clusters[unseen.name] = replace(there, units=ordered(units.values()))
    remembered = (
        replace(one, units=tuple(_remembering(unit, known, before.time) for unit in one.units))
        for _, one in sorted(clusters.items())
    )
    return replace(after, clusters=tuple(remembered))


def _unseen(before: Board, after: Board) -> Iterator[ClusterHealth]:
    """Yield clusters with those of their units that nobody could see now: they may be there."""
    there = {one.health.unit for one in after.units}
    reasons = {one.name: one.reason for one in after.unread}
    for cluster in before.clusters:
        why = next((reasons[one] for one in cluster.way if one in reasons), None)
        if why is None:
            continue
        units = tuple(
            replace(one, health=UnitHealth(one.health.unit, State.UNKNOWN, "NotRead", why))
            for one in cluster.units
            if one.leaving and one.health.unit not in there
        )
        if units:
            yield replace(cluster, units=units, state=State.UNKNOWN, message=why, since=None)


def _remembering(one: BoundUnit, known: Mapping[UnitKey, UnitHealth], time: datetime) -> BoundUnit:
    last = known.get(one.health.unit)
    if last is None:
        return one
    if not one.health.exact:
        return replace(one, health=_narrowed(one.health, last, time))
    if one.health.state is not State.UNKNOWN or one.health.last_known:
        return one
    was, since = (
        (last.last_known, last.since) if last.state is State.UNKNOWN else (last.state, time)
    )
    return replace(one, health=replace(one.health, last_known=was, since=since))


def _narrowed(health: UnitHealth, last: UnitHealth, time: datetime) -> UnitHealth:
    """Return the health with the beginning that the look before proves.

    If the state changed since that look, it began after it; else its recorded start counts.
    """
    if last.state is State.UNKNOWN:
        # Of what was so before, only the state is known, and not whether it had this reason.
        began = None if last.last_known in (None, health.state) else last.since
    else:
        began = last.since if last.reason == health.reason else time
    return replace(health, since=max(filter(None, (health.since, began))))
