"""Whatever befalls klutch-osb between two calls or writes, each claim has one instance, or none.

The broker's inventory is the witness.
"""

from collections.abc import AsyncIterator

import pytest

from tests.kit.stories import DISTURBANCES, disturbed
from tests.support.clusters import LiveCluster
from tests.support.osb_scenes import OsbScene, modelled
from tests.support.osb_stories import INSTANCE_LIFE, WAYS, cluster_writes, comes_to, dies_on_the_way

# The finalizer, the record, the call, the record again, the status; the last is outlived.
LEAST_DEATHS = 4 * len(INSTANCE_LIFE) - 2


@pytest.fixture
async def osb(control_plane: LiveCluster, namespace: str) -> AsyncIterator[OsbScene]:
    async with modelled(control_plane, namespace) as scene:
        yield scene
    assert scene.broker.violations == []
    assert scene.broker.inventory.doubles == []
    assert len(scene.broker.provisioned()) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_death_after_every_call_and_write_doubles_and_loses_nothing(
    osb: OsbScene, way: str
) -> None:
    osb.broker.modes = WAYS[way]()
    deaths = 0
    for deed, goal in INSTANCE_LIFE:
        await deed(osb)
        deaths += await dies_on_the_way(osb, goal)
    assert deaths >= LEAST_DEATHS


@pytest.mark.parametrize("disturbance", DISTURBANCES)
async def test_writes_that_are_disturbed_double_and_lose_nothing(
    osb: OsbScene, disturbance: str
) -> None:
    for deed, goal in INSTANCE_LIFE:
        await deed(osb)
        await comes_to(osb, goal, disturbed(cluster_writes(), disturbance))
