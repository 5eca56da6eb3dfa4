"""The pages of what is not as the files say, and of the rounds that were made. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from klutchctl.render import plan_rows
from klutchctl.web.board.index import Index
from klutchctl.web.board.pages.parts import Moment, Page, Query, frame, line_row, moment, paged
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import RoundRecord, Waiting

_SHOWN: Final = 50


def plan(index: Index, query: Query, now: datetime) -> Page:
    """Return the page of waiting lines; of `held` and `unseen` the first."""
    waiting = index.state.waiting
    lines = index.lines.get(query.cluster, ()) if query.cluster else waiting.lines
    pager = paged(query, "/plan", len(lines))
    return Page(
        "plan.html",
        frame(index, "plan", now),
        query=query,
        id=waiting.plan_id,
        lines=tuple(map(line_row, lines[max(pager.first - 1, 0) : pager.last])),
        pager=pager,
        held=tuple((one.guard, one.message, len(one.clusters)) for one in waiting.held[:_SHOWN]),
        held_total=len(waiting.held),
        unseen=_unseen(waiting),
        unseen_total=len(waiting.unseen),
    )


def _unseen(waiting: Waiting) -> tuple[tuple[str, str], ...]:
    return tuple(
        (one.name, ". ".join(part for part in (one.reason, one.remedy) if part))
        for one in waiting.unseen[:_SHOWN]
    )


_AS: Final = {
    "done": State.READY,
    "nothing": State.READY,
    "held": State.PROGRESSING,
    "partial": State.DEGRADED,
    "failed": State.DEGRADED,
}


@dataclass(frozen=True, slots=True)
class Round:
    """A round that has ended. `state` is what its result looks like."""

    ended: Moment
    trigger: str
    revision: str
    result: str
    state: State
    done: int
    failed: int
    seconds: str
    why: str


def history(index: Index, now: datetime) -> Page:
    state = index.state
    return Page(
        "history.html",
        frame(index, "history", now),
        rounds=tuple(_round(one, now) for one in state.history),
        applied=moment(state.applied_at, now),
    )


def _round(record: RoundRecord, now: datetime) -> Round:
    return Round(
        ended=moment(record.ended_at, now),
        trigger=record.trigger,
        revision=plan_rows.short_commit(record.revision),
        result=record.result,
        state=_AS.get(record.result, State.UNKNOWN),
        done=record.done,
        failed=record.failed,
        seconds=f"{record.seconds:.1f} s",
        why=record.why,
    )
