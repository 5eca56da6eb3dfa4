"""Whatever befalls the konnector, both sides end as if nothing had; and at rest it writes nothing.

`IDLE_SECONDS` lets it rest for longer.
"""

import asyncio
import math
import os
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

import pytest

from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.state import Role
from konnector.cluster_binding.decide import PULSE
from reconciler.api.bindings import API_SERVICE_BINDING, CLUSTER_BINDING
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, get_text, name_of, ref_of
from reconciler.core.refs import SECRET, Ref
from reconciler.core.times import parse_time
from tests.support.bound_scenes import (
    ACCEPTED,
    Scene,
    b64,
    concerns,
    remove,
    says,
    secret,
    until,
)
from tests.support.clusters import Write
from tests.support.eventually import eventually
from tests.support.faults import (
    Crash,
    Fail,
    Faults,
    broken,
    conflict,
    deeds,
    missing,
    on,
    survives,
    throttled,
)
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_faults import alike, mortal
from tests.support.losses import note
from tests.support.settled import settled

pytestmark = pytest.mark.timeout(900)

IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS", "60"))
CLAIMS = [f"claim-{number}" for number in range(4)]
# A CRD; four for each claim; its Secret; a spec, a claim that goes, a copy made again, a password.
LEAST_WRITES = 1 + 4 * len(CLAIMS) + 2 + 1 + 2 + 1 + 1


async def begins(scene: Scene) -> None:
    """Bind, and make claims."""
    await scene.make_space()
    await scene.request()
    binding = await scene.bind(ACCEPTED)
    # A konnector that dies has not seen whether a copy was deleted alone.
    ref = ref_of(scene.app.name, API_SERVICE_BINDING, binding)
    await note(scene.app, ref, keys.RECREATE, keys.RECREATE_ALWAYS)


async def goes_on(scene: Scene) -> None:
    """Claims come, as soon as there is their kind."""
    for name in CLAIMS:
        await scene.create_instance(name, size="1Gi")


async def is_served(scene: Scene) -> None:
    """Let the provider answer: statuses, and a Secret for one claim."""
    plane = scene.plane.cluster
    for name in CLAIMS:
        ref = Ref("", scene.offer.kind, scene.service_namespace, name)
        status = {"status": {"phase": f"Ready {name}"}}
        await plane.merge_patch(ref, status, manager="provider", subresource="status")
    made = secret("creds", scene.service_namespace)
    await plane.create(made, SECRET, manager="provider")


async def changes(scene: Scene) -> None:
    """Let a field go, a claim, and a copy; and change a Secret."""
    app, plane = scene.app.cluster, scene.plane.cluster
    first, second, third, _ = (Ref("", scene.offer.kind, scene.app_namespace, n) for n in CLAIMS)
    await app.merge_patch(first, {"spec": {"size": None, "tier": "b"}}, manager="developer")
    await remove(scene.app, scene.offer.kind, scene.app_namespace, second.name)
    await remove(scene.plane, scene.offer.kind, scene.service_namespace, third.name)
    ref = Ref("", SECRET, scene.service_namespace, "creds")
    await plane.merge_patch(ref, {"data": {"password": b64("new")}}, manager="provider")


async def all_there(scene: Scene) -> bool:
    return await alike(scene) and await says(scene.export(), "Ready")


async def served_alike(scene: Scene) -> bool:
    brought = await scene.in_app(SECRET, "creds", scene.app_namespace)
    return brought is not None and await alike(scene)


async def changed_alike(scene: Scene) -> bool:
    brought = await scene.in_app(SECRET, "creds", scene.app_namespace)
    assert get_text(brought, "data", "password") == b64("new")
    assert await scene.instance(CLAIMS[1]) is None
    return await alike(scene)


async def bound_alike(scene: Scene) -> bool:
    return await says(scene.export(), "Ready")


Goal: TypeAlias = Callable[[Scene], Awaitable[bool]]
STORY: tuple[tuple[Callable[[Scene], Awaitable[None]], Goal], ...] = (
    (begins, bound_alike),
    (goes_on, all_there),
    (is_served, served_alike),
    (changes, changed_alike),
)


async def test_a_death_after_every_write_loses_nothing(scene: Scene) -> None:
    async with scene.backend():
        deaths = 0
        for deed, goal in STORY:
            await deed(scene)
            deaths += await dies_until(scene, goal)
        assert deaths >= LEAST_WRITES - len(STORY)  # the last of each part is outlived


async def dies_until(scene: Scene, goal: Goal) -> int:
    """Let konnectors work each of which dies before its second write; return how many died."""

    async def comes_to(faults: Faults) -> None:
        async with mortal(scene.app.connection, faults):

            async def reached() -> bool:
                faults.still_alive()
                return await goal(scene)

            await eventually(reached)

    for died in range(80):
        faults = Faults()
        faults.add(deeds().nth(2), Crash())
        if await survives(comes_to(faults)):
            return died
    raise AssertionError("it has not come to its end after 80 writes")


async def test_storms_of_conflicts_and_refusals_lose_nothing(scene: Scene) -> None:
    faults = Faults()
    async with scene.backend(), mortal(scene.app.connection, faults):
        for deed, goal in STORY:
            faults.add(on("patch", "apply").first(6), conflict())
            faults.add(on("create").first(2), throttled(retry_after=0.2))
            faults.add(on("delete").first(1), throttled())
            await deed(scene)
            await until(partial(goal, scene))


async def test_api_servers_that_die_in_turn_and_come_back_cost_nothing(
    scene: Scene, without: Callable[[Role, Program], AbstractAsyncContextManager[None]]
) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await begins(scene)
        await until(lambda: bound_alike(scene))
        async with without(Role.CONTROL_PLANE, Program.API_SERVER):
            await goes_on(scene)
        await until(lambda: all_there(scene))
        async with without(Role.APP_CLUSTER, Program.API_SERVER):
            await is_served(scene)
        await until(lambda: served_alike(scene))
        await changes(scene)
        both = (
            without(Role.CONTROL_PLANE, Program.API_SERVER),
            without(Role.APP_CLUSTER, Program.API_SERVER),
        )
        async with both[0], both[1]:
            pass
        await until(lambda: changed_alike(scene))


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
        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        beats, last = 0, await heart(scene)
        for _ in range(int(IDLE_SECONDS)):
            await asyncio.sleep(1)
            clock.put_forward(timedelta(seconds=50))
            if clock.now() - last >= PULSE:
                last = await until(partial(later_beat, scene, last))
                beats += 1
        written = ours(scene, *marks)
    assert {(one.resource, one.verb) for one in written} == {("clusterbindings", "patch")}
    # Time goes by in steps of 51 seconds: the heart beats with the first one that is late enough.
    assert beats >= IDLE_SECONDS / math.ceil(PULSE.total_seconds() / 51) - 2
    assert beats <= len(written) <= beats + 2


async def heart(scene: Scene) -> datetime:
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    return parse_time(get_text(live, "status", "lastHeartbeatTime"))


async def later_beat(scene: Scene, last: datetime) -> datetime | None:
    """Return the next beat, once it has come."""
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
        async with mortal(scene.app.connection, faults):
            faults.add(on("create", kind=scene.offer.kind), broken(503))
            await eventually(lambda: sum(one.verb == "create" for one in faults.calls) > 60)
            faults.add(on(), Crash())
            await scene.patch_instance({"spec": {"size": uuid.uuid4().hex}})
            await eventually(faults.still_alive)  # it raises what ends us

    async with scene.backend():
        await begins(scene)
        async with konnector(scene.app.connection):
            await until(lambda: says(scene.export(), "Ready"))
            await scene.create_instance()
            await until(scene.copy)
        for name in created:
            await scene.create_instance(name)
        for _ in range(3):
            assert not await survives(dies())
        claims = await scene.app.cluster.list(scene.offer.kind, namespace=scene.app_namespace)
        marked = [name_of(one) for one in claims.items if keys.BOUND in annotations_of(one)]
        assert marked == ["orders"]
        async with konnector(scene.app.connection):
            await eventually(lambda: alike(scene))
