"""S27: an app namespace gets nothing of a former one of its name, on real API servers."""

from tests.support.bound_scenes import Scene
from tests.support.konnector import konnector
from tests.support.made_again import assert_nothing_passes, give, make_again, use_names, used


async def test_a_namespace_that_is_made_again_gets_nothing_unasked(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await used(scene)
        await make_again(scene)
        await use_names(scene)
        async with konnector(scene.app.connection) as running:
            await assert_nothing_passes(scene, running)
            await give(scene)
