"""What both sides make under one name stays as it is (S26), and what ends, ends (T3).

Nothing of that asks which other bindings of the space are synced, nor what other providers have.
"""

from dataclasses import replace
from random import Random

import pytest

from reconciler.api import API_SERVICE_EXPORT
from reconciler.blueprints.objects import build
from reconciler.core.refs import CONFIG_MAP, CRD, NAMESPACE, SECRET
from tests.support.bound_scenes import ACCEPTED, Scene, remove, says, until
from tests.support.bursts import HELD, bursts
from tests.support.konnector import konnector
from tests.support.konnector_claims import End, bound, claim, crossed
from tests.support.konnector_scenes import sides
from tests.support.offers import offered
from tests.support.settled import settled

DOWN, UP = claim("secrets", "Provider"), claim("secrets", "Consumer")
SEEDS = [pytest.param(seed, marks=() if seed < 2 else pytest.mark.soak) for seed in range(20)]
BURSTS = 10  # for each seed


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_burst_on_both_sides_overwrites_anything(scene: Scene, seed: int) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, UP if seed % 4 == 3 else DOWN)
        await bursts(scene, Random(seed), BURSTS)


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
