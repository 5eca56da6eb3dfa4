"""What a board says, as rows without layout; the text and line formats lay them out.

Every string that leaves this module is on one line and fit for a terminal.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from klutchctl.render.visible import visible
from reconciler.health.board import Board, Bound, ClusterHealth
from reconciler.health.verdict import State, UnitHealth

SYMBOLS: Final[Mapping[State, str]] = {
    State.READY: " ",
    State.PROGRESSING: "~",
    State.DEGRADED: "!",
    State.UNKNOWN: "?",
    State.SUSPENDED: "|",
    State.RELEASED: "<",
}
LEAVING: Final = "(left the files)"
_LEFT: Final = "no document names it any more; see `klutchctl plan`"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the board. `state` None: a cluster in which nothing is bound."""

    cluster: str
    binding: str
    resource: str
    state: State | None
    age: str
    why: str


def rows(board: Board) -> Iterator[Row]:
    """Yield a row for every unit, and for every cluster that has none."""
    for cluster in board.clusters:
        yield from (_unit(cluster, one, board.time) for one in cluster.units)
        if not cluster.units:
            yield _whole(cluster, board.time)


def _unit(cluster: ClusterHealth, one: Bound, now: datetime) -> Row:
    health = one.health
    before = f"was {health.last_known}" if health.last_known else ""
    left = _LEFT if one.leaving else ""
    said = f"{health.reason}: {health.message}" if health.reason else ""
    return Row(
        cluster=visible(cluster.name),
        binding=LEAVING if one.leaving else visible(one.binding),
        resource=visible(health.unit.name),
        state=health.state,
        age=_age(health, now),
        why=visible("; ".join(part for part in (before, said, left) if part)),
    )


def _whole(cluster: ClusterHealth, now: datetime) -> Row:
    why = cluster.message or "nothing is bound here"
    since = age(cluster.since, now)
    return Row(visible(cluster.name), "", "", cluster.state, since, visible(why))


def _age(health: UnitHealth, now: datetime) -> str:
    """Return how long it has been so; `<3h` is: no longer than that."""
    return age(health.since, now) if health.exact else f"<{age(health.since, now)}"


def age(since: datetime | None, now: datetime) -> str:
    """Return how long ago that was in its largest unit, such as 45s, 12m, 3h, 5d; "" = unknown."""
    if since is None:
        return ""
    span = max(now - since, timedelta())
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if span >= timedelta(seconds=length):
            return f"{span // timedelta(seconds=length)}{unit}"
    return f"{span.seconds}s"


def heading(board: Board) -> str:
    """Return fleet and commit."""
    at = f" @ {visible(board.revision)}" if board.revision else ""
    return f"Fleet {visible(board.fleet)}{at}"


def counts(board: Board) -> dict[State, int]:
    """Return how many units are in each state; every state is there."""
    found = Counter(one.health.state for one in board.units)
    return {state: found[state] for state in State}


def summary(board: Board) -> str:
    """Return the counts in words, such as `8 Ready, 1 Degraded`."""
    found = counts(board)
    words = [f"{found[state]} {state}" for state in State if found[state]]
    if board.unread:
        noun = "cluster" if len(board.unread) == 1 else "clusters"
        words.append(f"{len(board.unread)} {noun} not read")
    return ", ".join(words) or "no units"


def unread(board: Board) -> tuple[tuple[str, str], ...]:
    """Return (cluster, why and what to do) of each cluster that could not be read."""
    return tuple(
        (visible(one.name), visible(". ".join(part for part in (one.reason, one.remedy) if part)))
        for one in board.unread
    )
