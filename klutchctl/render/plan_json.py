"""A plan for programs: the document of a plan file, indented, with its counts."""

from collections import Counter
from collections.abc import Iterator

from reconciler.core.manifest import JSON, indented
from reconciler.planning.changes import Action, Plan
from reconciler.planning.planfile import document
from reconciler.reports.pr_diff import Against, Edit


def render(plan: Plan, *, against: Against | None = None) -> str:
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
