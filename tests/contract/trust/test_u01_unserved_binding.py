"""U1: what is bound and cannot be synced holds up no app namespace without copies of its kind."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of
from reconciler.core.refs import CRD, NAMESPACE
from tests.support.bound_scenes import Scene, conditions, remove, says, until
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_claims import mapping_of
from tests.support.konnector_scenes import Side, sides
from tests.support.offers import offered


async def occupied(scene: Scene) -> None:
    """Let somebody else have the CRD of this name in the app cluster."""
    body = await scene.on_plane(CRD, scene.offer.name, "")
    made = build(CRD, scene.offer.name, spec=body["spec"])
    await scene.app.cluster.create(made, CRD, manager="somebody")


async def test_an_app_namespace_goes_beside_a_binding_that_is_not_served(
    scene: Scene, namespace: str
) -> None:
    clock = ForwardClock()
    plane, app = scene.plane.cluster, scene.app.cluster
    async with (
        offered(plane, app, namespace=namespace) as more,
        scene.backend(),
        konnector(scene.app.connection, clock=clock),
    ):
        await scene.bound()
        other = replace(scene, offer=more)
        await occupied(other)
        await other.request()
        await other.bind()
        foreign = "ForeignCustomResourceDefinition"
        await until(lambda: says(other.binding(), "Connected", "False", foreign))
        places = [f"{scene.app_namespace}-{one}" for one in ("bare", "kept")]
        for place in places:
            await app.create(spaces.namespace(place), NAMESPACE, manager="tests")
            there = replace(scene, app_namespace=place)
            mine, _ = sides(there)
            await mine.make()
            # An API server that deletes an object overlooks a finalizer that comes meanwhile.
            await until(partial(_is_bound, mine))
            await mine.delete()
            await until(mine.gone)
        bare, kept = places
        # Of the other kind, there is a copy behind one of them.
        _, copy = sides(replace(other, app_namespace=kept))
        held: Manifest = {"annotations": {keys.BOUND: "true"}}
        await copy.make(metadata=held, manager="provider")
        for place in places:
            await remove(scene.app, NAMESPACE, "", place)
            await until(partial(_is_gone, scene, place))

        async def unmapped(place: str) -> bool:
            clock.put_forward(timedelta(seconds=15))
            live = await scene.on_plane(API_SERVICE_NAMESPACE, place)
            assert live is None, (annotations_of(live), conditions(await other.binding()))
            return True

        await until(partial(unmapped, bare))

        async def reported() -> bool:
            clock.put_forward(timedelta(seconds=15))
            found = conditions(await other.binding()).get("InstancesInSync", {})
            return found.get("status") == "False" and kept in found["message"]

        await until(reported)
        assert await mapping_of(scene, kept)
        assert await copy.read()

        await copy.delete()

        await until(partial(unmapped, kept))
        await other.unbind()


async def _is_gone(scene: Scene, app_namespace: str) -> bool:
    return await scene.in_app(NAMESPACE, app_namespace, "") is None


async def _is_bound(claim: Side) -> bool:
    return keys.BOUND in annotations_of(await claim.read())
