"""A plan for people: aligned lines, symbols with words, colour only on top of both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from klutchctl.render import edit_rows, plan_rows
from klutchctl.render.plan_rows import SYMBOLS, Row
from reconciler.planning.changes import Action, Plan
from reconciler.reports.pr_diff import Against

_GAP: Final = "   "
_SYMBOL_WIDTH: Final = 3
_HEAD_WIDTH: Final = 12
# Longer descriptions push their place to the right instead of moving everyone's.
_WIDEST: Final = 60
_DETAIL_INDENT: Final = " " * 15

_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_COLORS: Final[Mapping[Action, str]] = {
    Action.CREATE: "\x1b[32m",
    Action.UPDATE: "\x1b[33m",
    Action.REPLACE: "\x1b[31m",
    Action.ADOPT: "\x1b[36m",
    Action.RELEASE: "\x1b[35m",
    Action.DELETE: "\x1b[31m",
    Action.BLOCKED: "\x1b[31m",
    Action.UNKNOWN: "\x1b[33m",
}


def render(
    plan: Plan,
    *,
    seconds: float | None = None,
    color: bool = False,
    against: Against | None = None,
) -> str:
    """Return the plan as text that ends in a newline.

    `seconds` is how long reading took; left out, equal plans are equal texts. `against` is what a
    pull request changes.
    """
    found = plan_rows.sections(plan)
    widths = column_widths([row for section in found for row in section.rows])
    blocks = [
        _head(plan, seconds),
        *_changed(against, color=color),
        *(
            [_bold(one.title, color=color), *section_lines(one.rows, widths, color=color)]
            for one in found
        ),
        *([_bold(title, color=color), *lines] for title, lines in _remarks(plan) if lines),
        [_bold(f"Plan: {plan_rows.summary(plan)}.", color=color)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def column_widths(rows: Iterable[Row]) -> tuple[int, int]:
    """Return the widths of subjects and descriptions that line `rows` up."""
    listed = list(rows)
    subject = max((len(row.subject) for row in listed), default=0)
    what = max((len(row.what) for row in listed if len(row.what) <= _WIDEST), default=0)
    return subject, what


def section_lines(
    rows: Iterable[Row],
    widths: tuple[int, int],
    *,
    color: bool = False,
) -> Iterator[str]:
    """Yield the lines of one cluster's rows, each with its details below it."""
    for row in rows:
        yield row_line(row, widths, color=color)
        for detail in row.details:
            yield f"{_DETAIL_INDENT}{detail}"


def row_line(row: Row, widths: tuple[int, int], *, color: bool = False) -> str:
    """Return one row without its details."""
    subject, what = widths
    described = f"{row.what:<{what}}{_GAP}{row.origin}" if row.origin else row.what
    head = f"{SYMBOLS[row.action]:>{_SYMBOL_WIDTH}} {row.action.value}"
    line = f"{head:<{_HEAD_WIDTH}} {row.subject:<{subject}}{_GAP}{described}".rstrip()
    if not color or row.action not in _COLORS:
        return line
    return f"{_COLORS[row.action]}{head}{_RESET}{line[len(head) :]}"


def named_lines(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line per (name, sentence), names lined up."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{'!':>{_SYMBOL_WIDTH}} {name:<{width}}  {sentence}" for name, sentence in pairs]


def _remarks(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    yield "Claims widened", named_lines(plan_rows.widened(plan))
    yield "Held back", named_lines(plan_rows.held(plan))
    yield "Clusters not read", named_lines(plan_rows.unread(plan))
    yield "Notes", [f"    {note}" for note in plan_rows.notes(plan)]


def _head(plan: Plan, seconds: float | None) -> list[str]:
    heading, (read, missing) = plan_rows.heading(plan), plan_rows.reading(plan, seconds)
    width = max(len(heading), len(read))
    return [
        f"{heading:<{width}}{_GAP}plan {plan.id[: plan_rows.ID_SHOWN]}".rstrip(),
        f"{read:<{width}}{_GAP}{missing}".rstrip(),
    ]


def _changed(against: Against | None, *, color: bool) -> Iterator[list[str]]:
    if against is not None:
        yield [_bold(edit_rows.title(against), color=color), *edit_rows.lines(against)]


def _bold(text: str, *, color: bool) -> str:
    return f"{_BOLD}{text}{_RESET}" if color else text
