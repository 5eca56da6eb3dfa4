"""T11: a Namespace takes its claims along, as its own controller deletes them one by one."""

from reconciler.core.refs import NAMESPACE
from tests.support import losses
from tests.support.bound_scenes import ACCEPTED, Scene, gone, read, remove, until
from tests.support.konnector import konnector


async def test_eight_claims_go_with_their_namespace(scene: Scene) -> None:
    many = losses.Many(scene, 8)
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await many.make()
        await remove(scene.app, NAMESPACE, "", scene.app_namespace)
        await until(lambda: gone(read(scene.app, NAMESPACE, "", scene.app_namespace)))
        await until(lambda: gone(read(scene.plane, NAMESPACE, "", scene.service_namespace)))
        assert await losses.cause(scene, "DeletesAllowed") == ""
