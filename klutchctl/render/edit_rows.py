"""What a pull request changes, as lines and as JSON; one order and one wording for all formats.

Every line that leaves this module is on one line and fit for a terminal.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from klutchctl.render import plan_rows
from klutchctl.render.visible import visible
from reconciler.core.manifest import JSON
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
    found = []
    for edit, name, what in zip(against.edits, names, whats, strict=True):
        head = f"{_SYMBOLS[edit.effect]:>3} {edit.effect.value}"
        place = plan_rows.place(edit.origin)
        found.append(f"{head:<12} {name:<{wide}}{_GAP}{what:<{most}}{_GAP}{place}".rstrip())
        found += (f"{_DETAIL_INDENT}{plan_rows.difference(field)}" for field in edit.fields)
    return found


def as_json(against: Against) -> dict[str, JSON]:
    """Return the edits as one JSON object."""
    return {
        "ref": against.ref,
        "revision": against.revision,
        "edits": [dict(_json(edit)) for edit in against.edits],
    }


def _what(edit: Edit) -> str:
    if not edit.resource:
        return edit.kind
    return visible(f"{edit.resource} in {plan_rows.few(edit.clusters)}")


def _json(edit: Edit) -> Iterator[tuple[str, JSON]]:
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
            {"path": one.path, "before": one.before, "after": one.after} for one in edit.fields
        ]
        yield "fields", fields
