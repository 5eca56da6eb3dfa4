"""klutch-osb without one of its rights: a life of a claim does not come to its end."""

import asyncio

from reconciler.api.osb import SERVICE_BROKER
from reconciler.core.refs import EVENT, LEASE, Ref
from reconciler.kube.requests import Request
from tests.support.cues import Cue
from tests.support.deployed import Right
from tests.support.eventually import eventually
from tests.support.faults import Faults, forbidden
from tests.support.osb_rights import given, lives, shipped
from tests.support.osb_scenes import BINDING, INSTANCE, OsbScene
from tests.support.osb_stories import is_gone

# Not among them are Events and the lease, which a life does without, and watches: a list that is
# read again and again tells the same, later.
RIGHTS = sorted(
    right
    for right in given(shipped())
    if right.resource not in (EVENT.plural, LEASE.plural) and right.verb != "watch"
)
WITHIN = 20.0  # seconds of the loop; a life takes less than two


def needing(right: Right) -> Cue[Request]:
    def matches(call: Request) -> bool:
        kind, part = call.ref.kind, call.subresource
        resource = f"{kind.plural}/{part}" if part else kind.plural
        return Right(kind.group, resource, call.verb) == right

    return Cue(matches)


async def came_to_its_end(scene: OsbScene, faults: Faults) -> bool:
    async def life() -> None:
        async with scene.program(faults=faults):
            await lives(scene)

    living = asyncio.create_task(life())
    await asyncio.wait({living}, timeout=WITHIN)
    done = living.done() and not living.exception()
    living.cancel()
    await asyncio.wait({living})
    return done


async def cleared(scene: OsbScene) -> None:
    """Let a program with all rights end what another could not, and forget what brokers say."""
    for kind in (BINDING, INSTANCE):
        await scene.delete(kind)
    async with scene.program():
        await eventually(lambda: is_gone(scene), within=3600)
    ref = Ref(scene.plane.name, SERVICE_BROKER, scene.home, scene.name)
    await scene.plane.cluster.merge_patch(
        ref, {"status": None}, manager="tests", subresource="status"
    )


async def test_each_of_them_is_needed(osb: OsbScene) -> None:
    ended: dict[Right | None, bool] = {None: await came_to_its_end(osb, Faults())}
    for right in RIGHTS:
        await cleared(osb)
        faults = Faults()
        faults.add(needing(right), forbidden())
        ended[right] = await came_to_its_end(osb, faults)
    assert {right for right, well in ended.items() if well} == {None}
    assert len(ended) > 15
