"""Renders a plan as text, as JSON, and as a comment on a pull request.

The text has aligned lines, symbols with words, and colour only on top. The JSON is the document of
a plan file, indented, with its counts. In a comment text of files and clusters stands in fenced
blocks or in escaped `<code>`, where neither markdown nor HTML nor a mention works; its size is
bounded, and what is left out is counted.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from klutchctl.render import plan_rows, problems, terminal
from klutchctl.render.plan_rows import DETAIL_INDENT, SYMBOLS, WIDEST, Row, Section
from klutchctl.render.terminal import Style, plural, visible, visible_lines
from reconciler.core.errors import InvalidRepository, Problem, Severity
from reconciler.core.manifest import JSON, indented
from reconciler.planning.changes import Action, Plan
from reconciler.planning.planfile import document, origin_json
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
MAX_BYTES: Final = 60_000
# Every part has its own room, so that a thousand deletes do not hide one widened claim. What
# the first parts leave over goes to the clusters.
_ROOM_DENIED: Final = 4_000
_ROOM_EDITS: Final = 10_000
_ROOM_TAKEN: Final = 14_000
_ROOM_WIDENED: Final = 8_000
_ROOM_REMARK: Final = 5_000
_ROOM_NOTES: Final = 4_000
_ROOM_TAIL: Final = 500
_ROOM_CLUSTER: Final = 1_500
_ROOM_PROBLEMS: Final = 25_000
_LONGEST_LINE: Final = 400
_LONGEST_DETAIL: Final = 4_500  # what differs is shown whole, where there is room for it
_LONGEST_NAME: Final = 80
_LONGEST_TITLE: Final = 500
_RANGES: Final = 12  # of the names of clusters that are alike
_ROWS: Final = 40
_UNBOUNDED: Final = 1 << 40
_TAKING: Final = frozenset({Action.DELETE, Action.REPLACE, Action.RELEASE})
_GRAVITY: Final = (
    *(Action.DELETE, Action.REPLACE, Action.RELEASE, Action.BLOCKED, Action.UPDATE),
    *(Action.ADOPT, Action.CREATE, Action.UNKNOWN, Action.NOOP),
)
_BACKTICKS: Final = re.compile("`+")
_MARKS: Final = re.compile(r"[^A-Za-z0-9 +,-]")
_NO_PLAN: Final = """\
### No plan

**klutchctl could not make one, and nothing was written. An earlier plan counts no more.**
"""


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
            [
                *([f"    {one.example}"] if one.example else []),
                *section_lines(one.rows, widths, color=color),
            ],
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
    text = max((len(row.text) for row in listed if len(row.text) <= widest), default=0)
    return subject, text


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


def row_line(row: Row, widths: tuple[int, int], *, color: bool = False) -> str:
    subject, text = widths
    described = f"{row.text:<{text}}{_GAP}{row.origin}" if row.origin else row.text
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
    yield "Held back", named_lines(plan_rows.tripped(plan))
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
    yield "origin", origin_json(edit.origin)
    if edit.fields:
        fields: list[JSON] = [
            {"path": field.path, "before": field.before, "after": field.after}
            for field in edit.fields
        ]
        yield "fields", fields


def without_plan(error: BaseException, sentences: Sequence[str]) -> str:
    """Return the comment of a run that made no plan, as `comment` does.

    `sentences` say why; the problems of a repository are listed instead.
    """
    found = error.problems if isinstance(error, InvalidRepository) else ()
    parts = (
        (DENIED, _problems(found, Severity.DENIED)),
        ("Not valid", _problems(found, Severity.INVALID)),
        ("Why", [] if found else visible_lines("\n".join(sentences)).split("\n")),
    )
    blocks = [_block(title, lines, _ROOM_PROBLEMS) for title, lines in parts]
    return "\n".join([_NO_PLAN, *(one for some in blocks for one in some)])


def _problems(found: Iterable[Problem], severity: Severity) -> list[str]:
    return named_lines(problems.rows([one for one in found if one.severity is severity]))


def comment(plan: Plan, *, against: Against | None = None) -> str:
    """Return a comment: UTF-8 text of at most `MAX_BYTES` bytes that ends in a newline.

    What takes away or widens comes first. `against` is what the pull request changes.
    """
    sections = plan_rows.sections(plan, most=_RANGES)
    denied = () if against is None else against.denied
    head = [_markdown_head(plan), *_block(DENIED, named_lines(problems.rows(denied)), _ROOM_DENIED)]
    grave = [
        *_block("Deleted, replaced or released", _only(sections, _TAKING), _ROOM_TAKEN),
        *_block("Claims widened", named_lines(plan_rows.widened(plan)), _ROOM_WIDENED),
        *_block("Held back", named_lines(plan_rows.tripped(plan)), _ROOM_REMARK),
        *_block("Blocked", _only(sections, frozenset({Action.BLOCKED})), _ROOM_REMARK),
        *_block(
            "Clusters not read",
            named_lines(plan_rows.unread(plan.unseen, plan.sections)),
            _ROOM_REMARK,
        ),
    ]
    notes = _block("Notes", plan_rows.notes(plan), _ROOM_NOTES)
    whole = list(_clusters(sections, _UNBOUNDED))
    room = MAX_BYTES - _ROOM_TAIL - _sizes(head, grave, notes)
    edits = _edits(against, max(_ROOM_EDITS, room - _sizes(whole)))
    room -= _sizes(edits)
    shown = whole if _sizes(whole) <= room else _cut(plan, sections, room)
    return "\n".join([*head, *edits, *grave, *shown, *notes])


def _edits(against: Against | None, room: int) -> list[str]:
    if against is None:
        return []
    return _block(f"Changed against {_code(against.ref)}", plan_rows.edit_lines(against), room)


def _cut(plan: Plan, sections: Sequence[Section], room: int) -> list[str]:
    """Return as many clusters as there is room for, gravest first, below a table of all."""
    table = _table(plan)
    head = [table] if _size(table) <= room - _ROOM_CLUSTER else []
    grave = sorted(sections, key=lambda one: min(_GRAVITY.index(row.action) for row in one.rows))
    return [*head, *_clusters(grave, room - _sizes(head))]


def _markdown_head(plan: Plan) -> str:
    read, missing = plan_rows.reading(plan, None)
    revision = f" at {_code(plan_rows.short_commit(plan.revision))}" if plan.revision else ""
    unread = ", the others are **unknown**" if missing else ""
    return (
        f"### Plan {_code(plan.id[: plan_rows.ID_SHOWN])} for fleet {_code(plan.fleet)}{revision}\n"
        f"\n**{plan_rows.summary(plan)}**\n\n{read}{unread}.\n"
    )


def _block(title: str, lines: Sequence[str], room: int) -> list[str]:
    return [f"#### {title}\n\n{_fenced(lines, room)}\n"] if lines else []


def _only(sections: Iterable[Section], actions: frozenset[Action]) -> list[str]:
    """Return the rows with these actions, below the titles of their clusters."""
    lines: list[str] = []
    for section in sections:
        rows = [replace(row, details=()) for row in section.rows if row.action in actions]
        if rows:
            widths = column_widths(rows)
            lines += [section.title, *section_lines(rows, widths)]
    return lines


def _table(plan: Plan) -> str:
    """Return a table of the lines by binding, and of those that clusters need beside them."""
    counts: dict[str, Counter[Action]] = defaultdict(Counter)
    clusters: dict[str, set[str]] = defaultdict(set)
    for change in plan.changes:
        if change.action is not Action.NOOP:
            counts[change.subject][change.action] += 1
            clusters[change.subject].add(change.cluster)
    used = [action for action in Action if any(one[action] for one in counts.values())]
    head = ["", *(action.value for action in used), "clusters"]
    rows = [
        [_code(name), *(str(counts[name][action] or "") for action in used), str(len(where))]
        for name, where in sorted(clusters.items())
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    more = len(lines) - _ROWS
    left = [f"| {plural(more, 'more row')} |"] if more > 0 else []
    return "\n".join([*lines[:_ROWS], *left, ""])


def _clusters(sections: Sequence[Section], room: int) -> Iterator[str]:
    """Yield a block per cluster, or several that are alike, while there is room; then the rest."""
    for index, section in enumerate(sections):
        fair = max(_ROOM_CLUSTER, room // (len(sections) - index))
        if room < _ROOM_CLUSTER:
            left = sections[index:]
            lines = sum(len(one.rows) * len(one.clusters) for one in left)
            yield (
                f"{plural(sum(len(one.clusters) for one in left), 'more cluster')} with "
                f"{plural(lines, 'line')} left out here: "
                "`klutchctl plan` prints the whole plan.\n"
            )
            return
        block = _cluster(section, fair)
        room -= _size(block) + 1
        yield block


def _cluster(section: Section, room: int) -> str:
    note = section.example or section.counts
    head = f"<details><summary>{_code(section.title, _LONGEST_TITLE)}: {_text(note)}</summary>\n\n"
    tail = "\n\n</details>\n"
    lines = list(section_lines(section.rows, column_widths(section.rows)))
    return f"{head}{_fenced(lines, room - _size(head + tail))}{tail}"


def _fenced(lines: Sequence[str], room: int) -> str:
    """Return the lines that fit as literal text, and the number of those that do not."""
    clipped = [_clipped(line) for line in lines]
    # Longer than any run of backticks inside, so that nothing inside can end the block.
    longest = max((len(run) for line in clipped for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    room -= 2 * _size(fence) + _size("text\n... and 1000000 more lines\n\n")
    shown: list[str] = []
    for line in clipped:
        room -= _size(line) + 1
        if room < 0:
            break
        shown.append(line)
    left = len(lines) - len(shown)
    if left:
        shown.append(f"... and {plural(left, 'more line')}")
    return "\n".join([f"{fence}text", *shown, fence])


def _clipped(line: str) -> str:
    most = _LONGEST_DETAIL if line.startswith(DETAIL_INDENT) else _LONGEST_LINE
    return line if len(line) <= most else f"{line[:most]}... ({len(line)} characters)"


def _code(text: str, longest: int = _LONGEST_NAME) -> str:
    """Return a short text as inline code in which nothing is markdown, HTML or a mention."""
    clipped = text if len(text) <= longest else f"{text[:longest]}..."
    return f"<code>{_text(clipped)}</code>"


def _text(text: str) -> str:
    return _MARKS.sub(lambda found: f"&#{ord(found[0])};", visible(text))


def _size(text: str) -> int:
    return len(text.encode())


def _sizes(*parts: Sequence[str]) -> int:
    return sum(_size(one) + 1 for part in parts for one in part)
