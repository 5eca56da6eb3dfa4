"""CRDs of a service on both sides, and the versions that they have."""

from typing import Any

from reconciler.core.manifest import Manifest, get
from reconciler.core.refs import CRD, Ref
from tests.support.bound_scenes import Scene, read
from tests.support.clusters import LiveCluster


async def crd_of(live: LiveCluster, scene: Scene) -> Any:
    return await read(live, CRD, "", scene.offer.name)


async def define(scene: Scene, *versions: Manifest, **more: Any) -> None:
    ref = Ref(scene.plane.name, CRD, "", scene.offer.name)
    body: Manifest = {"spec": {"versions": versions, **more}}
    await scene.plane.cluster.merge_patch(ref, body, manager="provider")


async def two_versions(scene: Scene) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the one version of the provider's CRD, and a second one that is not stored."""
    (first,) = (await crd_of(scene.plane, scene))["spec"]["versions"]
    return first, {**first, "name": "v2", "storage": False}


async def has_versions(scene: Scene, *names: str) -> bool:
    """Return whether the app cluster has these versions, the first of which it stores."""
    live = await crd_of(scene.app, scene)
    found = {one["name"]: one["storage"] for one in live["spec"]["versions"]}
    return found == {name: name == names[0] for name in names}


def column(name: str) -> list[Manifest]:
    return [{"name": name, "type": "string", "jsonPath": ".spec.size"}]


async def shows_column(scene: Scene, name: str) -> bool:
    live = await crd_of(scene.app, scene)
    return get(live, "spec", "versions", 0, "additionalPrinterColumns", 0, "name") == name
