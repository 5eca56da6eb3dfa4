"""What both sides make under one name stays as it is (S26), and what ends, ends (T3).

Nothing of that asks which other bindings of the space are synced, nor what other providers have.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from reconciler.api import API_SERVICE_EXPORT
from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.errors import AlreadyExists
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import CONFIG_MAP, CRD, NAMESPACE, SECRET
from tests.support.bound_scenes import ACCEPTED, Scene, remove, says, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import End, bound, claim, crossed, data, ends
from tests.support.konnector_scenes import sides
from tests.support.offers import offered
from tests.support.settled import settled

DOWN, UP = claim("secrets", "Provider"), claim("secrets", "Consumer")
HELD = {"finalizers": ["service.example/hold"]}
SEEDS = [pytest.param(seed, marks=() if seed < 2 else pytest.mark.soak) for seed in range(20)]
BURSTS, NAMES = 10, 20  # for each seed


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_burst_on_both_sides_overwrites_anything(scene: Scene, seed: int) -> None:
    """Half of them while the konnector is stopped, half of them while it runs."""
    random, both = Random(seed), ends(scene)
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, UP if seed % 4 == 3 else DOWN)
        for burst in range(BURSTS):
            names, making = [f"b{burst}-{number}" for number in range(NAMES)], burst % 2
            made = [] if making else await _burst(random, *both, names)
            async with konnector(scene.app.connection) as running:
                made += await _burst(random, *both, names) if making else []
                await settled(running)
            assert len(made) > NAMES
            await _are_as_they_were_made(made)


async def _burst(random: Random, there: End, here: End, names: list[str]) -> list[tuple[End, str]]:
    """Make names on both sides at about the same time; return which were free.

    Of the provider's some have a word of the owner from the first on, and some are dying.
    """
    made: list[tuple[End, str]] = []

    async def make(end: End, name: str, number: int) -> None:
        await asyncio.sleep(random.choice((0, 0, 0.001, 0.01)))
        marks = {"annotations": {keys.RESOURCE_OWNER: "Provider"}} if number == 1 else {}
        with contextlib.suppress(AlreadyExists):
            more = {"metadata": HELD if number == 2 else marks} if end is there else {}
            await end.make(SECRET, name, **data(end.writer), **more)
            made.append((end, name))
        if end is there and number == 2:
            await there.delete(SECRET, name)

    makings = [make(end, name, at % 4) for at, name in enumerate(names) for end in (there, here)]
    random.shuffle(makings)
    await asyncio.gather(*makings)
    return made


async def _are_as_they_were_made(made: list[tuple[End, str]]) -> None:
    times = Counter(name for _, name in made)
    for end, name in made:
        assert await end.holds(SECRET, name, end.writer), (end.writer, name)
        if times[name] == 2:
            assert keys.ORIGIN_UID not in annotations_of(await end.read(SECRET, name))


async def test_what_is_revoked_goes_beside_a_binding_that_cannot_be_served(
    scene: Scene, namespace: str
) -> None:
    """Somebody else has the CRD of the other one, for ever."""
    plane, app = scene.plane.cluster, scene.app.cluster
    async with (
        offered(plane, app, namespace=namespace) as more,
        scene.backend(),
        konnector(scene.app.connection),
    ):
        there, here = await bound(scene, DOWN)
        other = replace(scene, offer=more)
        body = await other.on_plane(CRD, more.name, "")
        await app.create(build(CRD, more.name, spec=body["spec"]), CRD, manager="somebody")
        await other.request()
        await other.bind(ACCEPTED)
        foreign = "ForeignCustomResourceDefinition"
        await until(lambda: says(other.binding(), "Connected", "False", foreign))
        await crossed(scene, "creds")
        await there.delete(SECRET, "creds")
        await until(lambda: here.lacks(SECRET, "creds"))
        await other.unbind()


@pytest.mark.parametrize("going", ["namespace", "export"])
async def test_credentials_stay_while_what_they_came_with_is_going(
    scene: Scene, going: str
) -> None:
    async with scene.backend(), konnector(scene.app.connection) as running:
        there, here = await bound(scene, DOWN)
        await crossed(scene, "creds")
        (mine, _), space = sides(scene), End(scene.plane, scene.space, "provider")
        await mine.delete()
        await until(mine.gone)
        if going == "namespace":
            await there.make(CONFIG_MAP, "held", metadata=HELD)
            await remove(scene.plane, NAMESPACE, "", there.namespace)
        else:
            await space.patch(API_SERVICE_EXPORT, scene.offer.name, metadata=HELD)
            await space.delete(API_SERVICE_EXPORT, scene.offer.name)
            await there.delete(SECRET, "creds")
        await until(lambda: there.lacks(SECRET, "creds"))
        await settled(running)
        assert await here.holds(SECRET, "creds", "one")
        if going == "namespace":
            await there.patch(CONFIG_MAP, "held", metadata={"finalizers": None})
            await until(lambda: here.lacks(SECRET, "creds"), within=180)
        else:
            await space.patch(API_SERVICE_EXPORT, scene.offer.name, metadata={"finalizers": None})
