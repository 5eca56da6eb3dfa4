"""A plan as text for people, and as JSON for programs.

The text has aligned lines, symbols with words, and colour only on top. The JSON is the document of
a plan file, indented, with its counts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from klutchctl.render import plan_rows, problems, terminal
from klutchctl.render.plan_rows import DETAIL_INDENT, SYMBOLS, WIDEST, Row, Section
from klutchctl.render.terminal import Style
from reconciler.core.manifest import JSON, indented
from reconciler.planning.changes import Action, Plan
from reconciler.planning.planfile import document
from reconciler.reports.pr_diff import Against, Edit

_GAP: Final = "   "
_SYMBOL_WIDTH: Final = 3
_HEAD_WIDTH: Final = 12
DENIED: Final = "Denied by policy"

_STYLES: Final[Mapping[Action, Style]] = {
    Action.CREATE: Style.GREEN,
    Action.UPDATE: Style.YELLOW,
    Action.REPLACE: Style.RED,
    Action.ADOPT: Style.CYAN,
    Action.RELEASE: Style.MAGENTA,
    Action.DELETE: Style.RED,
    Action.BLOCKED: Style.RED,
    Action.UNKNOWN: Style.YELLOW,
}


def text(
    plan: Plan,
    *,
    seconds: float | None = None,
    color: bool = False,
    columns: int | None = None,
    against: Against | None = None,
    steps: bool = False,
) -> str:
    """Return the plan as text that ends in a newline.

    `seconds` is how long reading took, `columns` what a terminal has; left out, equal plans are
    equal texts, and each line is whole. `against` is what a pull request changes. `steps`: with
    those of each release.
    """
    sections = plan_rows.sections(plan, steps=steps)
    widths = column_widths([row for section in sections for row in section.rows], columns)
    blocks = [_head(plan, seconds)]
    if against is not None:
        denied = named_lines(problems.rows(against.denied))
        blocks += [terminal.block(DENIED, denied, color=color)] if denied else []
        blocks.append(
            terminal.block(
                plan_rows.edits_title(against), plan_rows.edit_lines(against), color=color
            )
        )
    blocks += (
        terminal.block(
            one.title,
            [*indented_example(one), *section_lines(one.rows, widths, color=color)],
            color=color,
        )
        for one in sections
    )
    blocks += (
        terminal.block(title, lines, color=color) for title, lines in _remarks(plan) if lines
    )
    blocks.append(terminal.block(f"Plan: {plan_rows.summary(plan)}.", color=color))
    return terminal.folded(terminal.paragraphs(blocks), columns)


def column_widths(rows: Iterable[Row], columns: int | None = None) -> tuple[int, int]:
    """Return the widths of subjects and descriptions that line `rows` up, within `columns`."""
    listed = list(rows)
    subject = max((len(row.subject) for row in listed), default=0)
    others = _HEAD_WIDTH + 1 + subject + 2 * len(_GAP)
    origin = max((len(row.origin) for row in listed), default=0)
    widest = WIDEST if columns is None else min(WIDEST, columns - others - origin)
    what = max((len(row.what) for row in listed if len(row.what) <= widest), default=0)
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
            yield f"{DETAIL_INDENT}{detail}"


def indented_example(section: Section) -> list[str]:
    """Return the line between the title and the rows of clusters that are alike."""
    return [f"    {section.example}"] if section.example else []


def row_line(row: Row, widths: tuple[int, int], *, color: bool = False) -> str:
    subject, what = widths
    described = f"{row.what:<{what}}{_GAP}{row.origin}" if row.origin else row.what
    head = f"{SYMBOLS[row.action]:>{_SYMBOL_WIDTH}} {row.action.value}"
    if row.action is Action.NOOP:
        head = f"{'':>{_SYMBOL_WIDTH}}unchanged"  # as sums say
    line = f"{head:<{_HEAD_WIDTH}} {row.subject:<{subject}}{_GAP}{described}".rstrip()
    return terminal.styled(head, _STYLES.get(row.action), color=color) + line[len(head) :]


def named_lines(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line per (name, sentence), names lined up."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{'!':>{_SYMBOL_WIDTH}} {name:<{width}}  {sentence}" for name, sentence in pairs]


def _remarks(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    yield "Claims widened", named_lines(plan_rows.widened(plan))
    yield "Held back", named_lines(plan_rows.held(plan))
    yield "Clusters not read", named_lines(plan_rows.unread(plan.unseen, plan.sections))
    yield "Notes", [f"    {note}" for note in plan_rows.notes(plan)]


def _head(plan: Plan, seconds: float | None) -> list[str]:
    heading, (read, missing) = plan_rows.heading(plan), plan_rows.reading(plan, seconds)
    width = max(len(heading), len(read))
    return [
        f"{heading:<{width}}{_GAP}plan {plan.id[: plan_rows.ID_SHOWN]}".rstrip(),
        f"{read:<{width}}{_GAP}{missing}".rstrip(),
    ]


def as_json(plan: Plan, *, against: Against | None = None) -> str:
    """Return one JSON object and a newline. A plan file may be made of it too.

    `against`, what a pull request changes, is in the summary: it is no part of the plan.
    """
    counts = Counter(change.action for change in plan.changes)
    summary: dict[str, JSON] = {
        **{action.value: counts[action] for action in Action},
        "unseenClusters": len(plan.unseen),
        **({} if against is None else {"against": _against(against)}),
    }
    return indented({**document(plan), "summary": summary}).decode() + "\n"


def _against(against: Against) -> dict[str, JSON]:
    return {
        "ref": against.ref,
        "revision": against.revision,
        "edits": [dict(_edit(edit)) for edit in against.edits],
        **({"denied": list(map(problems.document, against.denied))} if against.denied else {}),
    }


def _edit(edit: Edit) -> Iterator[tuple[str, JSON]]:
    yield "effect", edit.effect.value
    yield "kind", edit.kind
    yield "name", edit.name
    if edit.resource:
        yield "resource", edit.resource
        yield "clusters", list(edit.clusters)
    origin = edit.origin
    yield "origin", {"path": origin.path, "line": origin.line, "column": origin.column}
    if edit.fields:
        fields: list[JSON] = [
            {"path": field.path, "before": field.before, "after": field.after}
            for field in edit.fields
        ]
        yield "fields", fields
