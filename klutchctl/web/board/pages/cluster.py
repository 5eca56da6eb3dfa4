"""The pages of an app cluster and of a unit: how they are, why, and what waits there. Pure."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, TypeAlias

from klutchctl.render import plan_rows, why
from klutchctl.render.why import Fact
from klutchctl.web.board.index import LEFT, Index, Line
from klutchctl.web.board.pages import parts
from klutchctl.web.board.pages.parts import Page, Query
from reconciler.core.decision import page_of
from reconciler.core.live import control_plane_ref_name
from reconciler.core.refs import GroupResource
from reconciler.fleet.values import Fleet, Unit, UnitKey
from reconciler.health.board import BoundUnit, ClusterHealth
from reconciler.health.verdict import State
from reconciler.planning.changes import Action
from reconciler.reports.why import Provenance
from reconciler.watch.fleet_state import Waiting

_LINES: Final = 10


def cluster(index: Index, name: str, query: Query, now: datetime) -> Page | None:
    """Return the page of a cluster; None where there is none of that name.

    `unread`: why it, or its control plane, was not read, and what to do.
    """
    row = index.rows.get(name)
    if row is None:
        return None
    health, state = row.health, index.state
    units = [one for one in health.units if _is_asked_for(one, query)]
    pager = parts.paged(query, parts.path_of("clusters", name), len(units))
    lines = index.lines.get(name, ())
    found = state.fleet.clusters.get(name) if state.fleet is not None else None
    way = (name, control_plane_ref_name(health.control_plane))
    unread = state.board.unread if state.board is not None else ()
    return Page(
        "cluster.html",
        parts.frame(index, "", now),
        name=name,
        control_plane=health.control_plane,
        labels=tuple(f"{key}={value}" for key, value in sorted(found.labels.items()))
        if found
        else (),
        origin=str(found.origin) if found else "",
        state=row.state,
        since=parts.moment(health.since, now),
        message=health.message,
        unread=tuple((one.reason, one.remedy) for one in unread if one.name in way),
        counts=tuple((one, row.counts[one]) for one in State if one in row.counts),
        units=tuple(
            parts.unit_row(one, now) for one in units[max(pager.first - 1, 0) : pager.last]
        ),
        pager=pager,
        lines=tuple(map(parts.line_row, lines[:_LINES])),
        waiting=len(lines),
        all_lines=Query(cluster=name).link("/plan"),
        held=tuple((one.guard, one.message) for one in state.waiting.held if name in one.clusters),
    )


def _is_asked_for(unit: BoundUnit, query: Query) -> bool:
    return query.binding in ("", unit.binding or LEFT) and query.state in ("", unit.health.state)


# What the documents say of a unit, Policies included; None where they are not at hand.
Explain: TypeAlias = Callable[[UnitKey], Provenance | None]


def unit(
    index: Index, cluster: str, name: str, now: datetime, *, explain: Explain, docs: str = ""
) -> Page | None:
    """Return the page of a unit; None where there is none of that name.

    `facts` are what, which, and where in the files; `nothing` is why there are no lines.
    """
    row = index.rows.get(cluster)
    found = None if row is None else _named(row.health.units, name)
    if row is None or found is None:
        return None
    health = found.health
    lines = [one for one in index.lines.get(cluster, ()) if one[0].unit in (health.unit, None)]
    return Page(
        "unit.html",
        parts.frame(index, "", now),
        cluster=cluster,
        cluster_href=parts.path_of("clusters", cluster),
        name=name,
        binding=found.binding or LEFT,
        state=health.state,
        note=parts.note(health),
        was=health.last_known or "",
        reason=health.reason,
        reason_page=page_of(health.reason, docs),
        message=health.message,
        since=parts.moment(health.since, now),
        exact=health.exact,
        leaving=found.leaving,
        facts=tuple(
            (what, which, plan_rows.place(origin))
            for what, which, origin in _facts(index.state.fleet, found, explain)
        ),
        nothing=_nothing(index.state.waiting, row.health),
        lines=tuple(map(parts.line_row, lines)),
        held=tuple(_held(index, cluster, lines)),
    )


def _named(units: tuple[BoundUnit, ...], name: str) -> BoundUnit | None:
    return next((one for one in units if one.health.unit.name == name), None)


def _nothing(waiting: Waiting, cluster: ClusterHealth) -> str:
    """Return what it means that no line of the plan is about a unit."""
    if not waiting.plan_id:
        return "No plan is at hand."
    way = {cluster.name, control_plane_ref_name(cluster.control_plane)}
    if any(one.name in way for one in waiting.unseen):
        return "The plan could not read its cluster."
    return "Nothing waits."


def _held(index: Index, cluster: str, lines: list[Line]) -> Iterator[tuple[str, str]]:
    """Yield the guards that hold these lines, or block the cluster."""
    guards = {guard for change, _ in lines for guard in change.held}
    blocked = any(change.action is Action.BLOCKED for change, _ in lines)
    for one in index.state.waiting.held:
        if one.guard in guards or (blocked and one.clusters == (cluster,)):
            yield one.guard, one.message


def _facts(fleet: Fleet | None, found: BoundUnit, explain: Explain) -> Iterator[Fact]:
    key = found.health.unit
    source = explain(key)
    if source is not None:
        yield from why.facts(source)
        return
    bound = fleet.units.get(key) if fleet is not None else None
    if fleet is None or bound is None:
        if found.binding:
            yield "Binding", found.binding, found.origin
        return
    cluster = fleet.clusters[key.cluster]
    yield "Binding", bound.binding, bound.origin
    yield "Cluster", cluster.name, cluster.origin
    yield "ControlPlane", cluster.control_plane, fleet.control_planes[cluster.control_plane].origin
    yield from _rest(bound)


def _rest(bound: Unit) -> Iterator[Fact]:
    if bound.template:
        yield "Template", bound.template, None
    for claim in bound.claims:
        accepted = "accepted" if claim.accepted else "rejected"
        yield (
            "claim",
            f"{GroupResource(claim.group, claim.resource).name}, {accepted}",
            claim.origin,
        )
    for other in bound.depends_on:
        yield "depends on", str(other), None
    yield "deletionPolicy", bound.deletion_policy, None
