"""Renders the explanation of a binding: files, plan and health, as text or JSON.

The document is versioned: a new minor version adds fields, a major breaks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final, TypeAlias

from klutchctl.render import plan_rows, terminal
from klutchctl.render.plan_formats import column_widths, named_lines, section_lines
from klutchctl.render.status_document import health_json
from klutchctl.render.terminal import visible
from reconciler.core.errors import Origin
from reconciler.core.manifest import JSON
from reconciler.fleet.values import Claim
from reconciler.health.verdict import UnitHealth
from reconciler.planning.permission_claims import ANY, places
from reconciler.planning.planfile import document, origin_json, unit_json
from reconciler.reports.why import Explanation, Provenance

FORMAT: Final = "klutchctl.dev/why"
VERSION: Final = "1.1"

_OF_PLAN: Final = ("changes", "widened", "held", "unseen")
_INDENT: Final = "    "

Fact: TypeAlias = tuple[str, str, Origin | None]  # what, which, where


def text(
    explanation: Explanation, health: Sequence[UnitHealth], *, color: bool = False, docs: str = ""
) -> str:
    plan = explanation.plan
    sections = (
        ("In the files", list(_files(explanation))),
        ("In the plan", list(_plan(explanation, color=color))),
        ("Claims widened", named_lines(plan_rows.widened(plan))),
        ("Held back", named_lines(plan_rows.tripped(plan))),
        ("Not read", named_lines(plan_rows.unread(plan.unseen))),
        ("Health", [_INDENT + _health(unit) for unit in health]),
    )
    reasons = (*(one.reason for one in health), *(one.guard for one in plan.held))
    return terminal.paragraphs(
        [
            terminal.block(visible(str(explanation.target)), color=color),
            *(terminal.block(title, lines, color=color) for title, lines in sections if lines),
            *terminal.pages(reasons, docs, color=color),
        ]
    )


def _files(explanation: Explanation) -> Iterator[str]:
    if explanation.source is None:
        yield f"{_INDENT}no document binds it in {visible(explanation.target.cluster)}"
        return
    found = list(facts(explanation.source))
    first = max(len(kind) for kind, _, _ in found)
    second = max(len(visible(which)) for _, which, _ in found)
    for kind, which, origin in found:
        where = plan_rows.place(origin)
        line = f"{_INDENT}{kind:<{first}}  {visible(which):<{second}}   {where}"
        yield line.rstrip()


def facts(source: Provenance) -> Iterator[Fact]:
    """Yield the facts of a binding in the files, each with its place."""
    named = (source.binding, source.cluster, source.control_plane)
    for kind, one in zip(("Binding", "Cluster", "ControlPlane"), named, strict=True):
        yield kind, one.name, one.origin
    for clause in source.clauses:
        yield (
            "selector",
            f"{clause.text}: {'matches' if clause.holds else 'does not match'}",
            clause.origin,
        )
    yield "selected", _selected(source), None
    if source.template:
        yield "Template", source.template.name, source.template.origin
    for unit in source.units:
        yield "unit", unit.name, None
    for claim in source.claims:
        yield "claim", _claim(claim), claim.origin
    if source.parameters:
        yield "parameters", f"digest {source.parameters}", None
    for name in source.depends_on:
        yield "depends on", name, None
    yield "deletionPolicy", source.deletion_policy, None
    for verdict in source.verdicts:
        answer = "allows it" if verdict.allows else "does not allow it"
        yield "Policy", f"{verdict.name} {answer}", verdict.origin


def _selected(source: Provenance) -> str:
    if source.selected:
        return "yes"
    why = "" if source.clauses else ": nothing in it speaks of this cluster"
    return f"no{why}"


def _claim(claim: Claim) -> str:
    group = f".{claim.group}" if claim.group else ""
    state = "accepted" if claim.accepted else "rejected"
    reach = ", ".join(claim.names)
    if claim.namespaces != (ANY,):
        reach += f" in {places(claim.namespaces)}"
    return f"{claim.resource}{group} of the {claim.owner.value}, {state}: {reach}"


def _plan(explanation: Explanation, *, color: bool) -> Iterator[str]:
    rows = [plan_rows.row(one, steps=True) for one in explanation.plan.changes]
    yield from section_lines(rows, column_widths(rows), color=color)
    for unit in explanation.unmanaged:
        yield (
            f"{_INDENT}{visible(unit.name)} is live, and not ours: it is listed and never touched; "
            "`klutchctl import` writes files for it"
        )
    if not rows and not explanation.unmanaged and not explanation.plan.unseen:
        yield f"{_INDENT}nothing: none of it is live"


def _health(one: UnitHealth) -> str:
    reason = f"{one.reason}: {one.message}" if one.reason else ""
    note = f" ({one.note})" if one.note else ""
    return f"{visible(one.unit.name)}  {one.state.value}{note}  {visible(reason)}".rstrip()


def as_json(explanation: Explanation, health: Sequence[UnitHealth]) -> str:
    """Return one JSON object and a newline.

    `changes`, `widened`, `held` and `unseen` are as in a plan.
    """
    plan = document(explanation.plan)
    content: dict[str, JSON] = {
        "cluster": explanation.target.cluster,
        "name": explanation.target.name,
        "source": None if explanation.source is None else _source_json(explanation.source),
        "units": [unit_json(one) for one in explanation.units],
        "unmanaged": [unit_json(one) for one in explanation.unmanaged],
        **{key: plan[key] for key in _OF_PLAN},
        "health": [{**unit_json(one.unit), **health_json(one)} for one in health],
    }
    return terminal.document(FORMAT, VERSION, content)


def _source_json(source: Provenance) -> dict[str, JSON]:
    stated = asdict(source)
    return {
        "binding": source.binding.name,
        "origin": origin_json(source.binding.origin),
        "cluster": stated["cluster"],
        "controlPlane": stated["control_plane"],
        "selected": source.selected,
        "selector": stated["clauses"],
        "template": stated["template"],
        "claims": [
            {
                "group": claim.group,
                "resource": claim.resource,
                "version": claim.version,
                "owner": claim.owner.value,
                "names": list(claim.names),
                "namespaces": list(claim.namespaces),
                "labels": [dict(one) for one in claim.labels],
                "state": "Accepted" if claim.accepted else "Rejected",
                "origin": origin_json(claim.origin),
            }
            for claim in source.claims
        ],
        "parameters": source.parameters,
        "deletionPolicy": source.deletion_policy,
        "dependsOn": list(source.depends_on),
        "policies": stated["verdicts"],
    }
