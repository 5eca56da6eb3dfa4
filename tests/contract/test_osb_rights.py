"""klutch-osb with exactly the rights that bind/deploy/osb gives it: enough, and none too many."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from reconciler.core import manifest, names, refs
from reconciler.core.refs import Ref
from tests.support import deployed
from tests.support.deployed import Hearing
from tests.support.event_rights import recorded_and_counted
from tests.support.osb_rights import SETTINGS, given, lives, shipped
from tests.support.osb_scenes import OsbScene, served


@asynccontextmanager
async def working(scene: OsbScene, made: list[Any]) -> AsyncIterator[Hearing]:
    """Let klutch-osb lead under its account, and hear what it asks for."""
    plane = scene.plane
    async with (
        deployed.installed(plane.cluster, plane.connection, made) as way,
        deployed.heard(way) as (heard, hearing),
    ):
        async with scene.program(settings=SETTINGS, way=heard):
            yield hearing
        await recorded_and_counted(heard, scene.namespace)
        await given_back(scene)


async def given_back(scene: OsbScene) -> None:
    ref = Ref(scene.plane.name, refs.LEASE, names.OSB_NAMESPACE, names.OSB_LEASE)
    lease = await scene.plane.cluster.get(ref)
    assert manifest.get_text(lease, "spec", "holderIdentity") == ""
    assert manifest.get_text(lease, "spec", "acquireTime")


async def test_all_that_is_done_needs_these_rights_and_no_other(control_plane, namespace):
    made = shipped()
    async with served(control_plane, namespace) as scene:
        async with working(scene, made) as hearing:
            await lives(scene)
        assert scene.broker.violations == []
        assert hearing.refused() == set()
        assert given(made) - hearing.used() == set()
