"""What several pages show: the frame, times, units, lines of a plan. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from klutchctl.render import plan_rows
from klutchctl.render.status import age
from klutchctl.web.board.index import LEFT, Index, Line
from klutchctl.web.board.pages.query import path_of
from reconciler.core.times import format_time
from reconciler.health.board import BoundUnit
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import Action
from reconciler.watch.fleet_state import FleetState, SourceProblem, SourceView

Place: TypeAlias = Literal["", "overview", "plan", "history"]


@dataclass(frozen=True, slots=True)
class Moment:
    """How long ago something was, such as `3h`, and when; "" where that is unknown."""

    ago: str = ""
    time: str = ""


def moment(time: datetime | None, now: datetime, *, exact: bool = True) -> Moment:
    """Return a time as people read it; where not `exact`, it was then or later."""
    if time is None:
        return Moment()
    return Moment(f"{'' if exact else '<'}{age(time, now)}", format_time(time))


@dataclass(frozen=True, slots=True)
class Banner:
    """What holds for the whole fleet, and is not as usual."""

    title: str
    text: str
    since: Moment = Moment()
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a page. `version` is that of the state; `waiting` counts lines."""

    version: int
    waiting: int
    fleet: str
    revision: str
    source: str
    shard: str
    here: Place
    looked: Moment
    running: str
    banners: tuple[Banner, ...]


def frame(index: Index, here: Place, now: datetime) -> Frame:
    """Return the frame of a page."""
    state = index.state
    return Frame(
        version=index.version,
        waiting=len(state.waiting.lines),
        fleet=state.name,
        revision=plan_rows.short_commit(state.source.revision or _revision(state)),
        source=" ".join(part for part in (state.source.url, state.source.ref) if part),
        shard=", ".join(state.shard),
        here=here,
        looked=moment(state.looked_at or state.board.time, now) if state.board else Moment(),
        running=state.running.trigger if state.running else "",
        banners=tuple(_banners(state, now)),
    )


def _revision(state: FleetState) -> str:
    return state.board.revision if state.board else ""


def _banners(state: FleetState, now: datetime) -> Iterator[Banner]:
    if state.source.problem is not SourceProblem.NONE:
        yield _problem(state.source, now)
    if state.suspended:
        yield Banner("Suspended: nothing is written", state.suspended)
    for plane in state.board.planes if state.board else ():
        title = f"Control plane {plane.name}: {plane.state}"
        grave = plane.state is State.DEGRADED
        yield Banner(
            title, f"{plane.reason}: {plane.message}", moment(plane.since, now), grave=grave
        )
    for storm in state.storms[:3]:
        yield Banner(
            f"{storm.object} in {storm.cluster} rests until {format_time(storm.until)}",
            f"{storm.manager or 'another manager'} changed it back {storm.repairs} times",
        )
    if len(state.storms) > 3:
        yield Banner(
            f"{len(state.storms) - 3} more objects rest", "other managers change them back"
        )


def _problem(source: SourceView, now: datetime) -> Banner:
    titles = {
        SourceProblem.UNREADABLE: "The source cannot be read: nothing is written",
        SourceProblem.INVALID: "The files are not valid: nothing is written",
        SourceProblem.UNVERIFIED: "The source is not verified: nothing is written",
    }
    refused = f" ({plan_rows.short_commit(source.refused)})" if source.refused else ""
    return Banner(
        titles[source.problem] + refused, source.why, moment(source.since, now), grave=True
    )


@dataclass(frozen=True, slots=True)
class UnitRow:
    """A unit in a table. `was` is the state before it became Unknown, or ""."""

    binding: str
    name: str
    href: str
    state: State
    note: str
    since: Moment
    why: str
    was: str


def note(health: UnitHealth) -> str:
    """Return what stands beside the state of a unit."""
    return f"({health.note})" if health.note else ""


def unit_row(unit: BoundUnit, now: datetime) -> UnitRow:
    """Return the row of a unit."""
    health = unit.health
    key = health.unit
    return UnitRow(
        unit.binding or LEFT,
        key.name,
        path_of("units", key.cluster, key.name),
        health.state,
        note(health),
        moment(health.since, now, exact=health.exact),
        f"{health.reason}: {health.message}" if health.reason else "",
        health.last_known or "",
    )


@dataclass(frozen=True, slots=True)
class LineRow:
    """A waiting line of a plan, and what became of it in the last round."""

    cluster: str
    cluster_href: str
    action: Action
    subject: str
    what: str
    origin: str
    details: tuple[str, ...]
    outcome: str
    message: str
    unit_href: str


def line_row(line: Line) -> LineRow:
    """Return the row of a line."""
    change, outcome = line
    row = plan_rows.row(change)
    unit = change.unit
    return LineRow(
        change.cluster,
        path_of("clusters", change.cluster),
        change.action,
        row.subject,
        row.what,
        row.origin,
        row.details,
        outcome.status if outcome else "",
        outcome.message if outcome else "",
        path_of("units", unit.cluster, unit.name) if unit else "",
    )


@dataclass(frozen=True, slots=True)
class RefusalPage:
    """Why there is no page."""

    frame: Frame
    status: int
    sentence: str


def refusal(index: Index, status: int, sentence: str, now: datetime) -> RefusalPage:
    """Return the page."""
    return RefusalPage(frame(index, "", now), status, sentence)
