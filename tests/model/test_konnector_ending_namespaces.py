"""T11: a Namespace that is deleted asks for the end of its claims; many of them at once do not.

Beside that go no claims that a script deletes, and none that go with their CRD.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from reconciler import api
from reconciler.blueprints import objects
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, manifest
from reconciler.core.refs import CRD, EVENT, NAMESPACE, Ref
from tests.support import losses
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    Scene,
    at_home,
    conditions,
    gone,
    remove,
    served,
    until,
    well_but_for_claims,
)
from tests.support.clusters import LiveCluster
from tests.support.konnector import konnector
from tests.support.offers import offered
from tests.support.settled import settled

MASS: Final = ("DeletesAllowed", "MassDeletion")
WITHIN: Final = timedelta(seconds=15)
# Namespaces, the most claims in one, and the claims that a script deletes.
STORIES: Final = [(24, 3, 12), pytest.param((200, 50, 160), marks=pytest.mark.soak)]


async def fill(scene: Scene, name: str, number: int) -> Scene:
    """Make a Namespace with so many claims, and wait for the copies."""
    (made,) = await fill_all([(scene, name, number)])
    return made


async def fill_all(wanted: Iterable[tuple[Scene, str, int]]) -> list[Scene]:
    every = [(replace(scene, app_namespace=name), number) for scene, name, number in wanted]
    for there, number in every:
        name = there.app_namespace
        await there.app.cluster.create(objects.namespace(name), NAMESPACE, manager="ci")
        for one in range(number):
            made = there.offer.instance(f"db{one}", namespace=name, spec={"size": "1Gi"})
            await there.app.cluster.create(made, there.offer.kind, manager="ci")
    for there, number in every:
        await until(partial(has_copies, there, number), within=600)
    return [there for there, _ in every]


async def has_copies(scene: Scene, number: int) -> bool:
    found = await losses.all_names(scene.plane, scene.offer.kind, scene.service_namespace)
    return len(found) == number and await losses.Many(scene, 0).are_marked()


async def end(scene: Scene) -> None:
    await remove(scene.app, NAMESPACE, "", scene.app_namespace)


async def has_ended(*scenes: Scene) -> bool:
    """Return whether the Namespaces are gone on both sides, and so all that was in them."""
    clusters = {id(live): live for scene in scenes for live in (scene.app, scene.plane)}
    names = [await losses.all_names(live, NAMESPACE, "") for live in clusters.values()]
    mine = {name for one in scenes for name in (one.app_namespace, one.service_namespace)}
    return not mine & {name for found in names for name in found}


async def claims_in(scene: Scene) -> list[Any]:
    app = scene.app.cluster
    return list((await app.list(scene.offer.kind, namespace=scene.app_namespace)).items)


async def all_wait(*scenes: Scene) -> bool:
    """Return whether each claim has the reason and what to do in its status."""
    said = [conditions(claim).get("Synced", {}) for one in scenes for claim in await claims_in(one)]
    return all(
        one.get("reason") == "DeletionHeld" and keys.CONFIRM_MASS_DELETE in one["message"]
        for one in said
    )


@pytest.fixture
async def other(scene: Scene, namespace: str) -> AsyncIterator[Scene]:
    """A second service in the same space."""
    clusters = (scene.plane.cluster, scene.app.cluster)
    async with offered(*clusters, namespace=namespace) as offer:
        yield replace(scene, offer=offer, app_namespace=f"kept-{namespace}")


async def test_claims_go_with_their_namespace(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await scene.create_instance(size="1Gi")
        gone = await fill(scene, "buffet", 8)
        began = SystemClock().now()
        await end(gone)
        await until(lambda: has_ended(gone))
        assert SystemClock().now() - began < WITHIN
        assert await losses.cause(scene, MASS[0]) == ""
        assert await scene.copy()


async def test_a_namespace_that_is_made_again_at_once(scene: Scene) -> None:
    """As CI does for each run: another one by its uid, with services of its own."""
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        uids = set()
        for _ in range(3):
            made = await fill(scene, "preview", 6)
            uids.add(manifest.uid_of(await made.copy("db0")))
            await end(made)
            await until(lambda it=made: gone(it.in_app(NAMESPACE, it.app_namespace, "")))  # type: ignore[misc]
        await until(partial(has_ended, made))
        assert len(uids) == 3


async def test_a_terminating_namespace_of_another_uid_ends_nothing(scene: Scene) -> None:
    """A restore brought it, and it goes; what its mapping leads to is the former one's data."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await scene.bound(ACCEPTED)
            former = await fill(scene, "restored", 8)
        kept = await claims_in(former)
        for one in kept:
            await losses.Many(former, 0).lose_instance(manifest.name_of(one))
        await end(former)
        await until(lambda: gone(former.in_app(NAMESPACE, former.app_namespace, "")))
        await scene.app.cluster.create(objects.namespace("restored"), NAMESPACE, manager="velero")
        metadata = ("annotations", "finalizers", "name", "namespace")
        for one in kept:
            back = {**one, "metadata": {key: one["metadata"][key] for key in metadata}}
            await scene.app.cluster.create(back, scene.offer.kind, manager="velero")
        await end(former)
        async with konnector(scene.app.connection) as running:
            await until(lambda: losses.says(scene, "InstancesInSync", "AnotherNamespace"))
            await asyncio.sleep(120)
            await settled(running)
            found = await losses.all_names(scene.plane, scene.offer.kind, former.service_namespace)
            assert len(found) == 8


async def test_what_was_deleted_before_its_namespace_was_not_meant_by_it(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await scene.bound(ACCEPTED)
            script = await fill(scene, "buffet", 8)
        for one in await claims_in(script):
            await remove(scene.app, scene.offer.kind, "buffet", manifest.name_of(one))
        await asyncio.sleep(2)  # times have whole seconds
        await end(script)
        async with konnector(scene.app.connection) as running:
            await until(lambda: losses.says(scene, *MASS))
            await settled(running)
            assert await has_copies(script, 8)
            await until(lambda: all_wait(script))


async def test_a_binding_may_allow_more(scene: Scene) -> None:
    """Then so many go at once, by themselves or with Namespaces."""
    ref = Ref(scene.app.name, api.API_SERVICE_BINDING, BIND, scene.offer.name)
    async with scene.backend(), konnector(scene.app.connection) as running:
        await scene.bound(ACCEPTED)
        script = await fill(scene, "script", 12)
        previews = await fill_all((scene, f"preview-{one}", 1) for one in range(8))
        await losses.note(scene.app, ref, keys.DELETIONS_AT_ONCE, "12")
        await settled(running)
        for one in await claims_in(script):
            await remove(scene.app, scene.offer.kind, "script", manifest.name_of(one))
        for preview in previews:
            await end(preview)
        await until(lambda: has_ended(*previews))
        await until(lambda: has_copies(script, 0))


@pytest.mark.parametrize("story", STORIES)
async def test_many_namespaces_at_once_wait_for_one_command(
    scene: Scene, story: tuple[int, int, int]
) -> None:
    number, most, _ = story
    async with scene.backend(), konnector(scene.app.connection) as running:
        await scene.bound(ACCEPTED)
        every = await fill_all((scene, f"team-{one}", 1 + one % most) for one in range(number))
        mark = scene.plane.audit.mark()
        for one in every:
            await end(one)
        began = SystemClock().now()
        await until(lambda: all_wait(*every))
        assert SystemClock().now() - began <= WITHIN
        events = (await scene.app.cluster.list(EVENT, namespace="default")).items
        held = [one for one in events if manifest.get_text(one, "reason") == "DeletionHeld"]
        assert {manifest.get_text(one, "regarding", "kind") for one in held} == {"Namespace"}
        await settled(running, within=600)  # two Events a second
        assert losses.deletes_since(scene.plane, mark) == []
        said = conditions(await scene.on_plane(api.CLUSTER_BINDING, "cluster"))[MASS[0]]["message"]
        assert said.count("kubectl annotate") == 1
        await losses.confirm(scene, keys.CONFIRM_MASS_DELETE)
        await until(lambda: has_ended(*every), within=600)


async def test_waves_of_namespaces_with_a_restart_between_are_one(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await scene.bound(ACCEPTED)
            every = await fill_all((scene, f"team-{one}", 1) for one in range(15))
        for first in (0, 5, 10):
            async with konnector(scene.app.connection):
                for one in every[first : first + 5]:
                    await end(one)
                await asyncio.sleep(16)
        assert await has_ended(*every[:5])
        assert await all_wait(*every[10:])
        assert await losses.says(scene, *MASS)


@pytest.fixture
async def elsewhere(scene: Scene, second_app_cluster: LiveCluster) -> AsyncIterator[Scene]:
    """The same service in another app cluster."""
    far = replace(scene, app=second_app_cluster, space=f"{scene.space}-far")
    async with at_home(far):
        yield far


@pytest.mark.parametrize("story", STORIES)
async def test_namespaces_go_beside_a_script_and_a_crd_that_wait(
    scene: Scene, other: Scene, elsewhere: Scene, story: tuple[int, int, int]
) -> None:
    """Over twenty minutes, in two app clusters."""
    number, most, many = story
    async with scene.backend(), konnector(scene.app.connection) as running:
        await scene.bound(ACCEPTED)
        await other.request()
        await other.bind(ACCEPTED)
        await until(lambda: well_but_for_claims(other.binding()))
        await until(lambda: served(other.app, other.offer.kind))
        crd = await fill(other, other.app_namespace, 3)
        script = await fill(scene, "script", many)
        async with konnector(elsewhere.app.connection):
            await elsewhere.bound(ACCEPTED)
            homes = [scene, elsewhere]
            every = await fill_all(
                (homes[one % 2], f"team-{one}", 1 + one % most) for one in range(number)
            )
            for count, one in enumerate(every):
                if count == 4:
                    await remove(scene.app, CRD, "", other.offer.name)
                    await until(lambda: all_wait(crd), within=WITHIN.seconds)
                if count == number - 4:
                    for claim in await claims_in(script):
                        name = manifest.name_of(claim)
                        await remove(scene.app, scene.offer.kind, "script", name)
                    await until(lambda: all_wait(script), within=WITHIN.seconds)
                await end(one)
                await asyncio.sleep(1200 / number)
            await until(lambda: has_ended(*every), within=600)
            await settled(running, within=600)  # two Events a second
            assert await losses.says(scene, *MASS)
            assert await losses.cause(elsewhere, MASS[0]) == ""
            assert await all_wait(script, crd)
            left = [
                await losses.all_names(one.plane, one.offer.kind, one.service_namespace)
                for one in (crd, script)
            ]
            assert len(left[0]) == 3
            assert left[1]
