"""The page of the rounds that were made. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from klutchctl.render import plan_rows
from klutchctl.web.board.index import Index
from klutchctl.web.board.pages.parts import Frame, Moment, frame, moment
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import RoundRecord

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


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """All of the page."""

    frame: Frame
    rounds: tuple[Round, ...]
    applied: Moment


def history(index: Index, now: datetime) -> HistoryPage:
    state = index.state
    return HistoryPage(
        frame(index, "history", now),
        tuple(_round(one, now) for one in state.history),
        moment(state.applied_at, now),
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
