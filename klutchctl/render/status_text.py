"""A board for people: an aligned table, a symbol and a word for each state, colour on top."""

from collections.abc import Mapping, Sequence
from typing import Final

from klutchctl.render import status_rows
from klutchctl.render.plan_text import named_lines
from klutchctl.render.status_rows import SYMBOLS, Row
from reconciler.health.board import Board
from reconciler.health.verdict import State

_GAP: Final = "  "
_HEADER: Final = ("CLUSTER", "BINDING", "RESOURCE", "STATE", "AGE", "WHY")
_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_COLORS: Final[Mapping[State, str]] = {
    State.READY: "\x1b[32m",
    State.PROGRESSING: "\x1b[36m",
    State.DEGRADED: "\x1b[31m",
    State.UNKNOWN: "\x1b[33m",
}


def render(board: Board, *, color: bool = False) -> str:
    """Return the board as text that ends in a newline."""
    blocks = [[_bold(status_rows.heading(board), color=color)]]
    rows = list(status_rows.rows(board))
    if rows:
        blocks.append(_table(rows, color=color))
    unread = named_lines(status_rows.unread(board))
    if unread:
        blocks.append([_bold("Clusters not read", color=color), *unread])
    blocks.append([_bold(f"Status: {status_rows.summary(board)}.", color=color)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _table(rows: Sequence[Row], *, color: bool) -> list[str]:
    lines = [(_HEADER, None), *((_cells(row), row.state) for row in rows)]
    widths = [max(len(cells[column]) for cells, _ in lines) for column in range(len(_HEADER) - 1)]
    return [_line(cells, widths, state, color=color) for cells, state in lines]


def _cells(row: Row) -> tuple[str, ...]:
    # Without the word a state cannot be searched for, and without the symbol not be skimmed.
    state = f"{SYMBOLS[row.state]} {row.state}" if row.state is not None else "  -"
    return (row.cluster, row.binding or "-", row.resource or "-", state, row.age or "-", row.why)


def _line(cells: Sequence[str], widths: Sequence[int], state: State | None, *, color: bool) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
    if color and state is not None and state in _COLORS:
        padded[3] = f"{_COLORS[state]}{padded[3]}{_RESET}"
    return _GAP.join([*padded, cells[-1]]).rstrip()


def _bold(text: str, *, color: bool) -> str:
    return f"{_BOLD}{text}{_RESET}" if color else text
