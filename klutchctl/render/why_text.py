"""Why a binding is as it is, for people: the files first, then the plan, then its health."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from klutchctl.render import plan_rows
from klutchctl.render.plan_text import column_widths, named_lines, section_lines
from klutchctl.render.visible import visible
from reconciler.core.origin import Origin
from reconciler.fleet.values import Claim
from reconciler.health import UnitHealth
from reconciler.reports.provenance import Provenance
from reconciler.reports.why import Explanation

_INDENT: Final = "    "
_GAP: Final = "   "
_BOLD: Final = "\x1b[1m"
_RESET: Final = "\x1b[0m"

_Fact: TypeAlias = tuple[str, str, Origin | None]  # what, which, where


def render(found: Explanation, health: Sequence[UnitHealth], *, color: bool = False) -> str:
    """Return the explanation as text that ends in a newline."""
    blocks = [[_bold(visible(str(found.target)), color=color)]]
    for title, lines in (
        ("In the files", list(_files(found))),
        ("In the plan", list(_plan(found, color=color))),
        ("Claims widened", named_lines(plan_rows.widened(found.plan))),
        ("Held back", named_lines(plan_rows.held(found.plan))),
        ("Not read", named_lines(plan_rows.unread(found.plan))),
        ("Health", [_INDENT + _health(one) for one in health]),
    ):
        if lines:
            blocks.append([_bold(title, color=color), *lines])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _files(found: Explanation) -> Iterator[str]:
    if found.source is None:
        yield f"{_INDENT}no document binds it in {visible(found.target.cluster)}"
        return
    facts = list(_facts(found.source))
    first = max(len(what) for what, _, _ in facts)
    second = max(len(visible(which)) for _, which, _ in facts)
    for what, which, origin in facts:
        where = plan_rows.place(origin)
        line = f"{_INDENT}{what:<{first}}  {visible(which):<{second}}{_GAP}{where}"
        yield line.rstrip()


def _facts(source: Provenance) -> Iterator[_Fact]:
    yield "Binding", source.binding, source.origin
    yield "Cluster", source.cluster, source.cluster_origin
    yield "ControlPlane", source.control_plane, source.control_plane_origin
    for clause in source.clauses:
        yield "selector", f"{clause.text}: {_yes(clause.holds)}", clause.origin
    yield "selected", _selected(source), None
    if source.template:
        yield "Template", source.template, source.template_origin
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
        said = "allows it" if verdict.allows else "does not allow it"
        yield "Policy", f"{verdict.policy} {said}", verdict.origin


def _selected(source: Provenance) -> str:
    if source.selected:
        return "yes"
    why = "" if source.clauses else ": nothing in it speaks of this cluster"
    return f"no{why}"


def _yes(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def _claim(claim: Claim) -> str:
    group = f".{claim.group}" if claim.group else ""
    state = "accepted" if claim.accepted else "rejected"
    return f"{claim.resource}{group} of the {claim.owner.value}, {state}: {', '.join(claim.names)}"


def _plan(found: Explanation, *, color: bool) -> Iterator[str]:
    rows = list(map(plan_rows.row, found.plan.changes))
    yield from section_lines(rows, column_widths(rows), color=color)
    for unit in found.unmanaged:
        yield (
            f"{_INDENT}{visible(unit.name)} is live, and not ours: it is listed and never touched; "
            "`klutchctl import` writes files for it"
        )
    if not rows and not found.unmanaged and not found.plan.unseen:
        yield f"{_INDENT}nothing: none of it is live"


def _health(one: UnitHealth) -> str:
    said = f"{one.reason}: {one.message}" if one.reason else ""
    return f"{visible(one.unit.name)}  {one.state.value}  {visible(said)}".rstrip()


def _bold(text: str, *, color: bool) -> str:
    return f"{_BOLD}{text}{_RESET}" if color else text
