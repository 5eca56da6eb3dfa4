"""Fair turns in two levels: among owners, and among the spaces of one owner (trust.md, law 4).

Queues, the places at a server and the rate of calls use them. Does not know the waiting items.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube.cluster import Reader

T = TypeVar("T", bound=Hashable)
_Turn: TypeAlias = "asyncio.Future[None]"


class Party(NamedTuple):
    """The beneficiary of some work: an owner, perhaps of many spaces, and one of these spaces.

    Both are "" for work that benefits no single party. Of work on `wide` objects only one goes on
    at a time, of all parties: each call takes an API server's processors for seconds.
    """

    owner: str = ""
    space: str = ""
    wide: bool = False

    def may_join(self, at_work: Iterable["Party"]) -> bool:
        return not self.wide or not any(one.wide for one in at_work)


NOBODY: Final = Party()
_current: ContextVar[Party] = ContextVar("party", default=NOBODY)


def nobody(_: object) -> Party:
    return NOBODY


def current_party() -> Party:
    return _current.get()


def act_for(party: Party) -> None:
    """Set the party of this task, and of the tasks that it creates from now on."""
    _current.set(party)


class Turns(Generic[T]):
    """Waiting items, each once. The items of one space keep their order.

    With k owners waiting, each waits for at most k - 1 items of others; so do the spaces of an
    owner. A step costs the same for any number of items, but for parties that may not go.
    """

    def __init__(self) -> None:
        self._parties: dict[T, Party] = {}
        self._owners: OrderedDict[str, OrderedDict[Party, OrderedDict[T, None]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parties)

    def __contains__(self, item: T) -> bool:
        return item in self._parties

    def append(self, item: T, party: Party) -> None:
        """Add an item that does not wait yet."""
        self._parties[item] = party
        spaces = self._owners.setdefault(party.owner, OrderedDict())
        spaces.setdefault(party, OrderedDict())[item] = None

    def discard(self, item: T) -> None:
        party = self._parties.pop(item, None)
        if party is None:
            return
        spaces = self._owners[party.owner]
        del spaces[party][item]
        if not spaces[party]:
            del spaces[party]
        if not spaces:
            del self._owners[party.owner]

    def pop(self, may: Callable[[Party], bool] = lambda _: True) -> tuple[Party, T]:
        """Remove and return the next item, with its party; then all others have a turn first.

        Raises KeyError if no party that may go has an item.
        """
        for owner, spaces in self._owners.items():
            for party, items in spaces.items():
                if may(party):
                    item = next(iter(items))
                    spaces.move_to_end(party)
                    self._owners.move_to_end(owner)
                    self.discard(item)
                    return party, item
        raise KeyError

    def clear(self) -> None:
        self._parties.clear()
        self._owners.clear()


async def _turn_in(line: Turns[_Turn], party: Party, give_back: Callable[[], None]) -> None:
    """Wait for a turn; one that comes as the task is cancelled is given back."""
    turn: _Turn = asyncio.get_running_loop().create_future()
    line.append(turn, party)
    try:
        await turn
    except asyncio.CancelledError:
        line.discard(turn)
        if not turn.cancelled():
            give_back()
        raise


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
    async def turn(self, party: Party, *, longest: float | None = None) -> AsyncIterator[None]:
        """Wait for a place, and keep it while the block runs, or for the `longest` seconds."""
        if self._has_room(party):
            self._take(party)
        else:
            await _turn_in(self._waiting, party, lambda: self._leave(party))
        taken = [party]

        def leave() -> None:
            if taken:
                self._leave(taken.pop())

        if longest is not None:
            asyncio.get_running_loop().call_later(longest, leave)
        try:
            yield
        finally:
            leave()

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
            and party.may_join(self._of_parties)
        )


class TokenBucket:
    """Lets `qps` calls a second pass, after a burst, in the turns of their parties."""

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
        """Wait until this task may send a call."""
        if not self._waiting and self._pause() <= 0:
            self._spend()
            return
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._let_pass())
        await _turn_in(self._waiting, current_party(), lambda: self._spend(-1))

    def _pause(self) -> float:
        return max(self._spent, self._now() - self._credit) - self._now()

    def _spend(self, calls: int = 1) -> None:
        self._spent = max(self._spent, self._now() - self._credit) + calls * self._interval

    async def _let_pass(self) -> None:
        while self._waiting:
            if (pause := self._pause()) > 0:
                await self._sleep(pause)
                continue  # somebody else's turn may have come
            _, turn = self._waiting.pop()
            if not turn.done():
                self._spend()
                turn.set_result(None)


class SharedReads:
    """Joins equal reads of one moment into one call, sent after each of them was asked for."""

    def __init__(self, cluster: Reader) -> None:
        self._cluster = cluster
        self._next: dict[Ref, asyncio.Task[Manifest | None]] = {}
        self._sent: dict[Ref, asyncio.Task[Manifest | None]] = {}

    async def metadata(self, ref: Ref) -> Manifest | None:
        """Return the metadata of an object. Raises ClusterErrors."""
        if ref not in self._next:
            self._next[ref] = asyncio.create_task(self._read(ref, self._sent.get(ref)))
        return await asyncio.shield(self._next[ref])

    async def _read(
        self, ref: Ref, before: asyncio.Task[Manifest | None] | None
    ) -> Manifest | None:
        if before is not None:
            await asyncio.wait([before])
        self._sent[ref] = self._next.pop(ref)
        try:
            return await self._cluster.get(ref, metadata_only=True)
        finally:
            del self._sent[ref]
