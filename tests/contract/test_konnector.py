"""The konnector between two real API servers: a claim up, its status and Secrets down."""

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, finalizers_of, get_text
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import ACCEPTED, Scene, b64, has, secret, until
from tests.support.konnector import konnector


async def test_a_claim_goes_up_and_its_status_and_secret_come_down(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await scene.create_instance(size="1Gi")
        copy = await until(lambda: scene.copy())
        assert copy["spec"] == {"size": "1Gi"}
        assert annotations_of(copy) == {keys.BOUND: "true"}
        assert finalizers_of(copy) == []
        instance = await scene.instance()
        assert finalizers_of(instance) == [keys.SYNCER]
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
        made = secret("orders-creds", scene.service_namespace)
        await scene.plane.cluster.create(made, SECRET, manager="provider")
        brought = await until(lambda: scene.in_app(SECRET, "orders-creds", scene.app_namespace))
        assert brought["data"] == {"password": b64("old")}
        assert get_text(brought, "metadata", "annotations", keys.RESOURCE_OWNER) == "Provider"
