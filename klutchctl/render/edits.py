"""What a pull request changes, as lines: one order and one wording for all text formats.

Every line that leaves this module is on one line and fit for a terminal.
"""

from collections.abc import Mapping
from typing import Final

from klutchctl.render import plan_rows
from klutchctl.render.terminal import visible
from reconciler.reports.pr_diff import Against, Edit, Effect

_SYMBOLS: Final[Mapping[Effect, str]] = {
    Effect.DELETE: "-",
    Effect.REPLACE: "-/+",
    Effect.WIDEN: "!",
    Effect.RIGHTS: "!",
    Effect.BLOCK: "!",
    Effect.RELEASE: "<",
    Effect.REMOVE: "-",
    Effect.CHANGE: "~",
    Effect.ADD: "+",
}
_DETAIL_INDENT: Final = " " * 15
_GAP: Final = "   "
# Longer descriptions push their place to the right instead of moving everyone's.
_WIDEST: Final = 60


def title(against: Against) -> str:
    """Return the heading, such as `Changed against main (4c1e9d2)`."""
    commit = plan_rows.short_commit(against.revision)
    named = visible(against.ref)
    return f"Changed against {named}" + (f" ({commit})" if commit not in ("", named) else "")


def lines(against: Against) -> list[str]:
    """Return a line per edit, gravest first, with its differences below it."""
    if not against.edits:
        return ["    nothing"]
    names = [visible(edit.name) or "-" for edit in against.edits]
    whats = [_what(edit) for edit in against.edits]
    wide = max(map(len, names))
    most = max((len(what) for what in whats if len(what) <= _WIDEST), default=0)
    shown = []
    for edit, name, what in zip(against.edits, names, whats, strict=True):
        head = f"{_SYMBOLS[edit.effect]:>3} {edit.effect.value}"
        place = plan_rows.place(edit.origin)
        shown.append(f"{head:<12} {name:<{wide}}{_GAP}{what:<{most}}{_GAP}{place}".rstrip())
        shown += (f"{_DETAIL_INDENT}{plan_rows.difference(field)}" for field in edit.fields)
    return shown


def _what(edit: Edit) -> str:
    if not edit.resource:
        return edit.kind
    return visible(f"{edit.resource} in {plan_rows.few(edit.clusters)}")
