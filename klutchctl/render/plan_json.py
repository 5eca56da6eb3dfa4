"""A plan for programs: the document of a plan file, indented, with its counts."""

import json
from collections import Counter

from reconciler.planning.changes import Action, Plan
from reconciler.planning.planfile import document


def render(plan: Plan) -> str:
    """Return one JSON object and a newline. A plan file may be made of it too."""
    counts = Counter(change.action for change in plan.changes)
    summary = {action.value: counts[action] for action in Action}
    summary["unseenClusters"] = len(plan.unseen)
    return json.dumps({**document(plan), "summary": summary}, indent=2) + "\n"
