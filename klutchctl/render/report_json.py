"""What an apply did, for programs. Versioned: a new minor version adds fields, a major breaks."""

import json
from typing import Any, Final

from reconciler.apply import Outcome, Report
from reconciler.planning.changes import Action, Change

FORMAT: Final = "klutchctl.dev/report"
VERSION: Final = "1.0"


def render(report: Report) -> str:
    """Return the report as one JSON object and a newline."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "fleet": report.plan.fleet,
        "plan": report.plan.id,
        "revision": report.plan.revision,
        "outcomes": [outcome(one) for one in report.outcomes],
        "notReady": [{"unit": one.unit, "reason": one.reason} for one in report.not_ready],
        "ready": report.ready,
        "ended": report.ended,
        "held": [{"guard": one.guard, "message": one.message} for one in report.plan.held],
        "blocked": [_blocked(one) for one in report.plan.changes if one.action is Action.BLOCKED],
        "unseen": [{"name": one.name, "reason": one.reason} for one in report.plan.unseen],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _blocked(change: Change) -> dict[str, Any]:
    unit = None if change.unit is None else change.unit.name
    return {
        "cluster": change.cluster,
        "subject": change.subject,
        "unit": unit,
        "reason": change.reason,
    }


def outcome(one: Outcome) -> dict[str, Any]:
    """Return one line and what became of it."""
    change = one.change
    unit = change.unit
    return {
        "cluster": change.cluster,
        "subject": change.subject,
        "unit": None if unit is None else unit.name,
        "action": change.action.value,
        "kind": change.ref.kind.kind,
        "namespace": change.ref.namespace,
        "name": change.ref.name,
        "status": one.status.value,
        "message": one.message,
    }
