"""The common parts of pages: the frame, times, units, plans; and their state, a URL. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from klutchctl.render import plan_rows
from klutchctl.render.status import age
from klutchctl.web.board.index import LEFT, Index, Line
from reconciler.core.errors import ConfigError
from reconciler.core.times import format_time
from reconciler.fleet import reference_index
from reconciler.fleet.service_models import Selector
from reconciler.health.board import BoundUnit
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import Action
from reconciler.watch.fleet_state import FleetState, SourceProblem, SourceView

ROWS: Final = 50  # of a page
_LONGEST: Final = 400  # characters of a value, and of a name within a link
_NUMBERS: Final = ("page", "columns")
_FRESH: Final = timedelta(minutes=1)  # a controller looks at each cluster four times as often


@dataclass(frozen=True, slots=True)
class Query:
    """The shown part of a fleet, and its page. `columns` is the page of Bindings."""

    state: str = ""
    binding: str = ""
    label: str = ""
    q: str = ""
    group: str = ""
    cluster: str = ""
    page: int = 1
    columns: int = 1

    @property
    def narrowed(self) -> bool:
        """Whether less than everything is asked for."""
        return bool(self.state or self.binding or self.label or self.q or self.cluster)

    def selector(self) -> Selector | None:
        """Return what `label` means; None for every cluster. Raises ConfigError."""
        return reference_index.parse_label_query(self.label) if self.label else None

    def link(self, path: str, **changes: Any) -> str:
        """Return a path with this query, changed; pages begin anew unless they are given."""
        numbers = {name: 1 for name in _NUMBERS if name not in changes}
        other = replace(self, **(numbers | changes))
        given = {
            one.name: value
            for one in fields(other)
            if (value := getattr(other, one.name)) != one.default
        }
        return f"{path}?{urlencode(given)}" if given else path


def parse(given: Mapping[str, str]) -> Query:
    """Return what a query asks for; names that are unknown count for nothing.

    Raises ConfigError with a sentence.
    """
    values: dict[str, Any] = {}
    for one in fields(Query):
        text = given.get(one.name, "").strip()
        if len(text) > _LONGEST:
            raise ConfigError(f"{one.name} is too long")
        if text:
            values[one.name] = _number(one.name, text) if one.name in _NUMBERS else text
    query = Query(**values)
    if query.state and query.state not in set(State):
        raise ConfigError(f"there is no such state; there are {', '.join(State)}")
    query.selector()
    return query


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text)):
        raise ConfigError(f"{name} is no number from 1 on")
    return int(text)


def path_of(*names: str) -> str:
    """Return the path of a page about things of these names; "" where a name is in no URL."""
    if any(len(name) > _LONGEST or "/" in name or name in ("", ".", "..") for name in names[1:]):
        return ""
    return "/" + "/".join(quote(name, safe="") for name in names)


@dataclass(frozen=True, slots=True)
class Pager:
    """The shown rows and their count, and the links to the rows before and after; "" for none."""

    first: int
    last: int
    total: int
    before: str = ""
    after: str = ""

    @property
    def needed(self) -> bool:
        return self.last - self.first + 1 < self.total


def paged(query: Query, path: str, total: int, *, by: str = "page", size: int = ROWS) -> Pager:
    """Return where a page is among the others. One beyond the last is the last."""
    most = max(1, -(-total // size))
    page = min(getattr(query, by), most)
    kept = {name: getattr(query, name) for name in _NUMBERS}
    return Pager(
        min((page - 1) * size + 1, total),
        min(page * size, total),
        total,
        query.link(path, **(kept | {by: page - 1})) if page > 1 else "",
        query.link(path, **(kept | {by: page + 1})) if page < most else "",
    )


Place: TypeAlias = Literal["", "overview", "plan", "history"]


@dataclass(frozen=True, slots=True)
class Moment:
    """The age of something, such as `3h`, and its time; "" where that is unknown."""

    ago: str = ""
    time: str = ""


def moment(time: datetime | None, now: datetime, *, exact: bool = True) -> Moment:
    """Return a time as people read it; where not `exact`, it was then or later."""
    if time is None:
        return Moment()
    return Moment(f"{'' if exact else '<'}{age(time, now)}", format_time(time))


@dataclass(frozen=True, slots=True)
class Banner:
    """An unusual state of the whole fleet."""

    title: str
    text: str
    since: Moment = Moment()
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a page. `version` is that of the state; `waiting` counts lines."""

    version: int
    waiting: int
    fleet: str
    revision: str
    source: str
    shard: str
    here: Place
    looked: Moment
    stale: bool
    running: str
    banners: tuple[Banner, ...]


class Page(SimpleNamespace):
    """The values of a template, by the template's names."""

    def __init__(self, template: str, frame: Frame, **content: object) -> None:
        super().__init__(template=template, frame=frame, **content)


def frame(index: Index, here: Place, now: datetime) -> Frame:
    state = index.state
    looked = None if state.board is None else state.board.time
    return Frame(
        version=index.version,
        waiting=len(state.waiting.lines),
        fleet=state.name,
        revision=plan_rows.short_commit(
            state.source.revision or (state.board.revision if state.board else "")
        ),
        source=" ".join(part for part in (state.source.url, state.source.ref) if part),
        shard=", ".join(state.shard),
        here=here,
        looked=moment(looked, now),
        stale=looked is None or now - looked > _FRESH,
        running=state.running.trigger if state.running else "",
        banners=tuple(_banners(state, now)),
    )


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
    change, outcome = line
    row = plan_rows.row(change, steps=True)
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


def refusal(index: Index, status: int, sentence: str, now: datetime) -> Page:
    return Page("refusal.html", frame(index, "", now), status=status, sentence=sentence)
