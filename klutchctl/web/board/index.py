"""Indexes the state of a fleet once for all pages. Pure.

A row shows the worst of its units, and a group the worst of its rows: nothing looks better than its
parts.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

from reconciler.apply import Outcome
from reconciler.core.manifest import grouped
from reconciler.health.board import RANK, TROUBLED, Board, BoundUnit, ClusterHealth, worst
from reconciler.health.verdict import State
from reconciler.planning.changes import Change
from reconciler.watch.fleet_state import FleetState, Turn, changed

Line: TypeAlias = tuple[Change, Outcome | None]

LEFT: Final = "(left the files)"  # the column of units that no Binding names any more
CONTROL_PLANE: Final = "control-plane"  # a label that every cluster has on the board
_TROUBLES: Final = 50
_CHANGED: Final = 50
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


def column_of(unit: BoundUnit) -> str:
    return unit.binding or LEFT


@dataclass(frozen=True, slots=True)
class Cell:
    """The units of one Binding in a row: the worst state, how many have it, of how many.

    `unit` is the first of those, `cluster` its cluster.
    """

    state: State
    ill: int
    total: int
    cluster: str
    unit: BoundUnit


@dataclass(frozen=True, slots=True)
class Row:
    """An app cluster. `words` is the text that a search looks through, in lower case."""

    health: ClusterHealth
    labels: Mapping[str, str]
    state: State | None
    counts: Mapping[State, int]
    cells: Mapping[str, Cell]
    words: str

    @property
    def states(self) -> set[State]:
        """Every state that the cluster or one of its units is in."""
        whole = {self.health.state} if self.health.state is not None else set()
        return whole | self.counts.keys()


def share(rows: Sequence[Row]) -> str:
    """Return how many units of rows are Ready, of how many; "" for none."""
    total = sum(len(row.health.units) for row in rows)
    ready = sum(row.counts.get(State.READY, 0) for row in rows)
    return f"{ready:,}/{total:,}" if total else ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A unit that is Degraded or Unknown, or a whole cluster; `unit` is None then."""

    cluster: ClusterHealth
    unit: BoundUnit | None = None

    @property
    def state(self) -> State:
        return self.unit.health.state if self.unit else self.cluster.state or State.UNKNOWN

    @property
    def since(self) -> datetime | None:
        """Since when; None where that is unknown."""
        return self.unit.health.since if self.unit else self.cluster.since

    @property
    def exact(self) -> bool:
        return self.unit is None or self.unit.health.exact


@dataclass(frozen=True, slots=True)
class Index:
    """A state, and its findings. `version` is its number among the published ones.

    `rows` are by cluster, in order; `troubles` the first of `troubled`, the worst and longest
    first; `lines` the waiting lines of each cluster; `labels` the keys that clusters have.
    """

    version: int
    state: FleetState
    rows: Mapping[str, Row] = field(default_factory=dict)
    bindings: tuple[str, ...] = ()
    counts: Mapping[State, int] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    worst: State | None = None
    troubles: tuple[Trouble, ...] = ()
    troubled: int = 0
    lines: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)

    @property
    def units(self) -> int:
        return sum(self.counts.values())


def index_of(version: int, state: FleetState, before: Index | None = None) -> Index:
    """Return the index of a state. Rows that are as they were `before` are taken from there."""
    lines = grouped(state.waiting.lines, lambda line: line[0].cluster)
    waiting = {cluster: tuple(found) for cluster, found in lines.items()}
    if state.board is None:
        return Index(version, state, lines=waiting)
    if before is not None and (
        state.board is before.state.board and state.fleet is before.state.fleet
    ):
        return replace(before, version=version, state=state, lines=waiting)
    known = before.rows if before is not None else {}
    rows = {
        cluster.name: _row(cluster, _labels(state, cluster), known.get(cluster.name))
        for cluster in state.board.clusters
    }
    bindings = {name for row in rows.values() for name in row.cells}
    troubles = [one for row in rows.values() for one in _troubles(row)]
    return Index(
        version,
        state,
        rows,
        tuple(sorted(bindings, key=lambda name: (name == LEFT, name))),
        {one: sum(row.counts.get(one, 0) for row in rows.values()) for one in State},
        tuple(sorted({key for row in rows.values() for key in row.labels})),
        _worst(state.board, rows.values()),
        tuple(heapq.nsmallest(_TROUBLES, troubles, key=_urgency)),
        len(troubles),
        waiting,
    )


def _worst(board: Board, rows: Iterable[Row]) -> State | None:
    """Return the worst state in a fleet. An unread cluster counts as Unknown."""
    states: set[State] = {row.state for row in rows if row.state not in (None, State.RELEASED)}
    states |= {plane.state for plane in board.planes}
    return worst(states | ({State.UNKNOWN} if board.unread else set()))


def _labels(state: FleetState, cluster: ClusterHealth) -> Mapping[str, str]:
    found = state.fleet.clusters.get(cluster.name) if state.fleet is not None else None
    return {CONTROL_PLANE: cluster.control_plane, **(found.labels if found is not None else {})}


def _row(cluster: ClusterHealth, labels: Mapping[str, str], before: Row | None) -> Row:
    if before is not None and before.health == cluster and before.labels == labels:
        return before
    cells: dict[str, list[Cell]] = defaultdict(list)
    for unit in cluster.units:
        cells[column_of(unit)].append(Cell(unit.health.state, 1, 1, cluster.name, unit))
    states = [unit.health.state for unit in cluster.units]
    # Counted so because an enum's hash is slow, and there may be 100,000 of them.
    counts = {state: count for state in State if (count := states.count(state))}
    whole = () if cluster.state is None else (cluster.state,)
    return Row(
        cluster,
        labels,
        worst((*whole, *(state for state in counts if state is not State.RELEASED))),
        counts,
        {name: joined(found) for name, found in cells.items()},
        "\n".join(_words(cluster)).lower(),
    )


def joined(cells: Sequence[Cell]) -> Cell:
    first = min(cells, key=lambda one: RANK[one.state])
    if len(cells) == 1:
        return first
    ill = sum(one.ill for one in cells if one.state is first.state)
    return replace(first, ill=ill, total=sum(one.total for one in cells))


def changes(before: Index, after: Index) -> list[Turn]:
    """Return the first units whose state or reason is another than before, or that are gone."""
    clusters = ([row.health for row in index.rows.values()] for index in (before, after))
    return list(itertools.islice(changed(*clusters), _CHANGED))


def _words(cluster: ClusterHealth) -> Iterator[str]:
    yield from (cluster.name, cluster.control_plane, cluster.message)
    for unit in cluster.units:
        health = unit.health
        yield from (unit.binding, health.unit.name, health.reason, health.message)


def _troubles(row: Row) -> Iterator[Trouble]:
    """Yield the troubles that need people; that of a whole cluster once."""
    if row.health.state in TROUBLED:
        yield Trouble(row.health)
        return
    if row.state in TROUBLED:
        for unit in row.health.units:
            if unit.health.state in TROUBLED:
                yield Trouble(row.health, unit)


def _urgency(trouble: Trouble) -> tuple[int, datetime, str, str]:
    unit = trouble.unit.health.unit.name if trouble.unit else ""
    return RANK[trouble.state], trouble.since or _NEVER, trouble.cluster.name, unit
