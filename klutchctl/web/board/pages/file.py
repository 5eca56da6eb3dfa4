"""A whole fleet on one page, for a file that is read without a server. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from klutchctl.web.board.index import Index, Row
from klutchctl.web.board.pages.overview import Count, Troubled, overview
from klutchctl.web.board.pages.parts import Frame, Moment, Query, UnitRow, frame, moment, unit_row
from reconciler.core.times import format_time
from reconciler.health.verdict import State

MOST: Final = 5_000  # units; of more, only those that are not Ready


@dataclass(frozen=True, slots=True)
class Section:
    """A cluster. `id` is its place on the page; `left_out` counts units that are Ready."""

    id: str
    name: str
    control_plane: str
    state: State | None
    since: Moment
    message: str
    ready: str
    units: tuple[UnitRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class FilePage:
    """All of the page. `cut`: what is Ready is left out."""

    frame: Frame
    time: str
    worst: State | None
    counts: tuple[Count, ...]
    units: int
    clusters: int
    troubles: tuple[Troubled, ...]
    troubled: int
    unread: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]
    cut: bool


def file(index: Index) -> FilePage:
    """Return the page of a state that has a board. Ages are those at the time of its look."""
    board = index.state.board
    assert board is not None
    first = overview(index, Query(), board.time)
    cut = first.units > MOST
    return FilePage(
        frame=frame(index, "overview", board.time),
        time=format_time(board.time),
        worst=first.worst,
        counts=first.counts,
        units=first.units,
        clusters=first.clusters,
        troubles=first.troubles,
        troubled=first.troubled,
        unread=tuple((one.name, one.reason, one.remedy) for one in board.unread),
        sections=tuple(_sections(index, board.time, cut=cut)),
        cut=cut,
    )


def _sections(index: Index, now: datetime, *, cut: bool) -> Iterator[Section]:
    for number, row in enumerate(index.rows.values()):
        if not cut or row.state is not State.READY:
            yield _section(f"c{number}", row, now, cut=cut)


def _section(place: str, row: Row, now: datetime, *, cut: bool) -> Section:
    health, ready = row.health, row.counts.get(State.READY, 0)
    units = [one for one in health.units if not (cut and one.health.ready)]
    return Section(
        id=place,
        name=health.name,
        control_plane=health.control_plane,
        state=row.state,
        since=moment(health.since, now),
        message=health.message,
        ready=f"{ready:,}/{len(health.units):,}" if health.units else "",
        units=tuple(unit_row(one, now) for one in units),
        left_out=len(health.units) - len(units),
    )
