"""What the konnector makes of an APIServiceBinding and its CRD, and says of it in both clusters."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from konnector.space.decide import PULSE
from reconciler.api import (
    API_SERVICE_BINDING,
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    CLUSTER_BINDING,
)
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints.objects import Marks
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys
from reconciler.core.manifest import Manifest, get, get_text, put, uid_of
from reconciler.core.refs import CRD, SECRET, Kind, Ref
from reconciler.core.times import parse_time
from reconciler.kube import crds
from tests.support import konnector_crds
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    MANAGER,
    Scene,
    conditions,
    gone,
    has,
    managers,
    remove,
    says,
    served,
    shown,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.faults import Faults, broken, forbidden, on
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_scenes import equals, redefine

_MINE: Final = (keys.MANAGER_KONNECTOR, "Update")


async def test_a_binding_becomes_a_crd_and_all_is_said_of_it(scene: Scene) -> None:
    started = SystemClock().now() - timedelta(seconds=1)
    async with scene.backend(), konnector(scene.app.connection):
        await scene.make_space()
        await scene.request()
        binding = await scene.bind()
        await until(lambda: all_is_well(scene, scene.binding()))

    assert (await scene.binding())["status"]["providerPrettyName"] == "Shop Inc"
    crd = await scene.in_app(CRD, scene.offer.name)
    assert crd["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "klutch.anynines.com/v1alpha1",
            "kind": "APIServiceBinding",
            "name": scene.offer.name,
            "uid": uid_of(binding),
            "controller": True,
        }
    ]
    assert (*_MINE, "") in managers(crd)
    source = await scene.on_plane(CRD, scene.offer.name)
    assert crd["spec"] == source["spec"]
    export = await scene.export()
    assert export["status"]["acceptedNames"] == crd["status"]["acceptedNames"]
    assert export["status"]["storedVersions"] == ["v1"]
    assert (*_MINE, "status") in managers(export)
    cluster = await scene.on_plane(CLUSTER_BINDING, "cluster")
    assert cluster["status"]["heartbeatInterval"] == "5m0s"
    assert cluster["status"]["konnectorVersion"].startswith("v")
    assert parse_time(cluster["status"]["lastHeartbeatTime"]) >= started


async def all_is_well(scene: Scene, binding: Awaitable[Any]) -> bool:
    assert shown(await binding) == [
        ("Ready", "True"),
        ("Connected", "True"),
        ("Heartbeating", "True"),
        ("InformersSynced", "True"),
        ("SchemaInSync", "True"),
        ("SecretValid", "True"),
    ]
    assert shown(await scene.export()) == [
        ("Ready", "True"),
        ("Connected", "True"),
        ("ConsumerInSync", "True"),
        ("Established", "True", "InitialNamesAccepted"),
        ("NamesAccepted", "True", "NoConflicts"),
        ("ProviderInSync", "True"),
    ]
    assert shown(await scene.on_plane(CLUSTER_BINDING, "cluster")) == [
        ("Ready", "True"),
        ("Healthy", "True"),
        ("KonnectorActive", "True"),
        ("SecretValid", "True"),
        ("ValidVersion", "True"),
    ]
    return True


async def test_the_heart_beats_every_150_seconds(scene: Scene) -> None:
    clock = ForwardClock()

    async def beat() -> datetime:
        live = await scene.on_plane(CLUSTER_BINDING, "cluster")
        return parse_time(live["status"]["lastHeartbeatTime"])

    async with scene.backend(clock=clock), konnector(scene.app.connection, clock=clock):
        await scene.bound()
        await until(lambda: says(scene.binding(), "Heartbeating"))
        first = await beat()
        assert timedelta(seconds=150) == PULSE
        for times in (1, 2):
            clock.put_forward(PULSE)
            await until(lambda due=first + times * PULSE: _is_later(beat, due))  # type: ignore[misc]


async def _is_later(reading: Callable[[], Awaitable[datetime]], due: datetime) -> bool:
    return await reading() >= due


async def test_an_export_that_goes_is_reported_and_leaves_all_that_is_there(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        await scene.create_instance(size="1Gi")
        copy = await until(scene.copy)
        await remove(scene.plane, API_SERVICE_EXPORT, scene.space, scene.offer.name)
        await until(lambda: says(scene.binding(), "Connected", "False", "APIServiceExportNotFound"))
        assert shown(await scene.binding())[0] == (
            "Ready",
            "False",
            "Error",
            "APIServiceExportNotFound",
        )
        assert await scene.in_app(CRD, scene.offer.name) is not None
        assert uid_of(await scene.copy()) == uid_of(copy)

        await remove(scene.plane, API_SERVICE_EXPORT_REQUEST, scene.space, scene.offer.name)
        await scene.request()
        await until(lambda: says(scene.binding(), "Ready"))
        await scene.patch_instance({"spec": {"size": "2Gi"}})
        await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))
        assert uid_of(await scene.copy()) == uid_of(copy)


async def test_a_binding_that_goes_is_reported_and_nothing_is_carried_any_more(
    scene: Scene,
) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        await scene.create_instance(size="1Gi")
        await until(scene.copy)
        await scene.unbind()
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        assert shown(await scene.export())[:3] == [
            ("Ready", "False", "Info", "APIServiceBindingNotFound"),
            ("Connected", "False", "Info", "APIServiceBindingNotFound"),
            ("ConsumerInSync", "False", "Info", "NA"),
        ]
        await scene.patch_instance({"spec": {"size": "2Gi"}})
        await scene.plane.cluster.list(scene.offer.kind, namespace=scene.service_namespace)
        assert (await scene.copy())["spec"] == {"size": "1Gi"}
        await scene.bind()
        await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))


async def test_a_crd_of_somebody_else_is_refused_and_never_touched(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.make_space()
        await scene.request()
        await until(lambda: says(scene.export(), "ProviderInSync"))
        source = await scene.on_plane(CRD, scene.offer.name)
        theirs = put({key: source[key] for key in ("apiVersion", "kind", "spec")}, {}, "metadata")
        theirs = put(theirs, scene.offer.name, "metadata", "name")
        theirs = put(theirs, ["mine"], "spec", "names", "shortNames")
        await scene.app.cluster.create(theirs, CRD, manager="somebody")
        await until(lambda: served(scene.app, scene.offer.kind))
        await scene.bind()
        await until(
            lambda: says(scene.binding(), "Connected", "False", "ForeignCustomResourceDefinition")
        )
        said = conditions(await scene.binding())["Connected"]
        assert said["severity"] == "Error"
        assert said["message"] == (
            f"CustomResourceDefinition {scene.offer.name} is not owned by klutch.anynines.com."
        )
        crd = await scene.in_app(CRD, scene.offer.name)
        assert get(crd, "spec", "names", "shortNames") == ["mine"]
        assert {one for one, _, _ in managers(crd)} == {"kube-apiserver", "somebody"}

        await remove(scene.app, CRD, "", scene.offer.name)
        await until(lambda: says(scene.binding(), "Ready"))


async def test_the_crd_follows_the_provider_and_nobody_else(scene: Scene) -> None:
    def column(name: str) -> dict[str, Any]:
        return {"name": name, "type": "string", "jsonPath": ".spec.size"}

    async def columns() -> list[str]:
        live = await scene.in_app(CRD, scene.offer.name)
        found = get(live, "spec", "versions", 0, "additionalPrinterColumns") or []
        return [get_text(one, "name") for one in found]  # type: ignore[union-attr]

    async def show(live: LiveCluster, *names_of: str) -> None:
        ref = Ref(live.name, CRD, "", scene.offer.name)
        value = [column(one) for one in names_of]
        path = "/spec/versions/0/additionalPrinterColumns"
        patch: list[Manifest] = [{"op": "add", "path": path, "value": value}]
        await live.cluster.json_patch(ref, patch, manager="somebody")

    async def shows(*wanted: str) -> bool:
        return await columns() == list(wanted)

    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound()
        await scene.create_instance(size="1Gi")
        before = await until(scene.copy)
        await show(scene.plane, "Size")
        await until(lambda: shows("Size"))
        await until(lambda: says(scene.binding(), "SchemaInSync"))
        await show(scene.app, "Mine", "Too")
        await until(lambda: shows("Size"))
        await scene.patch_instance({"spec": {"size": "2Gi"}})
        await until(lambda: has(scene.copy(), "2Gi", "spec", "size"))
        assert uid_of(await scene.copy()) == uid_of(before)


async def test_a_binding_without_its_secret_says_so_and_is_served_once_it_is_there(
    scene: Scene,
) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.make_space()
        await scene.request()
        held = await scene.in_app(SECRET, scene.secret)
        await remove(scene.app, SECRET, BIND, scene.secret)
        await until(lambda: gone(scene.in_app(SECRET, scene.secret)))
        await scene.bind()
        await until(
            lambda: says(scene.binding(), "SecretValid", "False", "KubeconfigSecretNotFound")
        )
        assert shown(await scene.binding()) == [
            ("Ready", "False", "Error", "KubeconfigSecretNotFound"),
            ("SecretValid", "False", "Error", "KubeconfigSecretNotFound"),
        ]
        assert await scene.in_app(CRD, scene.offer.name) is None
        place = {"name": scene.secret, "namespace": BIND}
        again = {**held, "metadata": place, "apiVersion": "v1", "kind": SECRET.kind}
        await scene.app.cluster.create(again, SECRET, manager=MANAGER)
        await until(lambda: says(scene.binding(), "Ready"))


OLD_KIND = Kind(
    API_SERVICE_BINDING.group,
    API_SERVICE_BINDING.version,
    API_SERVICE_BINDING.kind,
    API_SERVICE_BINDING.plural,
    namespaced=False,
)


@pytest.fixture
async def old_scene(scene: Scene) -> Scene:
    """Let the app cluster serve APIServiceBindings cluster-scoped, as Klutch up to 1.5.0 does."""
    cluster, name = scene.app.cluster, API_SERVICE_BINDING.resource
    (ours,) = crds.load(name)
    await remove(scene.app, CRD, "", name)
    await until(lambda: gone(scene.in_app(CRD, name)))
    await cluster.create(put(ours, "Cluster", "spec", "scope"), CRD, manager="original")
    await until(lambda: served(scene.app, OLD_KIND))
    return scene


async def test_bindings_of_an_old_klutch_are_served_as_they_are(old_scene: Scene) -> None:
    """H23: their scope is seen, and the CRD is left with it."""
    scene = old_scene
    before = await scene.in_app(CRD, API_SERVICE_BINDING.resource)

    async def binding() -> Any:
        return await scene.in_app(OLD_KIND, scene.offer.name)

    async with scene.backend(), konnector(scene.app.connection):
        await scene.make_space()
        await scene.request()
        made = blueprint.service_binding(
            scene.offer.resource,
            namespace="",
            secret=(BIND, scene.secret),
            claims=[ACCEPTED],
            marks=Marks(),
        )
        await scene.app.cluster.create(made, OLD_KIND, manager="original")
        await until(lambda: all_is_well(scene, binding()))
        await until(lambda: served(scene.app, scene.offer.kind))
        await scene.create_instance(size="1Gi")
        await until(lambda: scene.copy())
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
    assert get(await scene.in_app(CRD, API_SERVICE_BINDING.resource), "spec") == get(before, "spec")


async def is_reported(scene: Scene, reason: str, sentence: str) -> bool:
    """Return whether the binding says that its CRD could not be written, and why."""
    found = conditions(await scene.binding())
    parts = ("status", "severity", "reason")
    for one in ("Connected", "Ready"):
        reported = found.get(one, {})
        assert tuple(reported.get(part) for part in parts) == ("False", "Error", reason)
        assert sentence in reported["message"]
    return True


async def test_a_crd_that_cannot_be_written_is_reported_until_it_can(scene: Scene) -> None:
    """H15: whatever the API server says."""
    faults, update_failed = Faults(), "CustomResourceDefinitionUpdateFailed"
    async with scene.backend(), konnector(scene.app.connection, faults=faults):
        faults.add(on("create", kind=CRD), forbidden())
        await scene.make_space()
        await scene.request()
        await scene.bind()
        reason = "CustomResourceDefinitionCreateFailed"
        await until(lambda: is_reported(scene, reason, "the user may not do this"))
        assert await gone(konnector_crds.crd_of(scene.app, scene))
        faults.clear()
        await until(lambda: says(scene.binding(), "Ready"))

        faults.add(on("patch", kind=CRD), broken(503))
        change = {"additionalPrinterColumns": konnector_crds.column("Size")}
        await redefine(scene.plane, scene, lambda version: version.update(change))
        await until(lambda: is_reported(scene, update_failed, "HTTP 503"))
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
    """Return whether the app cluster has just these versions, and which of them it serves."""
    live = await konnector_crds.crd_of(scene.app, scene)
    return {one["name"]: one["served"] for one in live["spec"]["versions"]} == versions


async def migrated(live: LiveCluster, scene: Scene) -> None:
    """Let nothing be stored but in v1."""
    ref = Ref(live.name, CRD, "", scene.offer.name)
    body: Manifest = {"status": {"storedVersions": ["v1"]}}
    await live.cluster.merge_patch(ref, body, manager="operator", subresource="status")
