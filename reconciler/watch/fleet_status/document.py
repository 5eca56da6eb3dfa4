"""Computes the status of a FleetStatus from the state of a fleet: bounded, and stable at rest.

Nothing in it moves while nothing changes, so that a fleet at rest costs no write. It has room for
any fleet: lists are capped, and each text is cut to what it may take.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler.apply import Status
from reconciler.core.live import control_plane_ref_name
from reconciler.core.manifest import JSON, Manifest, get_int, get_maps, get_text
from reconciler.core.times import format_time, moment
from reconciler.health.board import TROUBLED, ClusterHealth
from reconciler.health.verdict import State
from reconciler.planning.changes import Action
from reconciler.watch import fleet_state
from reconciler.watch.agenda import AGAIN
from reconciler.watch.fleet_status.conditions import conditions_of, cut, short

NOT_READ: Final = "NotRead"
APPLY_FAILED: Final = "ApplyFailed"
BLOCKED: Final = "Blocked"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The trouble of a cluster: a word, a sentence, and since when where that is known."""

    cluster: str
    reason: str
    message: str
    since: datetime | None = None


def troubles(state: fleet_state.FleetState) -> tuple[Trouble, ...]:
    """Return the gravest trouble of each cluster that has any, by its name."""
    found: dict[str, Trouble] = {}
    for one in _all(state):
        found.setdefault(one.cluster, one)
    return tuple(found[name] for name in sorted(found))


def _all(state: fleet_state.FleetState) -> Iterator[Trouble]:
    """Yield all troubles, the gravest first."""
    board = state.board
    beats = {one.name: one.since for one in board.clusters} if board else {}
    for unread in board.unread if board else state.waiting.unseen:
        yield Trouble(unread.name, NOT_READ, unread.reason, beats.get(unread.name))
    for plane in board.planes if board else ():
        name = control_plane_ref_name(plane.name)
        yield Trouble(name, plane.reason, plane.message, plane.since)
    for change, outcome in state.waiting.lines:
        if outcome is not None and outcome.status in AGAIN:
            message = f"{change.subject}: {outcome.message or outcome.status.value}"
            yield Trouble(change.cluster, APPLY_FAILED, message)
        elif change.action is Action.BLOCKED:
            yield Trouble(change.cluster, BLOCKED, f"{change.subject}: {change.reason}")
    for storm in state.storms:
        message = f"{storm.object} is changed back by {storm.manager or 'another manager'}"
        yield Trouble(storm.cluster, "DriftStorm", message)
    for state_of in TROUBLED:
        for cluster in board.clusters if board else ():
            yield from _of_cluster(cluster, state_of)


def _of_cluster(cluster: ClusterHealth, state: State) -> Iterator[Trouble]:
    if cluster.state is state:
        yield Trouble(cluster.name, state.value, cluster.message, cluster.since)
    for unit in cluster.units:
        health = unit.health
        if health.state is state:
            message = f"{health.unit.name}: {health.message or health.reason}"
            yield Trouble(cluster.name, health.reason or state.value, message, health.since)


LARGEST: Final = 64_000  # bytes of JSON
LISTED: Final = 50
_SHARD: Final = 20
_NAME: Final = 253  # bytes
_URL: Final = 1_024
_ID: Final = 64
_MESSAGE: Final = 300


def status_of(
    state: fleet_state.FleetState,
    now: datetime,
    *,
    before: Manifest | None = None,
    accepted: str = "",
    generation: int = 1,
    docs: str = "",
) -> dict[str, JSON]:
    """Return the status at `now`. `before` is the present one, with times that go on.

    `accepted` is the last commit that was accepted, also by a process before this one.
    """
    there = before or {}
    found = troubles(state)
    units = () if state.board is None else state.board.units
    counted = Counter(one.health.state for one in units if not one.leaving)
    status: dict[str, JSON] = {
        "observedGeneration": generation,
        "accepted": cut(accepted, _ID),
        "shard": [cut(name, _NAME) for name in state.shard[:_SHARD]],
        "summary": _summary(state, counted),
        "source": _source(state.source),
        "units": {one.value.lower(): counted[one] for one in State} if state.board else {},
        "clusters": _clusters(state, found),
        "plan": _plan(state.waiting),
        "troubled": _troubled(found, get_maps(there, "troubled"), now),
        "history": _history(state.history, get_maps(there, "history")),
        "conditions": conditions_of(
            state, get_maps(there, "conditions"), generation=generation, now=now, docs=docs
        ),
    }
    return {key: value for key, value in status.items() if value not in ("", [], {})}


def tells_more(state: fleet_state.FleetState, before: Manifest) -> bool:
    """Return whether a state has anything to add to the status that is there.

    A process that has just begun has looked at nothing yet. What the one before it found is better
    than nothing, and a change of processes no change of the fleet.
    """
    if state.source.problem or state.suspended or state.history or state.board is not None:
        return True
    return state.fleet is not None and state.source.revision != get_text(
        before, "source", "revision"
    )


def _summary(state: fleet_state.FleetState, counted: Counter[State]) -> dict[str, JSON]:
    revision, waits = short(cut(state.source.revision, _ID)), _waits(state.waiting)
    summary: dict[str, JSON] = {"revision": revision, "waiting": sum(waits.values())}
    if state.board is not None:
        summary["units"] = f"{counted[State.READY]}/{counted.total()}"
    return summary


def _source(source: fleet_state.SourceView) -> dict[str, JSON]:
    fields = {
        "url": cut(source.url, _URL),
        "ref": cut(source.ref, _NAME),
        "revision": cut(source.revision, _ID),
        "refused": cut(source.refused, _ID),
    }
    document: dict[str, JSON] = {key: value for key, value in fields.items() if value}
    if source.looked.revision:
        looked = {"revision": source.looked.revision, "files": source.looked.tree}
        document["looked"] = {key: cut(value, _ID) for key, value in looked.items() if value}
    if source.problem is fleet_state.SourceProblem.UNVERIFIED:
        document["signature"] = {"status": "Unverified"}
    elif source.signature is not None:
        signer = {"type": source.signature.kind, "principal": cut(source.signature.signer, _NAME)}
        document["signature"] = {"status": "Verified", **signer}
    elif source.revision:
        document["signature"] = {"status": "Off"}
    return document


def _clusters(state: fleet_state.FleetState, found: Sequence[Trouble]) -> dict[str, JSON]:
    if state.fleet is None:
        return {}
    unread = state.waiting.unseen if state.board is None else state.board.unread
    return {
        "total": len(state.fleet.clusters),
        "unread": sum(one.name in state.fleet.clusters for one in unread),
        "troubled": len(found),
    }


def _plan(waiting: fleet_state.Waiting) -> dict[str, JSON]:
    """Return the waiting part of the plan, without its id where there is none."""
    if not waiting.lines:
        return {}
    changes = Counter(line.action.value for line, _ in waiting.lines)
    plan: dict[str, JSON] = {"id": waiting.plan_id, "changes": {**changes}}
    if waits := _waits(waiting):
        plan["waiting"] = {**waits}
    return plan


def _waits(waiting: fleet_state.Waiting) -> dict[str, int]:
    """Count the lines that wait, by their obstacle."""
    guarded = sum(
        line.action is Action.BLOCKED
        or bool(line.held)
        or (end is not None and end.status is Status.HELD)
        for line, end in waiting.lines
    )
    return {"guard": guarded} if guarded else {}


def _troubled(
    found: Sequence[Trouble], before: Sequence[Manifest], now: datetime
) -> list[dict[str, JSON]]:
    """Return the first troubles. One that was there before keeps its time."""
    begun = {(get_text(one, "cluster"), get_text(one, "reason")): one for one in before}
    rows: list[dict[str, JSON]] = []
    for one in found[:LISTED]:
        row = {"cluster": cut(one.cluster, _NAME), "reason": cut(one.reason, _ID)}
        there = begun.get((row["cluster"], row["reason"]), {})
        since = moment(get_text(there, "since")) or one.since or now
        rows.append({**row, "message": cut(one.message, _MESSAGE), "since": format_time(since)})
    return rows


def _history(rounds: Sequence[fleet_state.RoundRecord], before: Sequence[Manifest]) -> list[JSON]:
    """Return the last rounds, also those of processes before this one."""
    rows = [
        _round(
            format_time(one.ended_at),
            (one.trigger.value, one.revision, one.result),
            (one.done, one.failed),
            one.why,
        )
        for one in rounds
    ]
    first = min((one.ended_at.replace(microsecond=0) for one in rounds), default=None)
    for one in before:
        at = moment(get_text(one, "at"))
        if at is not None and (first is None or at < first):
            texts = (get_text(one, key) for key in ("trigger", "revision", "result"))
            counts = (get_int(one, "done") or 0, get_int(one, "failed") or 0)
            rows.append(_round(format_time(at), texts, counts, get_text(one, "why")))
    return [*rows[: fleet_state.REMEMBERED]]


def _round(at: str, texts: Iterable[str], counts: tuple[int, int], why: str) -> dict[str, JSON]:
    trigger, revision, result = (cut(text, _ID) for text in texts)
    words = {"at": at, "trigger": trigger, "revision": revision, "result": result}
    more: dict[str, JSON] = {"why": cut(why, _MESSAGE)} if why else {}
    return {**words, "done": counts[0], "failed": counts[1], **more}
