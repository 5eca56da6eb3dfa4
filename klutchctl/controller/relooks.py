"""Looks again at clusters whose units are not well, so that what is shown follows what happens.

Rounds look at everything seldom. What is on its way, or broken, is looked at soon, and less often
the longer it stays as it is. Writes nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.core.errors import KlutchError
from reconciler.fleet.values import Fleet
from reconciler.health.board import Board, ClusterHealth
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import FleetState, board_seen
from reconciler.watch.states import States

log = logging.getLogger(__name__)

_FIRST: Final = 1.0  # seconds
_MOMENT: Final = 0.5  # what is due so soon is looked at along
_UNWELL: Final = frozenset({State.PROGRESSING, State.DEGRADED, State.UNKNOWN})
_Seen: TypeAlias = tuple[object, ...]

# Reads some app clusters of a fleet, and returns how their units are.
Look: TypeAlias = Callable[[Fleet, Collection[str]], Awaitable[Board]]


@dataclass(frozen=True, slots=True)
class Pace:
    """When a cluster is looked at again, after so many looks that found it just so."""

    at: float
    tries: int
    seen: _Seen


Paces: TypeAlias = Mapping[str, Pace]


def paces(
    before: Paces, board: Board, looked: Collection[str], *, now: float, longest: float
) -> Paces:
    """Return when to look at each cluster that is not well; `looked` were looked at just now."""
    found: dict[str, Pace] = {}
    for cluster in board.clusters:
        if not _is_unwell(cluster):
            continue
        known, seen = before.get(cluster.name), _seen(cluster)
        if known is None or known.seen != seen:
            found[cluster.name] = Pace(now + _FIRST, 0, seen)
        elif cluster.name in looked:
            tries = known.tries + 1
            found[cluster.name] = Pace(
                now + min(longest, _FIRST * 2.0 ** min(tries, 32)), tries, seen
            )
        else:
            found[cluster.name] = known
    return found


def due(known: Paces, now: float) -> frozenset[str]:
    """Return the clusters to look at now; none where none is."""
    if all(one.at > now for one in known.values()):
        return frozenset()
    return frozenset(name for name, one in known.items() if one.at <= now + _MOMENT)


class Relooks:
    """Looks at clusters again while it runs. `longest` is in seconds.

    What could not be read may cost a timeout, so the others do not wait for it.
    """

    def __init__(self, look: Look, *, longest: float) -> None:
        self._look, self._longest = look, longest

    async def run(self, states: States) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(states, unread=False))
            group.create_task(self._follow(states, unread=True))

    async def _follow(self, states: States, *, unread: bool) -> None:
        known: Paces = {}
        looked: Collection[str] = ()
        clock = asyncio.get_running_loop().time
        while True:
            version, state = states.version, states.now
            board = _part(state, unread=unread)
            if board is not None:
                known = paces(known, board, looked, now=clock(), longest=self._longest)
            looked = due(known, clock()) if state.running is None else ()
            if looked:
                await self._again(states, looked)
            else:
                next_at = min((one.at for one in known.values()), default=None)
                left = None if next_at is None or state.running else next_at - clock()
                await _wait(states, version, left)

    async def _again(self, states: States, names: Collection[str]) -> None:
        before = states.now
        assert before.fleet is not None
        try:
            board = await self._look(before.fleet, names)
        except KlutchError as error:
            log.info("clusters could not be looked at again", extra={"why": str(error)})
            return
        now = states.now
        # A round knows better, and it may have written since these were read.
        if now.running is None and now.fleet is before.fleet and now.history is before.history:
            states.put(board_seen(now, board, frozenset(names)))


async def _wait(states: States, version: int, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await states.next(version)
    except TimeoutError:
        return


def _part(state: FleetState, *, unread: bool) -> Board | None:
    """Return what is shown of the clusters of the files that were read, or were not."""
    board, fleet = state.board, state.fleet
    if board is None or fleet is None:
        return None
    kept = (
        one
        for one in board.clusters
        if one.name in fleet.clusters
        and fleet.clusters[one.name].suspended is None
        and (one.state is State.UNKNOWN) is unread
    )
    return Board(board.fleet, board.revision, board.time, tuple(kept))


def _is_unwell(cluster: ClusterHealth) -> bool:
    return cluster.state in _UNWELL or any(one.health.state in _UNWELL for one in cluster.units)


def _seen(cluster: ClusterHealth) -> _Seen:
    units = tuple((one.health.unit, one.health.state, one.health.reason) for one in cluster.units)
    return cluster.state, units
