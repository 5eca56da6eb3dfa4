"""Renders the state of units, as an aligned table and as events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from klutchctl.render import plan_rows, terminal
from klutchctl.render.plan_formats import named_lines
from klutchctl.render.status_document import summary, unit_json
from klutchctl.render.terminal import Style, plural, visible
from reconciler.core import times
from reconciler.health.board import Board, BoundUnit, ClusterHealth, PlaneHealth
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import changed

_SYMBOLS: Final[Mapping[State, str]] = {
    State.READY: " ",
    State.PROGRESSING: "~",
    State.DEGRADED: "!",
    State.UNKNOWN: "?",
    State.SUSPENDED: "|",
    State.RELEASED: "<",
}
_STYLES: Final[Mapping[State, Style]] = {
    State.READY: Style.GREEN,
    State.PROGRESSING: Style.CYAN,
    State.DEGRADED: Style.RED,
    State.UNKNOWN: Style.YELLOW,
}
_HEADER: Final = ("CLUSTER", "BINDING", "RESOURCE", "STATE", "AGE", "WHY")
_GAP: Final = "  "
_WHY_LEAVING: Final = "no document names it any more; see `klutchctl plan`"

# The cells of a line, and the state that colours it; None for a cluster in which nothing is bound.
_Row: TypeAlias = tuple[tuple[str, ...], State | None]


def text(board: Board, *, color: bool = False, docs: str = "") -> str:
    """Return the board for people; with the site `docs`, the pages of its reasons follow."""
    at = f" @ {visible(board.revision)}" if board.revision else ""
    blocks = [terminal.block(f"Fleet {visible(board.fleet)}{at}", color=color)]
    rows = list(_rows(board))
    if rows:
        blocks.append(_table(rows, color=color))
    if board.planes:
        planes = [_plane(one, board.time) for one in board.planes]
        blocks.append(terminal.block("Control planes", planes, color=color))
    if board.unread:
        unread = named_lines(plan_rows.unread(board.unread))
        blocks.append(terminal.block("Clusters not read", unread, color=color))
    if board.ahead:
        way = "ahead of" if board.ahead > 0 else "behind"
        off = f"Your clock is {abs(board.ahead):.0f} s {way} all clusters"
        blocks.append([f"{off}: set it first, since ages and heartbeats are compared with it."])
    reasons = {unit.health.reason for cluster in board.clusters for unit in cluster.units}
    reasons |= {plane.reason for plane in board.planes}
    blocks += terminal.pages(reasons, docs, color=color)
    blocks.append(terminal.block(f"Status: {_summary(board)}.", color=color))
    return terminal.paragraphs(blocks)


def _plane(plane: PlaneHealth, now: datetime) -> str:
    cells = (visible(plane.name), plane.state.value, age(plane.since, now), visible(plane.message))
    return f"  {_GAP.join(cells)}"


def _rows(board: Board) -> Iterator[_Row]:
    """Yield a row for every unit, and for every cluster that has none."""
    reasons = {one.name: one.reason for one in board.unread}
    for cluster in board.clusters:
        whole = cluster.message  # but for what the table of unread clusters has
        if reason := reasons.get(cluster.name, ""):
            whole = whole.removeprefix(reason).removeprefix("; ")
        for unit in cluster.units:
            yield _unit_row(cluster, unit, board.time, whole)
            whole = ""  # once is enough
        if not cluster.units:
            why = whole or ("" if cluster.message else "nothing is bound here")
            yield _row(cluster, "", "", cluster.state, age(cluster.since, board.time), why)


def _unit_row(cluster: ClusterHealth, unit: BoundUnit, now: datetime, whole: str) -> _Row:
    """Return the row of a unit; `whole` in place of a message that holds for its whole cluster."""
    health = unit.health
    before = f"was {health.last_known}" if health.last_known else ""
    of_cluster = cluster.message and health.message == cluster.message
    message = whole if of_cluster else health.message
    reason = ": ".join(part for part in (health.reason, message) if part) if health.reason else ""
    leaving = _WHY_LEAVING if unit.leaving and health.state is not State.RELEASED else ""
    binding = "(left the files)" if unit.leaving else unit.binding
    why = "; ".join(part for part in (before, reason, leaving) if part)
    since = age(health.since, now, exact=health.exact)
    return _row(cluster, binding, health.unit.name, health.state, since, why, health.note)


def _row(  # noqa: PLR0913, PLR0917 - a cell each
    cluster: ClusterHealth,
    binding: str,
    resource: str,
    state: State | None,
    since: str,
    why: str,
    note: str = "",
) -> _Row:
    # Without the word a state cannot be searched for, and without the symbol not be skimmed.
    shown = f"{_SYMBOLS[state]} {state}" if state is not None else "  -"
    shown += f" ({note})" if note else ""
    cells = (cluster.name, binding or "-", resource or "-", shown, since or "-", why)
    return tuple(map(visible, cells)), state


def age(since: datetime | None, now: datetime, *, exact: bool = True) -> str:
    """Return how long ago that was in its largest unit, such as 45s, 12m, 3h, 5d; "" = unknown.

    Not `exact`: it was then or later, such as <3h.
    """
    return "" if since is None else f"{'' if exact else '<'}{times.age(now - since)}"


def _table(rows: Sequence[_Row], *, color: bool) -> list[str]:
    lines = [(_HEADER, None), *rows]
    widths = [max(len(cells[column]) for cells, _ in lines) for column in range(len(_HEADER) - 1)]
    return [_line(cells, widths, state, color=color) for cells, state in lines]


def _line(cells: Sequence[str], widths: Sequence[int], state: State | None, *, color: bool) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
    if state is not None:
        padded[3] = terminal.styled(padded[3], _STYLES.get(state), color=color)
    return _GAP.join([*padded, cells[-1]]).rstrip()


def _summary(board: Board) -> str:
    """Return the states in words: `8 Ready, 1 Degraded, control plane eu Degraded`."""
    words = [f"{count} {state}" for state, count in board.counts().items() if count]
    if board.unread:
        words.append(f"{plural(len(board.unread), 'cluster')} not read")
    bare = [one for one in board.clusters if one.state is State.DEGRADED and not one.units]
    words += [f"cluster {visible(one.name)} {one.state}" for one in bare]
    words += [f"control plane {visible(one.name)} {one.state}" for one in board.planes]
    return ", ".join(words) or "no units"


def changes(before: Board, after: Board) -> str:
    """Return a line for every change between two boards, for a log; "" where there is none."""
    time, lines, gone = times.format_time(after.time), "", []
    for key, was, unit in changed(before.clusters, after.clusters):
        if unit is None:
            gone.append(key)
            continue
        health = unit.health
        turn = f"{was.health.state} -> {health.state}" if was else f"new: {health.state}"
        why = f": {health.reason}: {health.message}" if health.reason else ""
        lines += f"{time} {visible(str(key))}: {turn}{visible(why)}\n"
    return lines + "".join(f"{time} {visible(str(key))}: gone\n" for key in sorted(gone))


def events(board: Board, *, before: Board | None = None) -> str:
    """Return a line of JSON for every unit, or those that changed since, and the counts."""
    turns = list(changed(before.clusters if before else (), board.clusters))
    time = times.format_time(board.time)
    lines: list[Mapping[str, object]] = [
        {"event": "unit", "time": time, "cluster": key.cluster, **unit_json(unit)}
        for key, _, unit in turns
        if unit is not None
    ]
    if before is None or lines:
        lines.append({"event": "summary", "time": time, **summary(board)})
    return "".join(json.dumps(line) + "\n" for line in lines)
