"""What a provider says of an instance, and that it has come down."""

from typing import Any, Final

from reconciler.core.manifest import Manifest, ref_of
from tests.support.bound_scenes import Scene, until

READY: Final[Manifest] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
WAITS: Final[Manifest] = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}


async def says(scene: Scene, status: Manifest) -> None:
    """Let the provider say this of the copy, and wait until it has come down."""
    copy = await scene.copy()
    ref = ref_of(scene.plane.name, scene.offer.kind, copy)
    await scene.plane.cluster.merge_patch(ref, status, manager="provider", subresource="status")

    async def down() -> Any:
        live = await scene.instance()
        return live if live.get("status") == status["status"] else None

    await until(down)
