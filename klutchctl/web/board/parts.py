"""Builds common parts of pages: frame, links, and the view as a URL. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from klutchctl.render import plan_rows
from klutchctl.web.board.index import Index
from reconciler.core.errors import ConfigError
from reconciler.core.times import format_time
from reconciler.fleet import reference_index
from reconciler.fleet.service_models import Selector
from reconciler.fleet.values import UnitKey
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import FleetState, SourceProblem

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
        """Parse `label`; None for every cluster. Raises ConfigError."""
        return reference_index.parse_label_query(self.label) if self.label else None

    def link(self, path: str, **changes: Any) -> str:
        """Return a path with this query, changed; pages begin again unless they are given."""
        other = replace(self, **{name: 1 for name in _NUMBERS if name not in changes} | changes)
        given = {
            one.name: value
            for one in fields(other)
            if (value := getattr(other, one.name)) != one.default
        }
        return f"{path}?{urlencode(given)}" if given else path


def parse(given: Mapping[str, str]) -> Query:
    """Parse a query; unknown names count for nothing.

    Raises ConfigError with a sentence.
    """
    values: dict[str, Any] = {}
    for one in fields(Query):
        text = given.get(one.name, "").strip()
        if len(text) > _LONGEST:
            raise ConfigError("is too long", where=one.name)
        if text:
            values[one.name] = _number(one.name, text) if one.name in _NUMBERS else text
    query = Query(**values)
    if query.state and query.state not in set(State):
        raise ConfigError(f"there is no such state; there are {', '.join(State)}", where="state")
    query.selector()
    return query


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text)):
        raise ConfigError("is no number from 1 on", where=name)
    return int(text)


def path_of(*names: str) -> str:
    """Return the path of a page about things of these names; "" where a name is in no URL."""
    if any(len(name) > _LONGEST or "/" in name or name in ("", ".", "..") for name in names[1:]):
        return ""
    return "/" + "/".join(quote(name, safe="") for name in names)


def unit_path(unit: UnitKey | None) -> str:
    return path_of("units", unit.cluster, unit.name) if unit else ""


@dataclass(frozen=True, slots=True)
class Pager:
    """The shown rows and their count, and the links to the rows before and after; "" for none."""

    first: int
    last: int
    total: int
    before: str = ""
    after: str = ""

    @property
    def shown(self) -> slice:
        return slice(max(self.first - 1, 0), self.last)

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


class Page(SimpleNamespace):
    """The values of a template, by the template's names: of a state, and those of the frame.

    `here` is the place of the page in the menu, or "".
    """

    def __init__(
        self, template: str, index: Index, now: datetime, here: str = "", **content: object
    ) -> None:
        state, source = index.state, index.state.source
        board = state.board
        super().__init__(
            template=template,
            index=index,
            state=state,
            now=now,
            here=here,
            fleet=state.name,
            revision=source.revision or (board.revision if board else ""),
            source=" ".join(filter(None, (source.url, source.ref))),
            shard=", ".join(state.shard),
            looked=board.time if board else None,
            stale=board is None or now - board.time > _FRESH,
            banners=tuple(_banners(state)),
            **content,
        )


# An unusual state of the whole fleet: its title, a text, since when, and whether it is grave.
Banner: TypeAlias = tuple[str, str, datetime | None, bool]
_PROBLEMS: Final = {
    SourceProblem.UNREADABLE: "The source cannot be read: nothing is written",
    SourceProblem.INVALID: "The files are not valid: nothing is written",
    SourceProblem.UNVERIFIED: "The source is not verified: nothing is written",
}


def _banners(state: FleetState) -> Iterator[Banner]:
    source, storms = state.source, state.storms
    if source.problem is not SourceProblem.NONE:
        refused = f" ({plan_rows.short_commit(source.refused)})" if source.refused else ""
        yield _PROBLEMS[source.problem] + refused, source.why, source.since, True
    if state.suspended:
        yield "Suspended: nothing is written", state.suspended, None, False
    for plane in state.board.planes if state.board else ():
        title, grave = f"Control plane {plane.name}: {plane.state}", plane.state is State.DEGRADED
        yield title, f"{plane.reason}: {plane.message}", plane.since, grave
    for storm in storms[:3]:
        title = f"{storm.object} in {storm.cluster} rests until {format_time(storm.until)}"
        by = storm.manager or "another manager"
        yield title, f"{by} changed it back {storm.repairs} times", None, False
    if more := len(storms[3:]):
        yield f"{more} more objects rest", "other managers change them back", None, False
