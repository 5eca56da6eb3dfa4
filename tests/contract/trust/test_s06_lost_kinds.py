"""S6: one instance that is lost with its kind or its service namespace is not made anew, empty."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from reconciler.core import keys
from reconciler.core.manifest import uid_of
from reconciler.core.refs import CRD, NAMESPACE
from tests.contract.trust.test_t16_lost_copies import creates
from tests.support.bound_scenes import Scene, gone, read, remove, served, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound
from tests.support.losses import confirm, told_of
from tests.support.offers import define_again
from tests.support.settled import settled


async def its_kind(scene: Scene) -> None:
    """Make the CRD anew, as `kubectl replace --force` does."""
    plane, name = scene.plane, scene.offer.name
    await remove(plane, CRD, "", name)
    await until(lambda: gone(read(plane, CRD, "", name)))
    await define_again(plane.cluster, scene.offer)
    await until(lambda: served(plane, scene.offer.kind))


async def its_namespace(scene: Scene) -> None:
    await remove(scene.plane, NAMESPACE, "", scene.service_namespace)
    await until(lambda: gone(read(scene.plane, NAMESPACE, "", scene.service_namespace)))


async def itself(scene: Scene) -> None:
    await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")


LOSSES: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "with its kind": its_kind,
    "with its namespace": its_namespace,
    "alone": itself,
}


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
