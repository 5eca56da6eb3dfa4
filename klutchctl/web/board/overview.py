"""Builds the pages of the board, and the file without a server. Pure.

The first page has counts, waiting changes, problems, and the table of clusters and bindings.
Below it are the pages of a cluster, a unit, waiting changes, and rounds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from klutchctl.render import plan_rows, why
from klutchctl.render.status import age
from klutchctl.web.board import parts
from klutchctl.web.board.index import Cell, Index, Line, Row, column_of, joined, share
from klutchctl.web.board.parts import Page, Query
from reconciler.core.decision import page_of
from reconciler.core.manifest import grouped
from reconciler.fleet import reference_index
from reconciler.fleet.values import UnitKey
from reconciler.health.board import BoundUnit, ClusterHealth, worst
from reconciler.health.verdict import State
from reconciler.planning.changes import Action, Tripped
from reconciler.reports.why import Provenance
from reconciler.watch.fleet_state import Waiting

COLUMNS: Final = 10  # Bindings of a page
TROUBLES: Final = 8
_NO_VALUE: Final = "(none)"

# A cell of the matrix: the state, what stands beside it, and a link; None where nothing is bound.
MatrixCell: TypeAlias = tuple[State, str, str] | None
# A cluster or a group of them: name, link, worst state, how many are Ready, a cell for each column.
MatrixRow: TypeAlias = tuple[str, str, State | None, str, tuple[MatrixCell, ...]]
# The units in a state: their number, a link, and their part of a bar, in thousandths.
Count: TypeAlias = tuple[State, int, str, float, float]
MOST: Final = 5_000  # units; of more, only those that are not Ready


def overview(index: Index, query: Query, now: datetime) -> Page:
    """Return the first page, whose rows are clusters, or groups of them.

    Raises ConfigError for a label query that is none.
    """
    found = _found(index, query)
    state = index.state
    bindings = _bindings(index, query, found)
    columns = parts.paged(query, "/", len(bindings), by="columns", size=COLUMNS)
    shown = bindings[columns.shown]
    groups = [(one.health.name, [one]) for one in found]
    if query.group:
        groups = sorted(grouped(found, lambda row: row.labels.get(query.group, _NO_VALUE)).items())
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
    """Return a cell: Ready leads nowhere, so that links are for troubles."""
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


_LINES: Final = 10


def plan(index: Index, query: Query, now: datetime) -> Page:
    """Return the page of waiting lines."""
    lines = index.lines.get(query.cluster, ()) if query.cluster else index.state.waiting.lines
    pager = parts.paged(query, "/plan", len(lines))
    return Page("plan.html", index, now, "plan", query=query, lines=lines[pager.shown], pager=pager)


def history(index: Index, now: datetime) -> Page:
    return Page("history.html", index, now, "history")


def refusal(index: Index, status: int, sentence: str, now: datetime) -> Page:
    return Page("refusal.html", index, now, status=status, sentence=sentence)


def cluster(index: Index, name: str, query: Query, now: datetime) -> Page | None:
    """Return the page of a cluster; None where there is none of that name.

    `unread`: why it, or its control plane, was not read, and what to do.
    """
    row = index.rows.get(name)
    if row is None:
        return None
    health, state = row.health, index.state
    units = [
        one
        for one in health.units
        if query.binding in ("", column_of(one)) and query.state in ("", one.health.state)
    ]
    pager = parts.paged(query, parts.path_of("clusters", name), len(units))
    lines = index.lines.get(name, ())
    document = state.fleet.clusters.get(name) if state.fleet is not None else None
    labels = document.labels if document is not None else {}
    unread = state.board.unread if state.board is not None else ()
    return Page(
        "cluster.html",
        index,
        now,
        row=row,
        document=document,
        labels=[f"{key}={value}" for key, value in sorted(labels.items())],
        unread=[one for one in unread if one.name in health.way],
        units=units[pager.shown],
        pager=pager,
        lines=lines[:_LINES],
        waiting=len(lines),
        all_lines=Query(cluster=name).link("/plan"),
        held=[one for one in state.waiting.held if name in one.clusters],
    )


# What the documents say of a unit, Policies included; None where they are not at hand.
Explain: TypeAlias = Callable[[UnitKey], Provenance | None]


def unit(
    index: Index, cluster: str, name: str, now: datetime, *, explain: Explain, docs: str = ""
) -> Page | None:
    """Return the page of a unit; None where there is none of that name.

    `facts` are what, which, and where in the files; `nothing` is why there are no lines.
    """
    row = index.rows.get(cluster)
    units = () if row is None else row.health.units
    found = next((one for one in units if one.health.unit.name == name), None)
    if row is None or found is None:
        return None
    health = found.health
    lines = [one for one in index.lines.get(cluster, ()) if one[0].unit in (health.unit, None)]
    return Page(
        "unit.html",
        index,
        now,
        found=found,
        health=health,
        reason_page=page_of(health.reason, docs),
        facts=[
            (kind, which, plan_rows.place(origin))
            for kind, which, origin in _facts(found, explain(health.unit))
        ],
        nothing=_nothing(index.state.waiting, row.health),
        lines=lines,
        held=list(_guards(index.state.waiting, cluster, lines)),
    )


def _nothing(waiting: Waiting, cluster: ClusterHealth) -> str:
    """Return the reason why no line of the plan is about a unit."""
    if not waiting.plan_id:
        return "No plan is at hand."
    if any(one.name in cluster.way for one in waiting.unseen):
        return "The plan could not read its cluster."
    return "Nothing waits."


def _guards(waiting: Waiting, cluster: str, lines: list[Line]) -> Iterator[Tripped]:
    """Yield the guards that hold these lines, or block the cluster."""
    guards = {guard for change, _ in lines for guard in change.held}
    blocked = any(change.action is Action.BLOCKED for change, _ in lines)
    for one in waiting.held:
        if one.guard in guards or (blocked and one.clusters == (cluster,)):
            yield one


def _facts(found: BoundUnit, source: Provenance | None) -> Iterable[why.Fact]:
    if source is not None:
        return why.facts(source)
    return [("Binding", found.binding, found.origin)] if found.binding else ()
