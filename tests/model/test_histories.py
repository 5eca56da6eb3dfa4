"""Identity is a uid (law 6): random histories of whole programs, in which each pair of events is.

CONTRIBUTING.md says how all of them are run.
"""

import functools
import itertools
import os
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.histories import World, two_app_clusters
from tests.support.history_events import EVENTS, Event, Events, ends_well
from tests.support.provenance import Record

LENGTH = 7  # pairs of events in a history
EACH = 25  # histories
# Of namespaced kinds, and with a cluster-scoped one: the first to notice what tests/mutants breaks.
USUAL: tuple[Sequence[int], ...] = (
    (3, 4, 17, 20, 116, 274, 302, 674, 7959),
    (5, 11, 12, 290, 5787, 9098),
)
SOAKED = [range(n * EACH, (n + 1) * EACH) for n in range(int(os.environ.get("SEEDS", "0")))]
BATCHES: Sequence[Sequence[int]] = SOAKED or USUAL
HAPPENED = Counter[tuple[str, str]]()


@functools.cache
def tour(number: int) -> Sequence[int]:
    """Return a random round trip by each ordered pair of events, which visits each once."""
    chance, every = random.Random(number), range(len(EVENTS))
    left = {one: chance.sample(every, len(EVENTS)) for one in every}
    way, done = [0], list[int]()
    while way:
        if left[way[-1]]:
            way.append(left[way[-1]].pop())
        else:
            done.append(way.pop())
    return done


def events_of(seed: int) -> list[Event]:
    """Return a part of an endless way; the next seed goes on with its last event."""
    pairs = len(EVENTS) ** 2
    steps = range(seed * LENGTH, (seed + 1) * LENGTH + 1)
    return [EVENTS[tour(step // pairs)[step % pairs]] for step in steps]


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"from {seeds[0]}")
async def test_nothing_passes_from_one_life_to_another(
    tmp_path_factory: pytest.TempPathFactory, seeds: Sequence[int]
) -> None:
    is_wide = BATCHES.index(seeds) % 2 == 1
    async with two_app_clusters(tmp_path_factory.mktemp("clusters"), wide=is_wide) as world:
        assert world.record.breaches == []
        record = world.record
        failed = [line for seed in seeds for line in await breaches(world, record, seed)]
    assert not failed, "\n".join(failed)


async def breaches(world: World, record: Record, seed: int) -> list[str]:
    """Let a history happen; return what breaks the law there, and the events."""
    await world.begin_again(record.copied())
    history, events = Events(world, random.Random(seed), world.scenes[0]), events_of(seed)
    try:
        happened = [await history.happens(event) for event in events]
        await ends_well(history)
    except AssertionError as error:
        world.record.breaches.append(str(error))
    else:
        for (one, did), (then, does) in itertools.pairwise(zip(events, happened, strict=True)):
            HAPPENED[one.__name__, then.__name__] += did and does
    for each in world.programs.values():
        await each.stop()
    found = world.record.breaches
    return [f"{seed}:", *found, *(f"  {line}" for line in history.log)] if found else []


@pytest.mark.soak
def test_each_pair_of_events_happened() -> None:
    """50 times at least in 10,000 histories."""
    words = [event.__name__ for event in EVENTS]
    for one in words:
        print(f"{one:25}", *(f"{HAPPENED[one, then]:4}" for then in words))
    least = min(HAPPENED[pair] for pair in itertools.product(words, words))
    assert least >= 50 or len(SOAKED) * EACH < 10_000
