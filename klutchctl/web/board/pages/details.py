"""The pages below the first: a cluster, a unit, what waits, and the rounds that were made. Pure."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, TypeAlias

from klutchctl.render import plan_rows, why
from klutchctl.render.why import Fact
from klutchctl.web.board.index import Index, Line, column_of
from klutchctl.web.board.pages import parts
from klutchctl.web.board.pages.parts import Page, Query
from reconciler.core.decision import page_of
from reconciler.fleet.values import UnitKey
from reconciler.health.board import BoundUnit, ClusterHealth
from reconciler.planning.changes import Action, Held
from reconciler.reports.why import Provenance
from reconciler.watch.fleet_state import Waiting

_LINES: Final = 10


def plan(index: Index, query: Query, now: datetime) -> Page:
    """Return the page of waiting lines."""
    waiting = index.state.waiting
    lines = index.lines.get(query.cluster, ()) if query.cluster else waiting.lines
    pager = parts.paged(query, "/plan", len(lines))
    return Page("plan.html", index, now, "plan", query=query, lines=lines[pager.shown], pager=pager)


def history(index: Index, now: datetime) -> Page:
    return Page("history.html", index, now, "history")


def refusal(index: Index, status: int, sentence: str, now: datetime) -> Page:
    return Page("refusal.html", index, now, status=status, sentence=sentence)


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
    document = state.fleet.clusters.get(name) if state.fleet is not None else None
    labels = document.labels if document is not None else {}
    unread = state.board.unread if state.board is not None else ()
    return Page(
        "cluster.html",
        index,
        now,
        row=row,
        document=document,
        labels=[f"{key}={value}" for key, value in sorted(labels.items())],
        unread=[one for one in unread if one.name in health.way],
        units=units[pager.shown],
        pager=pager,
        lines=lines[:_LINES],
        waiting=len(lines),
        all_lines=Query(cluster=name).link("/plan"),
        held=[one for one in state.waiting.held if name in one.clusters],
    )


def _is_asked_for(unit: BoundUnit, query: Query) -> bool:
    return query.binding in ("", column_of(unit)) and query.state in ("", unit.health.state)


# What the documents say of a unit, Policies included; None where they are not at hand.
Explain: TypeAlias = Callable[[UnitKey], Provenance | None]


def unit(
    index: Index, cluster: str, name: str, now: datetime, *, explain: Explain, docs: str = ""
) -> Page | None:
    """Return the page of a unit; None where there is none of that name.

    `facts` are what, which, and where in the files; `nothing` is why there are no lines.
    """
    row = index.rows.get(cluster)
    units = () if row is None else row.health.units
    found = next((one for one in units if one.health.unit.name == name), None)
    if row is None or found is None:
        return None
    health = found.health
    lines = [one for one in index.lines.get(cluster, ()) if one[0].unit in (health.unit, None)]
    return Page(
        "unit.html",
        index,
        now,
        found=found,
        health=health,
        reason_page=page_of(health.reason, docs),
        facts=[
            (what, which, plan_rows.place(origin))
            for what, which, origin in _facts(found, explain(health.unit))
        ],
        nothing=_nothing(index.state.waiting, row.health),
        lines=lines,
        held=list(_held(index.state.waiting, cluster, lines)),
    )


def _nothing(waiting: Waiting, cluster: ClusterHealth) -> str:
    """Return what it means that no line of the plan is about a unit."""
    if not waiting.plan_id:
        return "No plan is at hand."
    if any(one.name in cluster.way for one in waiting.unseen):
        return "The plan could not read its cluster."
    return "Nothing waits."


def _held(waiting: Waiting, cluster: str, lines: list[Line]) -> Iterator[Held]:
    """Yield the guards that hold these lines, or block the cluster."""
    guards = {guard for change, _ in lines for guard in change.held}
    blocked = any(change.action is Action.BLOCKED for change, _ in lines)
    for one in waiting.held:
        if one.guard in guards or (blocked and one.clusters == (cluster,)):
            yield one


def _facts(found: BoundUnit, source: Provenance | None) -> Iterable[Fact]:
    if source is not None:
        return why.facts(source)
    return [("Binding", found.binding, found.origin)] if found.binding else ()
