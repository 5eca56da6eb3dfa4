"""Stories on models of clusters: whatever disturbs a program, they end as if nothing had.

A program dies at each of its writes, meets conflicts and refusals, or hears no answer. What a story
is about, and how its end shows, is up to the tests of each program.
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from reconciler.core.refs import Ref
from reconciler.kube.requests import Request
from tests.support.cues import AFTER, BEFORE, Cue, Moment
from tests.support.faults import Crash, Effect, Faults, conflict, lost, survives, throttled

_MANY_WRITES: Final = 80


@dataclass(frozen=True, slots=True)
class FirstTries:
    """An effect that befalls the first tries of each write, and no later one."""

    effect: Effect
    count: int
    _tries: Counter[tuple[str, Ref, str]] = field(default_factory=Counter)

    async def perform(self, call: Request, /) -> None:
        write = call.verb, call.ref, call.subresource
        self._tries[write] += 1
        if self._tries[write] <= self.count:
            await self.effect.perform(call)


# What befalls each write: the effect, for how many tries, and when.
DISTURBANCES: Final[dict[str, tuple[Effect, int, Moment]]] = {
    "conflicts": (conflict(), 2, BEFORE),
    "too many requests": (throttled(retry_after=0.2), 2, BEFORE),
    "silence": (lost(), 1, AFTER),
}


def disturbed(writes: Cue[Request], disturbance: str) -> Faults:
    effect, count, moment = DISTURBANCES[disturbance]
    faults = Faults()
    faults.add(writes, FirstTries(effect, count), at=moment)
    return faults


async def dies_after_every_write(
    live: Callable[[Faults], Awaitable[object]], writes: Cue[Request], *, each: int = 1
) -> int:
    """Let processes live one after the other until one comes to the end; return how many died.

    Each dies after so many writes, so that a new process meets every state between two writes.
    """
    for deaths in range(_MANY_WRITES):
        faults = Faults()
        faults.add(writes.nth(each), Crash(), at=AFTER)
        if await survives(live(faults)):
            return deaths
    raise AssertionError(f"it has not come to its end after {_MANY_WRITES} deaths")


async def dies_once_at_every_write(
    retell: Callable[[Faults, str], Awaitable[bool]], writes: Cue[Request]
) -> None:
    """Tell a story anew for every write, with one death before it, then with one after it.

    `retell` gets the faults and a title of the death, and returns whether anybody died.
    """
    for moment in (BEFORE, AFTER):
        for number in itertools.count(1):
            faults = Faults()
            faults.add(writes.nth(number), Crash(), at=moment)
            if not await retell(faults, f"a death {moment.value} write {number}"):
                break
