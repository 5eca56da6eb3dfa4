"""The state of a page, which is its URL: read from a query, and written into links. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from reconciler.core.errors import ConfigError
from reconciler.fleet import reference_index
from reconciler.fleet.service_models import Selector
from reconciler.health.verdict import State

ROWS: Final = 50  # of a page
_LONGEST: Final = 400  # characters of a value, and of a name within a link
_NUMBERS: Final = ("page", "columns")


@dataclass(frozen=True, slots=True)
class Query:
    """Which part of a fleet is shown, and which page of it. `columns` is the page of Bindings."""

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
    """Which of how many are shown, and the links to those before and after; "" for none."""

    first: int
    last: int
    total: int
    before: str = ""
    after: str = ""

    @property
    def needed(self) -> bool:
        """Whether there is more than one page."""
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
