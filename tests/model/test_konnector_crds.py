"""CRDs that are hard to bring into an app cluster, and what is told and done meanwhile.

protocol-konnector.md C.3 to C.6, G 26, 27, H15, H30.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from reconciler.api import API_SERVICE_EXPORT
from reconciler.blueprints.objects import build
from reconciler.core.errors import Conflict
from reconciler.core.manifest import Manifest, get, resource_version_of
from reconciler.core.refs import CRD, Kind, Ref
from tests.support.bound_scenes import (
    Scene,
    conditions,
    gone,
    has,
    new,
    read,
    remove,
    says,
    served,
    shown,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faults import Faults, broken, forbidden, on
from tests.support.konnector import konnector
from tests.support.konnector_claims import claim, is_idle, offer
from tests.support.konnector_scenes import equals, redefine
from tests.support.konnector_ways import Listened, listened
from tests.support.settled import settled

NOTHING_THERE: Final = "https://127.0.0.1:1/convert"
MANY: Final = 12


async def crd_of(live: LiveCluster, scene: Scene) -> Any:
    return await read(live, CRD, "", scene.offer.name)


async def define(scene: Scene, *versions: Manifest, **more: Any) -> None:
    """Let the provider's CRD have these versions."""
    ref = Ref(scene.plane.name, CRD, "", scene.offer.name)
    body: Manifest = {"spec": {"versions": versions, **more}}
    await scene.plane.cluster.merge_patch(ref, body, manager="provider")


async def two_versions(scene: Scene) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the one version of the provider's CRD, and a second one that is not stored."""
    (first,) = (await crd_of(scene.plane, scene))["spec"]["versions"]
    return first, {**first, "name": "v2", "storage": False}


async def has_versions(scene: Scene, *names: str) -> bool:
    """Tell whether the app cluster has these versions, the first of which it stores."""
    live = await crd_of(scene.app, scene)
    found = {one["name"]: one["storage"] for one in live["spec"]["versions"]}
    return found == {name: name == names[0] for name in names}


async def test_what_is_converted_by_webhook_comes_in_its_storage_version(scene: Scene) -> None:
    """G 26: the app cluster could not ask the webhook, and neither does anybody else."""
    stored, _ = await two_versions(scene)
    webhook = {"clientConfig": {"url": NOTHING_THERE}, "conversionReviewVersions": ["v1"]}
    older = {**stored, "name": "v1beta1", "storage": False}
    await define(scene, older, stored, conversion={"strategy": "Webhook", "webhook": webhook})
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        (exported,) = (await scene.export())["spec"]["versions"]
        assert (exported["name"], exported["storage"]) == ("v1", True)
        crd = await crd_of(scene.app, scene)
        assert [(one["name"], one["storage"]) for one in crd["spec"]["versions"]] == [("v1", True)]
        assert crd["spec"]["conversion"] == {"strategy": "None"}
        assert conditions(crd)["Established"]["status"] == "True"
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        await until(lambda: has(scene.instance(), "Ready", "status", "phase"))


@asynccontextmanager
async def namesake(scene: Scene) -> AsyncIterator[str]:
    """Let another CRD of the app cluster have the kind; yield its name."""
    (version,) = (await crd_of(scene.plane, scene))["spec"]["versions"]
    group = scene.offer.group
    names = {"plural": "stores", "kind": scene.offer.kind.kind, "listKind": "StoreList"}
    spec: Manifest = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    made = build(CRD, f"stores.{group}", spec=spec)
    await scene.app.cluster.create(made, CRD, manager="somebody")
    try:
        kind = Kind(group, "v1", scene.offer.kind.kind, "stores")
        await until(lambda: served(scene.app, kind))
        yield f"stores.{group}"
    finally:
        await remove(scene.app, CRD, "", f"stores.{group}")


async def say_by_hand(scene: Scene, *more: Manifest) -> bool:
    """Add conditions to the export, unless somebody else writes to it just then."""
    live = await scene.export()
    ref = Ref(scene.plane.name, API_SERVICE_EXPORT, scene.space, scene.offer.name)
    body: Manifest = {
        "metadata": {"resourceVersion": resource_version_of(live)},
        "status": {"conditions": [*live["status"]["conditions"], *more]},
    }
    with contextlib.suppress(Conflict):
        await scene.plane.cluster.merge_patch(ref, body, manager="somebody", subresource="status")
        return True
    return False


async def export_shows(scene: Scene, told: Sequence[tuple[str, ...]]) -> bool:
    assert shown(await scene.export()) == told
    return True


async def test_what_the_app_cluster_says_of_a_crd_is_said_of_the_export(scene: Scene) -> None:
    """G 27: instead of what was said, beside what others say, and summed up."""
    time, untold = "2026-01-01T00:00:00Z", ("Weather", "Unknown")
    async with scene.backend(), namesake(scene) as other:
        await scene.make_space()
        await scene.request()
        await until(lambda: says(scene.export(), "ProviderInSync"))
        old = {"type": "Established", "status": "True", "lastTransitionTime": time}
        weather = {"type": "Weather", "status": "Unknown", "lastTransitionTime": time}
        await until(lambda: say_by_hand(scene, weather, old))
        async with konnector(scene.app.connection):
            await scene.bind()
            conflict = [
                ("Ready", "False", "Error", "NamesNotAccepted"),
                ("Connected", "True"),
                ("ConsumerInSync", "False", "Error", "NamesNotAccepted"),
                ("Established", "False", "Error", "NotAccepted"),
                ("NamesAccepted", "False", "Error", "KindConflict"),
                ("ProviderInSync", "True"),
                untold,
            ]
            await until(lambda: export_shows(scene, conflict))
            assert "already in use" in conditions(await scene.export())["NamesAccepted"]["message"]
            # It is said in both clusters, in one after the other.
            await until(lambda: says(scene.binding(), "SchemaInSync", "False", "NamesNotAccepted"))

            await remove(scene.app, CRD, "", other)
            well = [
                ("Ready", "True"),
                ("Connected", "True"),
                ("ConsumerInSync", "True"),
                ("Established", "True", "InitialNamesAccepted"),
                ("NamesAccepted", "True", "NoConflicts"),
                ("ProviderInSync", "True"),
                untold,
            ]
            await until(lambda: export_shows(scene, well))
            told, of_crd = (
                conditions(await scene.export()),
                conditions(await crd_of(scene.app, scene)),
            )
            for one in ("Established", "NamesAccepted"):
                assert told[one]["lastTransitionTime"] == of_crd[one]["lastTransitionTime"]
            assert told["Weather"] == weather


def column(name: str) -> list[Manifest]:
    return [{"name": name, "type": "string", "jsonPath": ".spec.size"}]


async def shows_column(scene: Scene, name: str) -> bool:
    live = await crd_of(scene.app, scene)
    return get(live, "spec", "versions", 0, "additionalPrinterColumns", 0, "name") == name


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
        assert await gone(crd_of(scene.app, scene))
        faults.clear()
        await until(lambda: says(scene.binding(), "Ready"))

        faults.add(on("patch", kind=CRD), broken(503))
        change = {"additionalPrinterColumns": column("Size")}
        await redefine(scene.plane, scene, lambda version: version.update(change))
        await until(lambda: is_told(scene, update_failed, "HTTP 503"))
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        faults.clear()
        await until(lambda: shows_column(scene, "Size"))
        await until(lambda: says(scene.binding(), "Ready"))


async def test_a_switch_of_the_only_version_stops_nothing(scene: Scene) -> None:
    """What is converted by webhook is exported in its storage version alone: in one step."""
    newer = replace(scene.offer.kind, version="v2")
    claim_of = partial(read, scene.app, newer, scene.app_namespace)
    copy_of = partial(read, scene.plane, newer, scene.service_namespace)
    async with scene.backend(), konnector(scene.app.connection) as made:
        await scene.bound()
        await scene.create_instance("older", size="1Gi")
        await until(lambda: scene.copy("older"))
        first, second = await two_versions(scene)
        await define(scene, {**second, "storage": True}, unserved(first))
        await until(lambda: serves(scene, v2=True, v1=False))
        await until(lambda: says(scene.binding(), "Ready"))

        fresh = build(newer, "newer", namespace=scene.app_namespace, spec={"size": "1Gi"})
        await new(scene.app, fresh, newer, manager="developer")
        await until(lambda: copy_of("newer"))
        ref = Ref(scene.app.name, newer, scene.app_namespace, "older")
        bigger: Manifest = {"spec": {"size": "2Gi"}}
        await scene.app.cluster.merge_patch(ref, bigger, manager="developer")
        await until(lambda: has(copy_of("older"), "2Gi", "spec", "size"))

        await settled(made)
        assert (await crd_of(scene.app, scene))["metadata"]["generation"] == 2  # one change
        for name in ("older", "newer"):
            await remove(scene.app, newer, scene.app_namespace, name)
            await until(partial(is_gone, claim_of, name))
            assert await copy_of(name) is None


async def is_gone(reading: Callable[[str], Awaitable[Any]], name: str) -> bool:
    return await reading(name) is None


async def test_a_version_that_goes_stays_unserved_while_it_may_be_stored(scene: Scene) -> None:
    """H15: the app cluster would refuse the whole change (422) until somebody migrated."""
    first, second = await two_versions(scene)
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        stored_so = {**second, "storage": True}, {**first, "storage": False}
        await define(scene, *stored_so)
        await until(lambda: has_versions(scene, "v2", "v1"))
        await define(scene, first, second)
        await until(lambda: has_versions(scene, "v1", "v2"))
        await migrated(scene.plane, scene)
        await define(scene, first)
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
    live = await crd_of(scene.app, scene)
    return {one["name"]: one["served"] for one in live["spec"]["versions"]} == versions


async def migrated(live: LiveCluster, scene: Scene) -> None:
    """Let nothing be stored but in v1."""
    ref = Ref(live.name, CRD, "", scene.offer.name)
    body: Manifest = {"status": {"storedVersions": ["v1"]}}
    await live.cluster.merge_patch(ref, body, manager="operator", subresource="status")


@dataclass(frozen=True, slots=True)
class Heard:
    """A konnector at work, and how often it read the instances of its one service."""

    scene: Scene
    ways: Listened

    def read(self, version: str = "") -> tuple[int, int]:
        """Return how often instances were listed on the control plane, and in the app cluster."""
        end = f"/{self.scene.offer.resource.plural}"
        plane, app = (
            len([path for path in one.listed if path.endswith(end) and version in path])
            for one in (self.ways.of_plane, self.ways.of_app)
        )
        return plane, app

    def looks(self) -> float:
        """Return how often an instance came to be looked at."""
        name = {"name": f"instances/{self.scene.offer.name}"}
        return self.ways.made.metrics.registry.get_sample_value("workqueue_adds_total", name) or 0


async def test_only_what_is_served_otherwise_is_read_anew(scene: Scene) -> None:
    """H30: other claims on offer are none of it, nor is another schema; another version is."""
    async with listened(scene) as ways:
        there = Heard(scene, ways)
        await goes_up(scene, *(f"db{number}" for number in range(MANY)))
        before, listed = await generation(scene), there.read()
        assert min(listed) >= 1
        await offer(scene, claim("configmaps", "Provider"))
        await until(lambda: is_after(scene, before))
        await goes_up(scene, "after-claims")
        await eventually(lambda: is_idle(ways.made))
        assert there.read() == listed

        # A server ends the watches of what has another schema, and views may be read anew then;
        # but nothing that was synced is looked at again.
        looks = there.looks()
        change = {"additionalPrinterColumns": column("Size")}
        await redefine(scene.plane, scene, lambda version: version.update(change))
        await until(lambda: shows_column(scene, "Size"))
        await goes_up(scene, "after-schema")
        assert there.looks() - looks < MANY

        looks = there.looks()
        first, second = await two_versions(scene)
        await define(scene, {**second, "storage": True}, {**first, "storage": False})
        await until(lambda: has_versions(scene, "v2", "v1"))
        await eventually(lambda: all(there.read("/v2/")))
        await goes_up(scene, "after-version")
        assert there.looks() - looks >= MANY


async def goes_up(scene: Scene, *names: str) -> None:
    for name in names:
        await scene.create_instance(name, size="1Gi")
    for name in names:
        await until(partial(scene.copy, name))


async def generation(scene: Scene) -> int:
    return int((await scene.export())["metadata"]["generation"])


async def is_after(scene: Scene, before: int) -> bool:
    return await generation(scene) > before
