"""Whatever befalls klutch-osb between two calls or writes, each claim has one instance, or none.

The broker's inventory is the witness.
"""

from collections.abc import Iterator

import pytest

from tests.kit.stories import DISTURBANCES, disturbed
from tests.support.osb_scenes import OsbScene
from tests.support.osb_stories import BOUND, LIFE, WAYS, cluster_writes, comes_to, dies_on_the_way

# The finalizer, the record, the call, the record again, the status; the last is outlived.
LEAST_DEATHS = 4 * len(LIFE) - 6


@pytest.fixture(autouse=True)
def is_made_once(osb: OsbScene) -> Iterator[None]:
    yield
    assert len(osb.broker.provisioned()) == 1


USUAL = ("at once", "later", "nothing is aborted")


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in USUAL else pytest.mark.soak) for way in WAYS]
)
async def test_a_death_after_every_call_and_write_doubles_and_loses_nothing(
    osb: OsbScene, way: str
) -> None:
    osb.broker.modes = WAYS[way]()
    deaths = 0
    for number, (deed, goal) in enumerate(LIFE):
        await deed(osb)
        deaths += await dies_on_the_way(osb, goal, is_bound=number in BOUND)
    assert deaths >= LEAST_DEATHS


@pytest.mark.parametrize("disturbance", DISTURBANCES)
async def test_writes_that_are_disturbed_double_and_lose_nothing(
    osb: OsbScene, disturbance: str
) -> None:
    for number, (deed, goal) in enumerate(LIFE):
        await deed(osb)
        faults = disturbed(cluster_writes(), disturbance)
        await comes_to(osb, goal, faults, is_bound=number in BOUND)
