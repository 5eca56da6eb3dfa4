"""Whatever befalls the konnector, both sides end as if nothing had; at rest it writes nothing."""

import asyncio
import math
import uuid
from collections import Counter
from datetime import datetime, timedelta
from functools import partial

import pytest

from konnector.space.decide import PULSE
from reconciler.api import CLUSTER_BINDING
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, get_text, name_of
from reconciler.core.times import parse_time
from reconciler.kube.requests import Request
from tests.kit.stories import DISTURBANCES, dies_after_every_write, disturbed
from tests.support.bound_scenes import Scene, concerns, says, until
from tests.support.clusters import Write
from tests.support.cues import Cue
from tests.support.eventually import eventually
from tests.support.faults import Crash, Fail, Faults, broken, conflict, deeds, missing, on, survives
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_faults import CLAIMS, STORY, Goal, alike, begins, mortal
from tests.support.settled import settled

# Of an hour without work, how many steps of a little less than a minute.
STEPS = 60
# A CRD; four for each claim; its Secret; a spec, a claim that goes, a copy made again, a password.
LEAST_WRITES = 1 + 4 * len(CLAIMS) + 2 + 1 + 2 + 1 + 1


async def comes_to(scene: Scene, goal: Goal, faults: Faults) -> None:
    async with mortal(scene.app.connection, faults):

        async def reached() -> bool:
            faults.still_alive()
            return await goal(scene)

        await eventually(reached, within=180)


def matters(call: Request) -> bool:
    """Return whether a write is more than the mark with which each process begins."""
    return deeds().matches(call) and call.ref.kind != CLUSTER_BINDING


async def test_a_death_after_every_write_loses_nothing(scene: Scene) -> None:
    written: list[Request] = []  # several at once, so a process that dies may leave more than one

    def noted(call: Request) -> bool:
        written.extend([call] if matters(call) else ())
        return matters(call)

    async with scene.backend():
        for deed, goal in STORY:
            await deed(scene)
            assert await dies_after_every_write(partial(comes_to, scene, goal), Cue(noted)) > 1
    assert len(written) >= LEAST_WRITES


@pytest.mark.parametrize("disturbance", DISTURBANCES)
async def test_writes_that_are_disturbed_lose_nothing(scene: Scene, disturbance: str) -> None:
    async with scene.backend():
        for deed, goal in STORY:
            await deed(scene)
            await comes_to(scene, goal, disturbed(deeds(), disturbance))


def ours(scene: Scene, app: int, plane: int) -> list[Write]:
    """Return what the konnector wrote, and on the control plane about this space."""
    here = [one for one in scene.app.audit.writes_since(app) if one.agent == "konnector"]
    there = [one for one in scene.plane.audit.writes_since(plane) if one.agent == "konnector"]
    return here + [one for one in there if concerns(scene.space, one)]


async def test_at_rest_it_writes_heartbeats_and_nothing_else(scene: Scene) -> None:
    clock = ForwardClock()
    async with scene.backend(), konnector(scene.app.connection, clock=clock) as made:
        for deed, goal in STORY:
            await deed(scene)
            await until(partial(goal, scene))
        await settled(made)
        clock.put_forward(timedelta(minutes=10))  # an Event that came twice is counted by then
        await settled(made)
        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        beats, last = 0, await heart(scene)
        for _ in range(STEPS):
            await asyncio.sleep(1)
            clock.put_forward(timedelta(seconds=50))
            if clock.now() - last >= PULSE:
                last = await until(partial(later_beat, scene, last))
                beats += 1
        written = ours(scene, *marks)
    assert {(one.resource, one.verb) for one in written} == {("clusterbindings", "patch")}
    # Time goes by in steps of 51 seconds: the heart beats with the first one that is late enough.
    assert STEPS / math.ceil(PULSE.total_seconds() / 51) - 2 <= beats <= len(written) <= beats + 2


async def heart(scene: Scene) -> datetime:
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    return parse_time(get_text(live, "status", "lastHeartbeatTime"))


async def later_beat(scene: Scene, last: datetime) -> datetime | None:
    found = await heart(scene)
    return found if found > last else None


# Whether it tells that nothing was made, so that others may be tried, or not yet.
REFUSALS = {
    "an outage": (broken(503), True),
    "no namespace": (missing(), True),
    "a quota that changes all the time": (conflict(), False),
}


@pytest.mark.parametrize(("refusal", "is_final"), REFUSALS.values(), ids=REFUSALS)
async def test_claims_whose_copies_could_not_be_made_are_no_loss(
    scene: Scene, refusal: Fail, is_final: bool
) -> None:
    """None of them is marked before it has a copy, so the next konnector makes one."""
    faults, created = Faults(), [f"claim-{number}" for number in range(12)]

    async def dies() -> None:
        async with mortal(scene.app.connection, faults):
            await until(lambda: says(scene.export(), "Ready"))
            await scene.create_instance()
            await until(scene.copy)
            faults.add(on("create", kind=scene.offer.kind), refusal)
            for name in created:
                await scene.create_instance(name)

            async def all_tried() -> bool:
                tried = Counter(one.ref.name for one in faults.calls if one.verb == "create")
                tried_often = sum(tried[name] >= 3 for name in created)
                return tried_often == len(created) if is_final else tried.total() > 60

            await until(all_tried)
            faults.add(on(), Crash())
            await scene.patch_instance({"spec": {"size": "9Gi"}})
            await eventually(faults.still_alive)  # it raises what ends us

    async with scene.backend():
        await begins(scene)
        assert not await survives(dies())
        async with konnector(scene.app.connection):
            await eventually(lambda: alike(scene))


async def test_konnectors_that_die_in_an_outage_leave_no_loss_together(scene: Scene) -> None:
    """Each holds claims whose copies it cannot make, and dies."""
    created = [f"claim-{number}" for number in range(12)]

    async def dies() -> None:
        faults = Faults()
        faults.add(on("create", kind=scene.offer.kind), broken(503))
        async with mortal(scene.app.connection, faults):
            await eventually(
                lambda: sum(one.verb == "create" for one in faults.calls) > 60, within=900
            )
            faults.add(on(), Crash())
            await scene.patch_instance({"spec": {"size": uuid.uuid4().hex}})
            await eventually(faults.still_alive)  # it raises what ends us

    async with scene.backend():
        await begins(scene)
        async with konnector(scene.app.connection):
            await until(lambda: says(scene.export(), "Ready"))
            await scene.create_instance()
            await until(scene.is_marked)
        for name in created:
            await scene.create_instance(name)
        for _ in range(3):
            assert not await survives(dies())
        claims = await scene.app.cluster.list(scene.offer.kind, namespace=scene.app_namespace)
        marked = [name_of(one) for one in claims.items if keys.BOUND in annotations_of(one)]
        assert marked == ["orders"]
        async with konnector(scene.app.connection):
            await eventually(lambda: alike(scene))
