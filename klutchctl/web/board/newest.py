"""Indexes each new state in a thread, and sends changes to browsers."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from klutchctl.web.board.index import Index, changes, index_of
from reconciler.core.errors import origin
from reconciler.kube.turns import Party, Places
from reconciler.watch.fleet_state import FleetState
from reconciler.watch.loop import States
from reconciler.web.requests import RequestRefused

SESSIONS: Final = 200
_HEARTBEAT: Final = 15.0  # seconds; proxies end what is silent for long
KEPT_FOR: Final = 1.0  # seconds: many browsers ask at once after a round
_KEPT: Final = 64
_ASKED: Final = 64  # pages that may be made for one address
_log = logging.getLogger(__name__)


class Newest:
    """Follows states. `index` is always whole: while the next one is made, the last one serves."""

    def __init__(self, states: States) -> None:
        self._states = states
        self.index: Index = Index(states.version, FleetState(name=states.now.name))
        self._event = b""
        self._turned = asyncio.Event()
        self._open = True
        self._sessions: dict[object, Party] = {}  # the oldest first

    async def begin(self) -> None:
        await self._take(self.index.version)

    async def follow(self) -> None:
        """Index each state that comes; those in between are skipped. Ends when it is cancelled."""
        version = self.index.version
        while True:
            version, _ = await self._states.next(version)
            try:
                await self._take(version)
            except Exception as error:
                fields = {"error": type(error).__name__, "place": origin(error)}
                _log.error("the new state cannot be shown: the board stays as it is", extra=fields)

    def close(self) -> None:
        self._open = False
        self._turn()

    def has_room(self, party: Party) -> bool:
        """Return whether a party may have another session, if need be in place of one."""
        return len(self._sessions) < SESSIONS or self._surplus(party) is not None

    def _surplus(self, party: Party) -> object | None:
        """Return the oldest session of the one with most, if that leaves it as many as a party.

        Owners share all sessions, and the spaces of an owner those that it has.
        """
        owners = Counter(one.owner for one in self._sessions.values())
        spaces = Counter(self._sessions.values())

        def lead(key: object) -> tuple[int, int]:
            one = self._sessions[key]
            if one.owner == party.owner:
                return spaces[one] - spaces[party], 0
            return owners[one.owner] - owners[party.owner], spaces[one]

        oldest = max(self._sessions, key=lead)
        return oldest if lead(oldest)[0] > 1 else None

    async def session(self, party: Party) -> AsyncGenerator[bytes]:
        """Yield an event for the present state and for each later one, and heartbeats.

        A slow reader skips states.
        """
        if not self.has_room(party):
            return
        if len(self._sessions) >= SESSIONS:
            del self._sessions[self._surplus(party)]
            self._turn()
        key = object()
        self._sessions[key] = party
        try:
            seen: bytes | None = None
            while self._open and key in self._sessions:
                turned = self._turned
                if self._event is not seen:
                    seen = self._event
                    yield seen
                elif not await _within(turned.wait(), _HEARTBEAT):
                    yield b": still here\n\n"
        finally:
            self._sessions.pop(key, None)

    async def _take(self, version: int) -> None:
        state, before = self._states.now, self.index
        self.index, self._event = await asyncio.to_thread(_indexed, version, state, before)
        self._turn()

    def _turn(self) -> None:
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()


def _indexed(version: int, state: FleetState, before: Index) -> tuple[Index, bytes]:
    index = index_of(version, state, before)
    data = {
        "id": version,
        "counts": {one.value: number for one, number in index.counts.items()},
        "changed": [
            {"cluster": key.cluster, "unit": key.name, "state": now and now.health.state}
            for key, _, now in changes(before, index)
        ],
    }
    return index, f"id: {version}\nevent: round\ndata: {json.dumps(data)}\n\n".encode()


async def _within(waiting: Awaitable[object], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return False
    return True


class Made:
    """A rendering of the newest version, for so many seconds: many requests need it once.

    One is made at a time, in the turns of those who ask, and then none for as long as it took: so
    the work on the fleet has half of the process at least.
    """

    def __init__(self, clock: Callable[[], float], kept_for: float) -> None:
        self._clock, self._kept_for = clock, kept_for
        self._place, self._free_at = Places(1), 0.0
        self._asked: Counter[Party] = Counter()
        self._began, self._version = 0.0, -1
        self._tasks: dict[object, asyncio.Task[bytes]] = {}

    async def get(
        self, version: int, key: object, make: Callable[[], bytes], address: str = ""
    ) -> bytes:
        """Return the result of `make`, run beside the event loop; or its earlier result.

        `address` is of who asks. Raises RequestRefused for one that waits for too many.
        """
        now = self._clock()
        old = version != self._version or now - self._began > self._kept_for
        if old or len(self._tasks) >= _KEPT:
            self._tasks, self._began, self._version = {}, now, version
        task = self._tasks.get(key)
        if task is None:
            party = Party(address)
            if self._asked[party] >= _ASKED:
                raise RequestRefused(503, "so many pages are being made for you: reload it later")
            task = self._tasks[key] = asyncio.create_task(self._make(make, party))
        return await asyncio.shield(task)

    async def _make(self, make: Callable[[], bytes], party: Party) -> bytes:
        self._asked[party] += 1
        try:
            async with self._place.turn(party):
                await asyncio.sleep(self._free_at - self._clock())
                began = self._clock()
                try:
                    return await asyncio.to_thread(make)
                finally:
                    self._free_at = 2 * self._clock() - began
        finally:
            self._asked[party] -= 1
            if not self._asked[party]:
                del self._asked[party]
