"""T4: what a provider puts into service namespaces arrives only where a developer asked for it.

Nor does it get what lies where no developer uses its service.

The provider here maps whichever app namespace it likes, and writes what would direct a cluster.
"""

from random import Random

import pytest

from reconciler.core.manifest import annotations_of
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import Scene, until
from tests.support.bursts import bursts
from tests.support.konnector import konnector
from tests.support.konnector_claims import (
    EVIL,
    SYSTEM,
    bound,
    canaries,
    claim,
    crossed,
    data,
    elsewhere,
    provided,
    quiet_in,
)
from tests.support.konnector_scenes import sides
from tests.support.settled import settled

DOWN, UP = claim("secrets", "Provider"), claim("secrets", "Consumer")


async def test_nothing_arrives_where_no_developer_asked(scene: Scene) -> None:
    async with quiet_in(scene) as quiet, scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene, DOWN)
        mark = scene.app.audit.mark()
        targets = [await provided(scene, one) for one in (*SYSTEM, quiet.app_namespace)]
        for there, _ in targets:
            await there.make_all(SECRET, EVIL)
        await crossed(scene, "creds")
        # Born on the control plane, an instance is no developer's word; and has no place in these.
        for one in (*SYSTEM, quiet.app_namespace):
            await sides(elsewhere(scene, one))[1].make("planted")
        await until(lambda: quiet.instance("planted"))
        for there, _ in targets:
            await there.make_all(SECRET, {"later": data("evil")})
        await crossed(scene, "more")
        await settled(made)
        secrets = {
            one.namespace
            for one in scene.app.audit.writes_since(mark)
            if one.resource == "secrets" and one.agent.startswith("konnector")
        }
        assert secrets == {scene.app_namespace}
        for one in SYSTEM:
            assert await elsewhere(scene, one).instance("planted") is None


async def test_nothing_leaves_where_no_developer_uses_the_service(scene: Scene) -> None:
    async with quiet_in(scene) as quiet, scene.backend(), konnector(scene.app.connection) as made:
        there_, here_ = await bound(scene, UP)
        async with canaries(scene, quiet) as targets:
            await sides(quiet)[1].make("planted")
            await until(lambda: quiet.instance("planted"))
            await here_.make(SECRET, "usual", **data("one"))
            await until(lambda: there_.holds(SECRET, "usual", "one"))
            await settled(made)
            for there, here in targets:
                assert await there.all(SECRET) == []
                assert annotations_of(await here.read(SECRET, "canary")) == {}


@pytest.mark.parametrize(
    "seed", [26, *(pytest.param(one, marks=pytest.mark.soak) for one in range(5))]
)
async def test_no_burst_on_both_sides_overwrites_anything(scene: Scene, seed: int) -> None:
    """S26: a name that both have made stays on both sides as it is."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, DOWN)
        await bursts(scene, Random(seed), 4)
