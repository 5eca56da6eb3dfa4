"""Turns at one broker, so that no space takes all of them, and when none is given.

A gate belongs to one broker: one that hangs delays no other. Refuses to know what is called.
"""

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from reconciler.blueprints.offering import outcomes
from reconciler.outbound.kept import within

_IN_A_ROW: Final = 5
_PAUSE: Final = 30.0  # seconds between two looks at the catalogue of a broker that does not answer
_DENIED: Final = 300.0  # seconds for which denied credentials are not tried


class Gate:
    """Gives `at_once` turns, `per_space` of them to one space, in the order of spaces that wait.

    Closed after five calls in a row without a word that can be used, until the catalogue, or any
    other call, has one; and while our credentials are denied, for five minutes or until they
    change. Ask `closed` when the turn has come.
    """

    def __init__(self, *, now: Callable[[], float], at_once: int = 4, per_space: int = 2) -> None:
        self._now, self._at_once, self._per_space = now, at_once, per_space
        self._active: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._row: list[str] = []  # the spaces of the last calls that failed
        # Whose calls failed while the catalogue answered: it is these calls that do it.
        self._suspects: set[str] = set()
        self._problem = ""
        self._asked_at = -math.inf
        self._denied_at: float | None = None
        self._digest = ""
        self.doubted = False

    @asynccontextmanager
    async def turn(self, space: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it for as long as the block lasts."""
        await self._enter(space)
        try:
            yield
        finally:
            self._leave(space)

    @property
    def closed(self) -> str:
        """Why no call but that for the catalogue is made; "" where they are."""
        if self._denied_at is not None and within(_DENIED, self._denied_at, self._now()):
            return f"the broker does not accept our credentials: {self._problem}"
        if len(self._row) >= _IN_A_ROW:
            return f"the broker does not answer: {self._problem}"
        return ""

    @property
    def pause(self) -> float:
        """How many seconds the catalogue is not asked for either."""
        if self._denied_at is not None and within(_DENIED, self._denied_at, self._now()):
            return self._denied_at + _DENIED - self._now()
        return max(self._asked_at + _PAUSE - self._now(), 0.0) if self.closed else 0.0

    def use(self, digest: str) -> None:
        """Note which credentials are used from now on: others than those denied are tried."""
        if digest != self._digest:
            self._digest, self._denied_at, self.doubted = digest, None, False

    def record(
        self, outcome: outcomes.Outcome, *, space: str = "", catalogue: bool = False
    ) -> None:
        """Note what a call came to. A 403 counts where the `catalogue` gets it; else it raises
        `doubted`: the catalogue is to be asked.
        """
        if catalogue:
            self._asked_at, self.doubted = self._now(), False
        match outcome:
            case outcomes.Unsent() | outcomes.Unknown():
                if catalogue or space not in self._suspects:
                    self._fail(space, outcome.problem)
            case outcomes.Denied(status, problem):
                self._row.clear()
                if status == 401 or catalogue:
                    self._denied_at, self._problem = self._now(), problem
                else:
                    # A call that gets a 403 each time has not the catalogue read each time.
                    self.doubted = not within(_PAUSE, self._asked_at, self._now())
            case outcomes.Done() | outcomes.Accepted() | outcomes.Gone() | outcomes.Progress():
                self._open(space, catalogue=catalogue)
            case _:
                self._row.clear()

    def _fail(self, space: str, problem: str) -> None:
        self._row.append(space)
        self._problem = problem
        if len(self._row) == _IN_A_ROW:
            self._asked_at = self._now()

    def _open(self, space: str, *, catalogue: bool) -> None:
        if catalogue and len(self._row) >= _IN_A_ROW:
            self._suspects |= set(self._row)
        if not catalogue:
            self._suspects.discard(space)
        self._row.clear()
        self._denied_at = None

    async def _enter(self, space: str) -> None:
        if self._has_room(space):
            self._active[space] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(space, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(space, turn)
            else:
                self._leave(space)  # the turn came in the same moment
            raise

    def _leave(self, space: str) -> None:
        self._active[space] -= 1
        if not self._active[space]:
            del self._active[space]
        while (following := next(filter(self._has_room, self._waiting), None)) is not None:
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if not turn.done():  # it may be cancelled, and not know yet
                self._active[following] += 1
                turn.set_result(None)
            if turns:
                self._waiting[following] = turns  # behind the other spaces

    def _forget(self, space: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(space, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(space, None)

    def _has_room(self, space: str) -> bool:
        return self._active.total() < self._at_once and self._active[space] < self._per_space
