"""The page of an app cluster: its units, and what waits in it. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from klutchctl.web.board.index import LEFT, Index
from klutchctl.web.board.pages.parts import (
    Frame,
    LineRow,
    Moment,
    Pager,
    Query,
    UnitRow,
    frame,
    line_row,
    moment,
    paged,
    path_of,
    unit_row,
)
from reconciler.core.live import control_plane_ref_name
from reconciler.health.board import BoundUnit
from reconciler.health.verdict import State

_LINES: Final = 10


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """All of the page. `unread`: why it, or its control plane, was not read, and what to do."""

    frame: Frame
    name: str
    control_plane: str
    labels: tuple[str, ...]
    origin: str
    state: State | None
    since: Moment
    message: str
    unread: tuple[tuple[str, str], ...]
    counts: tuple[tuple[State, int], ...]
    units: tuple[UnitRow, ...]
    pager: Pager
    lines: tuple[LineRow, ...]
    waiting: int
    all_lines: str
    held: tuple[tuple[str, str], ...]


def cluster(index: Index, name: str, query: Query, now: datetime) -> ClusterPage | None:
    """Return the page of a cluster; None where there is none of that name."""
    row = index.rows.get(name)
    if row is None:
        return None
    health, state = row.health, index.state
    units = [one for one in health.units if _is_asked_for(one, query)]
    pager = paged(query, path_of("clusters", name), len(units))
    lines = index.lines.get(name, ())
    found = state.fleet.clusters.get(name) if state.fleet is not None else None
    way = (name, control_plane_ref_name(health.control_plane))
    unread = state.board.unread if state.board is not None else ()
    return ClusterPage(
        frame=frame(index, "", now),
        name=name,
        control_plane=health.control_plane,
        labels=tuple(f"{key}={value}" for key, value in sorted(found.labels.items()))
        if found
        else (),
        origin=str(found.origin) if found else "",
        state=row.state,
        since=moment(health.since, now),
        message=health.message,
        unread=tuple((one.reason, one.remedy) for one in unread if one.name in way),
        counts=tuple((one, row.counts[one]) for one in State if one in row.counts),
        units=tuple(unit_row(one, now) for one in units[max(pager.first - 1, 0) : pager.last]),
        pager=pager,
        lines=tuple(map(line_row, lines[:_LINES])),
        waiting=len(lines),
        all_lines=Query(cluster=name).link("/plan"),
        held=tuple((one.guard, one.message) for one in state.waiting.held if name in one.clusters),
    )


def _is_asked_for(unit: BoundUnit, query: Query) -> bool:
    return query.binding in ("", unit.binding or LEFT) and query.state in ("", unit.health.state)
