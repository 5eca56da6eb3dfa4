"""CRDs that are hard to bring into an app cluster, and what is told and done meanwhile.

protocol-konnector.md C.3 to C.6, G 26, 27, H15, H30.
"""

from typing import Any

from reconciler.core.manifest import Manifest, get
from reconciler.core.refs import CRD, Ref
from tests.support import konnector_crds
from tests.support.bound_scenes import Scene, conditions, gone, says, until
from tests.support.clusters import LiveCluster
from tests.support.faults import Faults, broken, forbidden, on
from tests.support.konnector import konnector
from tests.support.konnector_scenes import equals, redefine


async def is_told(scene: Scene, reason: str, sentence: str) -> bool:
    """Tell whether the binding says that its CRD could not be written, and why."""
    found = conditions(await scene.binding())
    parts = ("status", "severity", "reason")
    for one in ("Connected", "Ready"):
        told = found.get(one, {})
        assert tuple(told.get(part) for part in parts) == ("False", "Error", reason)
        assert sentence in told["message"]
    return True


async def test_a_crd_that_cannot_be_written_is_told_until_it_can(scene: Scene) -> None:
    """H15: whatever the API server says."""
    faults, update_failed = Faults(), "CustomResourceDefinitionUpdateFailed"
    async with scene.backend(), konnector(scene.app.connection, faults=faults):
        faults.add(on("create", kind=CRD), forbidden())
        await scene.make_space()
        await scene.request()
        await scene.bind()
        reason = "CustomResourceDefinitionCreateFailed"
        await until(lambda: is_told(scene, reason, "the user may not do this"))
        assert await gone(konnector_crds.crd_of(scene.app, scene))
        faults.clear()
        await until(lambda: says(scene.binding(), "Ready"))

        faults.add(on("patch", kind=CRD), broken(503))
        change = {"additionalPrinterColumns": konnector_crds.column("Size")}
        await redefine(scene.plane, scene, lambda version: version.update(change))
        await until(lambda: is_told(scene, update_failed, "HTTP 503"))
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        faults.clear()
        await until(lambda: konnector_crds.shows_column(scene, "Size"))
        await until(lambda: says(scene.binding(), "Ready"))


async def test_a_version_that_goes_stays_unserved_while_it_may_be_stored(scene: Scene) -> None:
    """H15: the app cluster would refuse the whole change (422) until somebody migrated."""
    first, second = await konnector_crds.two_versions(scene)
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        stored_so = {**second, "storage": True}, {**first, "storage": False}
        await konnector_crds.define(scene, *stored_so)
        await until(lambda: konnector_crds.has_versions(scene, "v2", "v1"))
        await konnector_crds.define(scene, first, second)
        await until(lambda: konnector_crds.has_versions(scene, "v1", "v2"))
        await migrated(scene.plane, scene)
        await konnector_crds.define(scene, first)
        await until(lambda: serves(scene, v1=True, v2=False))
        await until(lambda: says(scene.binding(), "Ready"))
        await until(lambda: equals(stored_versions(scene), ["v1", "v2"]))
        await migrated(scene.app, scene)
        await until(lambda: serves(scene, v1=True))
        await until(lambda: says(scene.binding(), "Ready"))


async def stored_versions(scene: Scene) -> Any:
    """Return what the export says of the app cluster."""
    return get(await scene.export(), "status", "storedVersions")


def unserved(version: Manifest) -> Manifest:
    return {**version, "served": False, "storage": False}


async def serves(scene: Scene, **versions: bool) -> bool:
    """Tell whether the app cluster has just these versions, and which of them it serves."""
    live = await konnector_crds.crd_of(scene.app, scene)
    return {one["name"]: one["served"] for one in live["spec"]["versions"]} == versions


async def migrated(live: LiveCluster, scene: Scene) -> None:
    """Let nothing be stored but in v1."""
    ref = Ref(live.name, CRD, "", scene.offer.name)
    body: Manifest = {"status": {"storedVersions": ["v1"]}}
    await live.cluster.merge_patch(ref, body, manager="operator", subresource="status")
