"""The whole fleet: the first page, and a file that is read without a server. Pure.

The first page has counts, what waits, what is troubled, and clusters x bindings.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from klutchctl.render.status import age
from klutchctl.web.board.index import Cell, Index, Row, column_of, joined, share
from klutchctl.web.board.pages import parts
from klutchctl.web.board.pages.parts import Page, Query
from reconciler.fleet import reference_index
from reconciler.health.board import worst
from reconciler.health.verdict import State
from reconciler.planning.changes import Action

COLUMNS: Final = 10  # Bindings of a page
TROUBLES: Final = 8
_NO_VALUE: Final = "(none)"

# A cell of the matrix: the state, what stands beside it, and a link; None where nothing is bound.
MatrixCell: TypeAlias = tuple[State, str, str] | None
# A cluster or a group of them: name, link, worst state, how many are Ready, a cell for each column.
MatrixRow: TypeAlias = tuple[str, str, State | None, str, tuple[MatrixCell, ...]]
# The units in a state: their number, a link, and their part of a bar, in thousandths.
Count: TypeAlias = tuple[State, int, str, float, float]


def overview(index: Index, query: Query, now: datetime) -> Page:
    """Return the first page, whose rows are clusters, or groups of them.

    Raises ConfigError for a label query that is none.
    """
    found = _found(index, query)
    state = index.state
    bindings = _bindings(index, query, found)
    columns = parts.paged(query, "/", len(bindings), by="columns", size=COLUMNS)
    shown = bindings[columns.shown]
    groups = (
        _groups(found, query.group) if query.group else [(one.health.name, [one]) for one in found]
    )
    pager = parts.paged(query, "/", len(groups))
    counted = Counter(change.action for change, _ in state.waiting.lines)
    return Page(
        "overview.html",
        index,
        now,
        "overview",
        query=query,
        clear=Query(group=query.group).link("/"),
        counts=tuple(_counts(index, query)),
        actions=tuple((one.value, counted[one]) for one in Action if counted[one]),
        # Without a look, what the plan could not read.
        unread=len(state.board.unread if state.board is not None else state.waiting.unseen),
        troubles=index.troubles[:TROUBLES],
        bindings=tuple((name, query.link("/", binding=name)) for name in shown),
        rows=tuple(
            _matrix_row(name, members, shown, query, now) for name, members in groups[pager.shown]
        ),
        pager=pager,
        columns=columns,
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
    total, x = index.units, 0.0
    for state in State:
        number = index.counts.get(state, 0)
        width = 1000 * number / total if total else 0.0
        chosen = "" if query.state == state else state
        yield state, number, query.link("/", state=chosen), round(x, 2), round(width, 2)
        x += width


def _matrix_row(
    name: str, members: Sequence[Row], shown: Iterable[str], query: Query, now: datetime
) -> MatrixRow:
    within = _within(name, query) if query.group else query
    cells = (
        [cell for row in members if (cell := row.cells.get(binding)) is not None]
        for binding in shown
    )
    return (
        name,
        within.link("/") if query.group else parts.path_of("clusters", name),
        worst(row.state for row in members if row.state is not None),
        share(members),
        tuple(_cell(joined(each), within, now) if each else None for each in cells),
    )


def _within(value: str, query: Query) -> Query:
    key = query.group
    clause = f"!{key}" if value == _NO_VALUE else f"{key}={value}"
    return replace(query, group="", label=f"{query.label},{clause}" if query.label else clause)


def _cell(cell: Cell, within: Query, now: datetime) -> MatrixCell:
    """Return a cell: what is Ready leads nowhere, so that links are what needs people."""
    more, health = "", cell.unit.health
    if cell.total > 1:
        more = f"{cell.total:,}" if cell.ill == cell.total else f"{cell.ill:,}/{cell.total:,}"
    elif cell.state is State.UNKNOWN:
        more = age(health.since, now, exact=health.exact)
    href = ""
    if cell.state is not State.READY:
        column = within.link("/", binding=column_of(cell.unit), state=cell.state)
        href = column if cell.total > 1 else parts.unit_path(health.unit)
    return cell.state, more, href


MOST: Final = 5_000  # units; of more, only those that are not Ready


def file(index: Index) -> Page:
    """Return the page of a state that has a board. Ages are those at the time of its look.

    `cut`: what is Ready is left out. `sections` are numbers and rows.
    """
    board = index.state.board
    assert board is not None
    cut = index.units > MOST
    return Page(
        "file.html",
        index,
        board.time,
        counts=tuple(_counts(index, Query())),
        troubles=index.troubles[:TROUBLES],
        sections=[
            (number, row, share([row]))
            for number, row in enumerate(index.rows.values())
            if not cut or row.state is not State.READY
        ],
        cut=cut,
    )
