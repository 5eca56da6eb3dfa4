"""klutch-osb with exactly the rights that bind/deploy/osb gives it: enough, and none too many."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bind.osb.settings import Settings
from reconciler.blueprints.offering import companions
from reconciler.core import keys, manifest, names, refs
from reconciler.core.refs import Ref
from tests.support import deployed
from tests.support.deployed import Hearing, Right, rights_of
from tests.support.event_rights import told_and_counted
from tests.support.eventually import eventually
from tests.support.osb_scenes import BINDING, INSTANCE, NAME, OsbScene, served
from tests.support.osb_stories import credentials, is_gone

SETTINGS = Settings(allow_plain_http=True, allow_loopback=True)


def shipped() -> list[Any]:
    """Return bind/deploy/osb, with what `klutchctl catalog` makes for the broker beside it."""
    made = companions.rights(NAME, [INSTANCE, BINDING], secrets=True)
    label = f"{keys.OWN_PREFIX}aggregate-to-{keys.MANAGER_OSB}"
    return [
        *deployed.built(deployed.OSB),
        *(one for one in made if label in manifest.labels_of(one)),
    ]


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
        await told_and_counted(heard, scene.namespace)
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
        assert idle(made, hearing) == set()


async def lives(scene: OsbScene) -> None:
    """Claim, bind, rotate, let the old credentials go, and delete."""
    await scene.claim(parameters={"a": 1})
    await scene.in_phase(INSTANCE, "Ready")
    await scene.bind(rotation={"overlap": "0s"})
    await scene.in_phase(BINDING, "Ready")
    before = await credentials(scene)
    assert scene.broker.log_in(before)
    await scene.change(BINDING, rotation={"overlap": "0s", "request": "1"})

    async def rotated():
        now = await credentials(scene)
        return now != before and scene.broker.log_in(now) and not scene.broker.log_in(before)

    await eventually(rotated)
    for kind in (BINDING, INSTANCE):
        await scene.delete(kind)
    await eventually(lambda: is_gone(scene))


def idle(made: list[Any], hearing: Hearing) -> frozenset[Right]:
    given = rights_of(
        rule for one in made if "Role" in one["kind"] for rule in one.get("rules", ())
    )
    return given - hearing.used()
