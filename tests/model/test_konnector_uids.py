"""Installations of a time without uids, and from when on a missing uid means another life."""

import asyncio
from typing import Any, Final

import pytest

from reconciler.api import API_SERVICE_NAMESPACE, CLUSTER_BINDING
from reconciler.core import keys, names
from reconciler.core.manifest import JSON, Manifest, annotations_of, get_text, ref_of
from reconciler.core.refs import SECRET, Kind
from tests.support.bound_scenes import Scene, remove, until
from tests.support.clusters import LiveCluster
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, claim, data
from tests.support.losses import Many
from tests.support.settled import settled

UIDS: Final = (keys.CLAIM_UID, keys.ORIGIN_UID, keys.ORIGIN_SPACE_UID, keys.UIDS_SINCE)
NUMBER: Final = 15
ORIGINALS: Final = "v1.4.0"


async def mapping(scene: Scene) -> Any:
    return await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)


async def is_marked(scene: Scene) -> bool:
    return keys.UIDS_SINCE in annotations_of(await mapping(scene) or {})


async def patch(live: LiveCluster, kind: Kind, one: Any, body: Manifest, part: str = "") -> None:
    ref = ref_of(live.cluster.name, kind, one)
    await live.cluster.merge_patch(ref, body, manager="original", subresource=part)


async def lacking(scene: Scene, key: str, kind: Kind, live: LiveCluster, namespace: str) -> int:
    found = (await live.cluster.list(kind, namespace=namespace)).items
    return sum(key not in annotations_of(one) for one in found)


async def wipe(scene: Scene, *, mark: bool = True) -> None:
    """Let both sides be as programs leave them that know of no uids."""
    nothing: dict[str, JSON] = dict.fromkeys(UIDS)
    for live, namespace in (
        (scene.plane, scene.service_namespace), (scene.app, scene.app_namespace),
    ):  # fmt: skip
        for kind in (scene.offer.kind, SECRET):
            for one in (await live.cluster.list(kind, namespace=namespace)).items:
                await patch(live, kind, one, {"metadata": {"annotations": nothing}})
    if mark:
        live = await mapping(scene)
        body: Manifest = {"metadata": {"annotations": {keys.UIDS_SINCE: None}}}
        await patch(scene.plane, API_SERVICE_NAMESPACE, live, body)


async def serve_as_original(scene: Scene) -> None:
    """Let the original have served the space; what it wrote has no uids."""
    await wipe(scene, mark=False)
    body: Manifest = {"status": {"konnectorVersion": ORIGINALS}}
    live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
    await patch(scene.plane, CLUSTER_BINDING, live, body, "status")


@pytest.mark.parametrize("original", [False, True])
async def test_a_deletion_of_a_copy_without_uid(scene: Scene, original: bool) -> None:
    """Once a mapping is marked, such a copy is of another life; unless the original ran since."""
    kind = scene.offer.kind
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await until(lambda: is_marked(scene))
        await (serve_as_original(scene) if original else wipe(scene, mark=False))
        await remove(scene.app, kind, scene.app_namespace, "orders")
        async with konnector(scene.app.connection) as made:
            await until(lambda: is_away(scene))
            await settled(made)
            assert (await scene.copy() is None) is original
            await until(lambda: is_marked(scene), within=120)


async def is_away(scene: Scene) -> bool:
    return await scene.instance() is None


async def test_marks_are_void_before_the_version_of_another_program_goes(scene: Scene) -> None:
    """A konnector that dies in between still finds that the original was there."""
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await until(lambda: is_marked(scene))
        before = annotations_of(await mapping(scene))[keys.UIDS_SINCE]
        await serve_as_original(scene)
        async with konnector(scene.app.connection):
            while (now := annotations_of(await mapping(scene)).get(keys.UIDS_SINCE)) == before:
                live = await scene.on_plane(CLUSTER_BINDING, names.CLUSTER_BINDING)
                assert get_text(live, "status", "konnectorVersion") == ORIGINALS
                await asyncio.sleep(0.01)
            assert now is None
            await until(scene.is_marked)
            await until(lambda: is_marked(scene), within=120)


async def test_at_rest_uids_come_ten_a_second_and_then_the_mark(scene: Scene) -> None:
    """Claims and claimed objects alike; an object that is written anyway does not wait."""
    many = Many(scene, NUMBER)
    names_of = [f"creds{one}" for one in range(NUMBER)]
    kind, app = scene.offer.kind, (scene.app, scene.app_namespace)

    async def are_there() -> bool:
        secrets = await lacking(scene, keys.ORIGIN_UID, SECRET, *app)
        return not secrets + await lacking(scene, keys.CLAIM_UID, kind, *app)

    async with scene.backend():
        async with konnector(scene.app.connection):
            there, here = await bound(scene, claim("secrets", "Provider"))
            await there.make_all(SECRET, dict.fromkeys(names_of, data("one")))
            await many.make("orders")
            await until(lambda: here.holds(SECRET, names_of[-1], "one"))
        await wipe(scene)
        await there.patch(SECRET, names_of[-1], **data("two"))
        began = asyncio.get_running_loop().time()
        async with konnector(scene.app.connection) as made:
            await until(lambda: here.holds(SECRET, names_of[-1], "two"))
            assert keys.ORIGIN_UID in annotations_of(await here.read(SECRET, names_of[-1]))
            assert not await is_marked(scene)
            await until(are_there)
            took = asyncio.get_running_loop().time() - began
            assert (2 * NUMBER - 1) * 0.1 <= took <= 10
            await until(lambda: is_marked(scene), within=120)
            await settled(made)
