"""Who goes next: owners have turns, and inside an owner its spaces (trust.md, law 4).

Queues, places at a server and the rate of calls are all given so. Refuses to know what waits, and
for what.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)
_Turn: TypeAlias = "asyncio.Future[None]"


class Party(NamedTuple):
    """For whom work is done: an owner, who may have many spaces, and one of these.

    Both are "" for what is done for nobody alone.
    """

    owner: str = ""
    space: str = ""


NOBODY: Final = Party()
_current: ContextVar[Party] = ContextVar("party", default=NOBODY)


def nobody(key: object) -> Party:
    """Return the party of a key where keys are not told apart."""
    del key
    return NOBODY


def anybody(party: Party) -> bool:
    """Return True: every party may go."""
    del party
    return True


def current_party() -> Party:
    """Return for whom this task works."""
    return _current.get()


def act_for(party: Party) -> None:
    """Have this task, and those that it makes from now on, work for a party."""
    _current.set(party)


class Turns(Generic[T]):
    """What waits, each once. A space's own go in their order.

    Where k owners wait, none waits for more than k - 1 of the others, and likewise for the spaces
    of an owner. A step costs the same however many wait, but for parties that may not go.
    """

    def __init__(self) -> None:
        self._parties: dict[T, Party] = {}
        self._owners: OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parties)

    def __contains__(self, item: T) -> bool:
        return item in self._parties

    def append(self, item: T, party: Party) -> None:
        """Let something wait that does not yet."""
        self._parties[item] = party
        spaces = self._owners.setdefault(party.owner, OrderedDict())
        spaces.setdefault(party.space, OrderedDict())[item] = None

    def discard(self, item: T) -> None:
        """Let something wait no more, if it does."""
        party = self._parties.pop(item, None)
        if party is None:
            return
        spaces = self._owners[party.owner]
        del spaces[party.space][item]
        if not spaces[party.space]:
            del spaces[party.space]
        if not spaces:
            del self._owners[party.owner]

    def pop(self, may: Callable[[Party], bool] = anybody) -> tuple[Party, T]:
        """Return what goes next, and its party; then it is the turn of all others.

        Raises KeyError where nothing waits of a party that may go.
        """
        for owner, spaces in self._owners.items():
            for space, items in spaces.items():
                if may(party := Party(owner, space)):
                    item = next(iter(items))
                    spaces.move_to_end(space)
                    self._owners.move_to_end(owner)
                    self.discard(item)
                    return party, item
        raise KeyError

    def clear(self) -> None:
        """Let nothing wait."""
        self._parties.clear()
        self._owners.clear()


class Places:
    """Gives `at_once` places, `per_owner` of them to one owner and `per_space` to one space."""

    def __init__(
        self, at_once: int, *, per_owner: int | None = None, per_space: int | None = None
    ) -> None:
        self._at_once = at_once
        self._per_owner, self._per_space = per_owner or at_once, per_space or at_once
        self._of_owners: Counter[str] = Counter()
        self._of_parties: Counter[Party] = Counter()
        self._waiting: Turns[_Turn] = Turns()

    @asynccontextmanager
    async def turn(self, party: Party) -> AsyncIterator[None]:
        """Wait for a place, and have it for as long as the block lasts."""
        if self._has_room(party):
            self._take(party)
        else:
            await self._wait(party)
        try:
            yield
        finally:
            self._leave(party)

    async def _wait(self, party: Party) -> None:
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn, party)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(turn)
            if not turn.cancelled():
                self._leave(party)  # the turn came in the same moment
            raise

    def _take(self, party: Party) -> None:
        self._of_owners[party.owner] += 1
        self._of_parties[party] += 1

    def _leave(self, party: Party) -> None:
        self._of_owners[party.owner] -= 1
        self._of_parties[party] -= 1
        if not self._of_parties[party]:
            del self._of_parties[party]
        if not self._of_owners[party.owner]:
            del self._of_owners[party.owner]
        with suppress(KeyError):
            while True:
                following, turn = self._waiting.pop(self._has_room)
                if not turn.done():  # it may be cancelled, and not know yet
                    self._take(following)
                    turn.set_result(None)

    def _has_room(self, party: Party) -> bool:
        return (
            self._of_owners.total() < self._at_once
            and self._of_owners[party.owner] < self._per_owner
            and self._of_parties[party] < self._per_space
        )


class TokenBucket:
    """Lets `qps` calls a second pass, after a burst, in the turns of those for whom they are."""

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1.0 / qps
        self._credit = (burst - 1) * self._interval
        self._now, self._sleep = now, sleep
        self._spent = float("-inf")  # until when calls have passed
        self._waiting: Turns[_Turn] = Turns()
        self._passing: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Return when the next call of this task's party may be sent."""
        if not self._waiting and self._pause() <= 0:
            self._spend()
            return
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn, current_party())
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._let_pass())
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(turn)
            if not turn.cancelled():
                self._spent -= self._interval  # nothing will be sent in its place
            raise

    def _pause(self) -> float:
        return max(self._spent, self._now() - self._credit) - self._now()

    def _spend(self) -> None:
        self._spent = max(self._spent, self._now() - self._credit) + self._interval

    async def _let_pass(self) -> None:
        while self._waiting:
            if (pause := self._pause()) > 0:
                await self._sleep(pause)
                continue  # somebody else's turn may have come
            _, turn = self._waiting.pop()
            if not turn.done():
                self._spend()
                turn.set_result(None)
