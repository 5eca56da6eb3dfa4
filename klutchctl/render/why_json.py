"""Why a binding is as it is, for programs: one versioned document."""

import json
from collections.abc import Sequence
from typing import Final

from reconciler.core.durations import format_time
from reconciler.core.manifest import JSON
from reconciler.core.origin import Origin
from reconciler.fleet.values import Claim, UnitKey
from reconciler.health import UnitHealth
from reconciler.planning.planfile import document
from reconciler.reports.provenance import Provenance
from reconciler.reports.why import Explanation

FORMAT: Final = "klutchctl.dev/why"
VERSION: Final = "1.1"

_OF_PLAN: Final = ("changes", "widened", "held", "unseen")


def render(found: Explanation, health: Sequence[UnitHealth]) -> str:
    """Return one JSON object and a newline. A new minor version adds fields, a major breaks.

    `changes`, `widened`, `held` and `unseen` are as in a plan.
    """
    plan = document(found.plan)
    content: dict[str, JSON] = {
        "format": FORMAT,
        "version": VERSION,
        "cluster": found.target.cluster,
        "name": found.target.name,
        "source": None if found.source is None else _source(found.source),
        "units": [_unit(one) for one in found.units],
        "unmanaged": [_unit(one) for one in found.unmanaged],
        **{key: plan[key] for key in _OF_PLAN},
        "health": [_health(one) for one in health],
    }
    return json.dumps(content, indent=2) + "\n"


def _source(source: Provenance) -> dict[str, JSON]:
    return {
        "binding": source.binding,
        "origin": _origin(source.origin),
        "cluster": {"name": source.cluster, "origin": _origin(source.cluster_origin)},
        "controlPlane": {
            "name": source.control_plane,
            "origin": _origin(source.control_plane_origin),
        },
        "selected": source.selected,
        "selector": [
            {"text": one.text, "origin": _origin(one.origin), "holds": one.holds}
            for one in source.clauses
        ],
        "template": None
        if source.template_origin is None
        else {"name": source.template, "origin": _origin(source.template_origin)},
        "claims": [_claim(one) for one in source.claims],
        "parameters": source.parameters,
        "deletionPolicy": source.deletion_policy,
        "dependsOn": list(source.depends_on),
        "policies": [
            {"name": one.policy, "origin": _origin(one.origin), "allows": one.allows}
            for one in source.verdicts
        ],
    }


def _claim(claim: Claim) -> dict[str, JSON]:
    return {
        "group": claim.group,
        "resource": claim.resource,
        "version": claim.version,
        "owner": claim.owner.value,
        "names": list(claim.names),
        "namespaces": list(claim.namespaces),
        "labels": [dict(one) for one in claim.labels],
        "state": "Accepted" if claim.accepted else "Rejected",
        "origin": _origin(claim.origin),
    }


def _health(one: UnitHealth) -> dict[str, JSON]:
    return {
        **_unit(one.unit),
        "state": one.state,
        "reason": one.reason,
        "message": one.message,
        "since": None if one.since is None else format_time(one.since),
        "sinceExact": one.exact,
        "lastKnown": one.last_known,
    }


def _unit(unit: UnitKey) -> dict[str, JSON]:
    return {"cluster": unit.cluster, "group": unit.group, "resource": unit.resource}


def _origin(origin: Origin) -> dict[str, JSON]:
    return {"path": origin.path, "line": origin.line, "column": origin.column}
