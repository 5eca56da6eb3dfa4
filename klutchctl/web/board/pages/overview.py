"""The whole fleet: the first page, and a file that is read without a server. Pure.

The first page has counts, what waits, what is troubled, and clusters x bindings.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from klutchctl.render.terminal import plural
from klutchctl.web.board.index import LEFT, Cell, Index, Line, Row, Trouble, joined, worst
from klutchctl.web.board.pages import parts
from klutchctl.web.board.pages.parts import Moment, Page, Query, UnitRow
from reconciler.core.times import format_time
from reconciler.fleet import reference_index
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, UnseenCluster

COLUMNS: Final = 10  # Bindings of a page
_TROUBLES: Final = 8
_HELD: Final = 5
_NO_VALUE: Final = "(none)"


@dataclass(frozen=True, slots=True)
class Count:
    """The number of units in a state. `x` and `width` are its part of a bar, in thousandths."""

    state: State
    number: int
    href: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Troubled:
    """A unit, or a whole cluster, that needs people."""

    cluster: str
    name: str
    href: str
    state: State
    since: Moment
    why: str


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A cell of the matrix; `state` is None where nothing is bound."""

    state: State | None = None
    more: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A cluster, or a group of clusters: its worst state, and a cell for each column."""

    name: str
    href: str
    state: State | None
    ready: str
    cells: tuple[MatrixCell, ...]


def overview(index: Index, query: Query, now: datetime) -> Page:
    """Return the first page. `grouped`: its rows are groups of clusters, in place of clusters.

    Raises ConfigError for a label query that is none.
    """
    found = _found(index, query)
    waiting = index.state.waiting
    bindings = _bindings(index, query, found)
    columns = parts.paged(query, "/", len(bindings), by="columns", size=COLUMNS)
    shown = bindings[max(columns.first - 1, 0) : columns.last]
    groups = (
        _groups(found, query.group) if query.group else [(one.health.name, [one]) for one in found]
    )
    pager = parts.paged(query, "/", len(groups))
    rows = groups[max(pager.first - 1, 0) : pager.last]
    return Page(
        "overview.html",
        parts.frame(index, "overview", now),
        query=query,
        clear=Query(group=query.group).link("/"),
        worst=index.worst,
        counts=tuple(_counts(index, query)),
        units=sum(index.counts.values()),
        clusters=len(index.rows),
        actions=_actions(waiting.lines),
        planned=bool(waiting.plan_id),
        held=tuple((one.guard, one.message) for one in waiting.held[:_HELD]),
        unread=len(_unread(index)),
        troubles=tuple(_trouble(one, now) for one in index.troubles[:_TROUBLES]),
        troubled=index.troubled,
        labels=index.labels,
        bindings=tuple((name, query.link("/", binding=name)) for name in shown),
        rows=tuple(_matrix_row(name, members, shown, query, now) for name, members in rows),
        pager=pager,
        columns=columns,
        grouped=bool(query.group),
    )


def _found(index: Index, query: Query) -> list[Row]:
    rows = list(index.rows.values())
    if not query.narrowed:
        return rows
    selector = query.selector()
    if selector is not None:
        labels = {row.health.name: row.labels for row in rows}
        rows = [index.rows[name] for name in reference_index.selected(selector, labels)]
    words = query.q.lower()
    return [row for row in rows if words in row.words and _is_asked_for(row, query)]


def _is_asked_for(row: Row, query: Query) -> bool:
    if not query.binding:
        return not query.state or query.state in row.states
    cell = row.cells.get(query.binding)
    if cell is None or not query.state or cell.state == query.state:
        return cell is not None
    name = cell.unit.binding
    return any(one.binding == name and one.health.state == query.state for one in row.health.units)


def _bindings(index: Index, query: Query, found: Sequence[Row]) -> tuple[str, ...]:
    if query.binding:
        return (query.binding,)
    if not query.narrowed:
        return index.bindings
    there = {name for row in found for name in row.cells}
    return tuple(name for name in index.bindings if name in there)


def _groups(rows: Iterable[Row], label: str) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.labels.get(label, _NO_VALUE)].append(row)
    return sorted(found.items())


def _counts(index: Index, query: Query) -> Iterator[Count]:
    total, x = sum(index.counts.values()), 0.0
    for state in State:
        number = index.counts.get(state, 0)
        width = 1000 * number / total if total else 0.0
        chosen = "" if query.state == state else state
        yield Count(state, number, query.link("/", state=chosen), round(x, 2), round(width, 2))
        x += width


def _actions(lines: Iterable[Line]) -> tuple[tuple[str, int], ...]:
    counted = Counter(change.action for change, _ in lines)
    return tuple((action.value, counted[action]) for action in Action if counted[action])


def _unread(index: Index) -> Sequence[UnseenCluster]:
    """Return what could not be read at the last look; without one, by the plan."""
    board = index.state.board
    return board.unread if board is not None else index.state.waiting.unseen


def _trouble(trouble: Trouble, now: datetime) -> Troubled:
    cluster, unit = trouble.cluster, trouble.unit
    if unit is None:
        units = plural(len(cluster.units), "unit")
        path = parts.path_of("clusters", cluster.name)
        since = parts.moment(cluster.since, now)
        return Troubled(cluster.name, units, path, trouble.state, since, cluster.message)
    row = parts.unit_row(unit, now)
    return Troubled(cluster.name, row.name, row.href, row.state, row.since, row.why)


def _matrix_row(
    name: str, members: Sequence[Row], shown: Iterable[str], query: Query, now: datetime
) -> MatrixRow:
    total = sum(len(row.health.units) for row in members)
    ready = sum(row.counts.get(State.READY, 0) for row in members)
    within = _within(name, query) if query.group else query
    cells = (
        [cell for row in members if (cell := row.cells.get(binding)) is not None]
        for binding in shown
    )
    href = within.link("/") if query.group else parts.path_of("clusters", name)
    return MatrixRow(
        name,
        href,
        worst(row.state for row in members if row.state is not None),
        f"{ready:,}/{total:,}" if total else "",
        tuple(_cell(joined(each), within, now) if each else MatrixCell() for each in cells),
    )


def _within(value: str, query: Query) -> Query:
    key = query.group
    clause = f"!{key}" if value == _NO_VALUE else f"{key}={value}"
    return replace(query, group="", label=f"{query.label},{clause}" if query.label else clause)


def _cell(cell: Cell, within: Query, now: datetime) -> MatrixCell:
    """Return a cell: what is Ready leads nowhere, so that links are what needs people."""
    age = parts.moment(cell.unit.health.since, now, exact=cell.unit.health.exact).ago
    more = "" if cell.state is not State.UNKNOWN or cell.total > 1 else age
    if cell.total > 1:
        more = f"{cell.total:,}" if cell.ill == cell.total else f"{cell.ill:,}/{cell.total:,}"
    if cell.state is State.READY:
        return MatrixCell(cell.state, more)
    return MatrixCell(cell.state, more, _cell_link(cell, within))


def _cell_link(cell: Cell, within: Query) -> str:
    unit = cell.unit
    if cell.total == 1:
        return parts.path_of("units", cell.cluster, unit.health.unit.name)
    return within.link("/", binding=unit.binding or LEFT, state=cell.state)


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


def file(index: Index) -> Page:
    """Return the page of a state that has a board. Ages are those at the time of its look.

    `cut`: what is Ready is left out.
    """
    board = index.state.board
    assert board is not None
    first = overview(index, Query(), board.time)
    cut = first.units > MOST
    return Page(
        "file.html",
        parts.frame(index, "overview", board.time),
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
        since=parts.moment(health.since, now),
        message=health.message,
        ready=f"{ready:,}/{len(health.units):,}" if health.units else "",
        units=tuple(parts.unit_row(one, now) for one in units),
        left_out=len(health.units) - len(units),
    )
