"""A plan for programs: the document of a plan file, indented, with its counts."""

from collections import Counter

from klutchctl.render import edit_rows
from reconciler.core.manifest import JSON, indented
from reconciler.planning.changes import Action, Plan
from reconciler.planning.planfile import document
from reconciler.reports.pr_diff import Against


def render(plan: Plan, *, against: Against | None = None) -> str:
    """Return one JSON object and a newline. A plan file may be made of it too.

    `against`, what a pull request changes, is in the summary: it is no part of the plan.
    """
    counts = Counter(change.action for change in plan.changes)
    summary: dict[str, JSON] = {
        **{action.value: counts[action] for action in Action},
        "unseenClusters": len(plan.unseen),
        **({} if against is None else {"against": edit_rows.as_json(against)}),
    }
    return indented({**document(plan), "summary": summary}).decode() + "\n"
