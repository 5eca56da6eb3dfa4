"""S6: one instance that is lost with its kind or its service namespace is not made anew, empty."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from konnector.mass_loss.decide import SURE_AFTER
from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of, uid_of
from reconciler.core.refs import CRD, NAMESPACE, Ref
from tests.contract.trust.test_t16_lost_copies import creates
from tests.support import composed
from tests.support.bound_scenes import Scene, gone, read, remove, served, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound
from tests.support.losses import confirm, told_of
from tests.support.offers import define_again
from tests.support.settled import settled

LONGER = SURE_AFTER.total_seconds() + 1  # than it takes where the kind stays


async def its_kind(scene: Scene) -> None:
    """Make the CRD anew, as `kubectl replace --force` does."""
    plane, name = scene.plane, scene.offer.name
    await remove(plane, CRD, "", name)
    await until(lambda: gone(read(plane, CRD, "", name)))
    await define_again(plane.cluster, scene.offer)
    await until(lambda: served(plane, scene.offer.kind))


async def its_namespace(scene: Scene) -> None:
    plane, name = scene.plane, scene.service_namespace
    was = uid_of(await read(plane, NAMESPACE, "", name))
    await remove(plane, NAMESPACE, "", name)

    async def is_another() -> bool:
        return uid_of(await read(plane, NAMESPACE, "", name) or {}) not in ("", was)

    await until(is_another)


async def itself(scene: Scene) -> None:
    await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")


LOSSES: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "with its kind": its_kind,
    "with its namespace": its_namespace,
    "alone": itself,
}


async def test_nothing_is_made_anew_while_its_kind_is_withdrawn(scene: Scene) -> None:
    """Though what is lost is to be made anew: Crossplane deletes instances before their CRD."""
    async with (
        composed.defined(scene) as definition,
        scene.backend(),
        konnector(scene.app.connection) as running,
    ):
        await bound(scene)
        await scene.recreate_always()
        await until(scene.is_marked)
        was, mark = uid_of(await scene.copy()), scene.plane.audit.mark()
        await remove(scene.plane, definition.kind, "", definition.name)
        await itself(scene)
        await until(lambda: told_of(scene, "orders", "RecreationHeld"))
        await until(lambda: is_withdrawn(scene))
        await asyncio.sleep(LONGER)
        await settled(running)
        assert creates(scene, mark) == []
        # Once the kind stays, what was asked for is done.
        crd = Ref(scene.plane.name, CRD, "", scene.offer.name)
        free: Manifest = {"metadata": {"ownerReferences": None}}
        await scene.plane.cluster.merge_patch(crd, free, manager="crossplane")
        await until(scene.is_marked)
        assert uid_of(await scene.copy()) != was


async def is_withdrawn(scene: Scene) -> bool:
    return keys.WITHDRAWN in annotations_of(await scene.export())


@pytest.mark.parametrize("how", LOSSES)
async def test_the_only_instance_of_a_kind_is_not_made_anew_unasked(scene: Scene, how: str) -> None:
    async with scene.backend(), konnector(scene.app.connection) as running:
        await bound(scene)
        was, mark = uid_of(await scene.copy()), scene.plane.audit.mark()
        await LOSSES[how](scene)
        await until(lambda: told_of(scene, "orders", "RecreationHeld"))
        await settled(running)
        assert creates(scene, mark) == []
        await scene.create_instance("others", size="1Gi")
        await until(lambda: scene.is_marked("others"))
        assert (await scene.copy(), len(creates(scene, mark))) == (None, 1)
        await confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
        await until(scene.is_marked)
        assert uid_of(await scene.copy()) != was
