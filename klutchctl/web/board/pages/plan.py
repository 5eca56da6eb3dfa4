"""The page of what is not as the files say: waiting lines, guards, and what was not read. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from klutchctl.web.board.index import Index
from klutchctl.web.board.pages.parts import Frame, LineRow, Pager, Query, frame, line_row, paged
from reconciler.watch.fleet_state import Waiting

_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class PlanPage:
    """All of the page. Of `held` and `unseen` there are the first."""

    frame: Frame
    query: Query
    id: str
    lines: tuple[LineRow, ...]
    pager: Pager
    held: tuple[tuple[str, str, int], ...]
    held_total: int
    unseen: tuple[tuple[str, str], ...]
    unseen_total: int


def plan(index: Index, query: Query, now: datetime) -> PlanPage:
    waiting = index.state.waiting
    lines = index.lines.get(query.cluster, ()) if query.cluster else waiting.lines
    pager = paged(query, "/plan", len(lines))
    return PlanPage(
        frame=frame(index, "plan", now),
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
