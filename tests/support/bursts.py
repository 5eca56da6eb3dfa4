"""Names that both sides of a permission claim make at about the same time (S26)."""

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import Final

from reconciler.core import keys
from reconciler.core.errors import AlreadyExists
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import Scene
from tests.support.konnector import konnector
from tests.support.konnector_claims import End, data, ends
from tests.support.settled import settled

HELD: Final = {"finalizers": ["service.example/hold"]}
_NAMES: Final = 20
_SORTS, _DYING = 4, 2


async def bursts(scene: Scene, random: Random, count: int) -> None:
    """Make bursts, half of them while the konnector is stopped, half of them while it runs.

    Afterwards each object is as its side has made it, unless the other side had its name before;
    nothing of a dying origin is there.
    """
    both = ends(scene)
    for burst in range(count):
        names, while_running = [f"b{burst}-{number}" for number in range(_NAMES)], burst % 2
        made = [] if while_running else await _burst(random, *both, names)
        async with konnector(scene.app.connection) as running:
            made += await _burst(random, *both, names) if while_running else []
            await settled(running)
        assert len(made) > _NAMES
        await _are_as_they_were_made(made)
        for name in names[_DYING::_SORTS]:
            copy = await both[1].read(SECRET, name) or {"metadata": {}}
            assert keys.ORIGIN_UID not in annotations_of(copy), name


async def _burst(random: Random, there: End, here: End, names: list[str]) -> list[tuple[End, str]]:
    """Make names on both sides at about the same time; return which were free.

    Of the provider's some have a word of the owner from the first on, and some are dying.
    """
    made: list[tuple[End, str]] = []

    async def make(end: End, name: str, number: int) -> None:
        await asyncio.sleep(random.choice((0, 0, 0.001, 0.01)))
        marks = {"annotations": {keys.RESOURCE_OWNER: "Provider"}} if number == 1 else {}
        with contextlib.suppress(AlreadyExists):
            more = {"metadata": HELD if number == _DYING else marks} if end is there else {}
            await end.make(SECRET, name, **data(end.writer), **more)
            made.append((end, name))
        if end is there and number == _DYING:
            await there.delete(SECRET, name)

    makings = [
        make(end, name, at % _SORTS) for at, name in enumerate(names) for end in (there, here)
    ]
    random.shuffle(makings)
    await asyncio.gather(*makings)
    return made


async def _are_as_they_were_made(made: list[tuple[End, str]]) -> None:
    times = Counter(name for _, name in made)
    for end, name in made:
        assert await end.holds(SECRET, name, end.writer), (end.writer, name)
        if times[name] == 2:
            assert keys.ORIGIN_UID not in annotations_of(await end.read(SECRET, name))
