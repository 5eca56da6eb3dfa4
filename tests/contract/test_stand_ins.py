"""The konnector's stand-in binds a service in Direct mode, beside the backend, on real API servers.

What is expected was recorded from the original: names, labels, annotations, finalizers,
conditions with their order, reasons and severities, field managers.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints import kubeconfig
from reconciler.blueprints import space as spaces
from reconciler.blueprints.objects import UNMARKED
from reconciler.core import names
from reconciler.core.durations import parse_time
from reconciler.core.errors import Unauthorized
from reconciler.core.manifest import (
    uid_of,
)
from reconciler.core.refs import CRD, SECRET
from reconciler.core.secret import Secret
from reconciler.kube.connection import Token
from tests.support.backend import is_idle
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.stand_in_konnector import StandInKonnector
from tests.support.stand_in_scenes import (
    ACCEPTED,
    BIND,
    MANAGER,
    Scene,
    managers,
    remove,
    says,
    shown,
    until,
)


async def test_a_binding_becomes_a_crd(scene: Scene) -> None:
    started = datetime.now(UTC) - timedelta(seconds=1)
    async with scene.backend(), scene.konnector():
        await scene.make_space()
        await scene.request()
        binding = await scene.bind()
        await until(lambda: says(scene.binding(), "Heartbeating"))
        await until(lambda: says(scene.export(), "Connected"))
        await until(lambda: says(scene.export(), "Established", reason="InitialNamesAccepted"))
        await until(lambda: says(scene.on_plane(CLUSTER_BINDING, "cluster"), "Healthy"))

    live = await scene.binding()
    assert shown(live) == [
        ("Ready", "True"),
        ("Connected", "True"),
        ("Heartbeating", "True"),
        ("InformersSynced", "True"),
        ("SecretValid", "True"),
    ]
    assert live["status"]["providerPrettyName"] == "Shop Inc"
    crd = await scene.in_app(CRD, scene.offer.name)
    owner = crd["metadata"]["ownerReferences"]
    assert owner == [
        {
            "apiVersion": "klutch.anynines.com/v1alpha1",
            "kind": "APIServiceBinding",
            "name": scene.offer.name,
            "uid": uid_of(binding),
            "controller": True,
        }
    ]
    assert ("konnector", "Update", "") in managers(crd)
    source = await scene.on_plane(CRD, scene.offer.name)
    assert crd["spec"] == source["spec"]
    export = await scene.export()
    assert shown(export) == [
        ("Ready", "False", "Info", "Unknown"),
        ("Connected", "True"),
        ("ConsumerInSync", "False", "Info", "Unknown"),
        ("Established", "True", "InitialNamesAccepted"),
        ("NamesAccepted", "True", "NoConflicts"),
        ("ProviderInSync", "True"),
    ]
    assert export["status"]["acceptedNames"] == crd["status"]["acceptedNames"]
    assert export["status"]["storedVersions"] == ["v1"]
    assert ("konnector", "Update", "status") in managers(export)
    cluster = await scene.on_plane(CLUSTER_BINDING, "cluster")
    assert cluster["status"]["heartbeatInterval"] == "5m0s"
    assert cluster["status"]["konnectorVersion"] == "v1.5.0"
    assert parse_time(cluster["status"]["lastHeartbeatTime"]) >= started
    assert shown(cluster) == [
        ("Ready", "True"),
        ("Healthy", "True"),
        ("SecretValid", "True"),
        ("ValidVersion", "True"),
    ]


async def test_once_all_is_said_nothing_is_written(scene: Scene) -> None:
    async with scene.backend() as backend, scene.konnector() as konnector:
        await scene.bound(ACCEPTED)
        await scene.create_instance(size="1Gi")
        await until(lambda: scene.copy())
        await until(lambda: says(scene.export(), "Established", reason="InitialNamesAccepted"))

        async def quiet() -> bool:
            marks = [(live.audit, live.audit.mark()) for live in (scene.plane, scene.app)]
            for _ in range(2):
                await konnector.looked()
                await eventually(lambda: is_idle(backend))
            return not any(
                write
                for audit, mark in marks
                for write in audit.writes_since(mark)
                if write.namespace in (scene.space, scene.service_namespace, scene.app_namespace)
                or scene.offer.name in (write.name, write.resource)
            )

        await until(quiet)


async def test_an_export_that_goes_is_told_and_leaves_its_crd(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await remove(scene.plane, API_SERVICE_EXPORT, scene.space, scene.offer.name)
        await until(lambda: says(scene.binding(), "Connected", "False", "APIServiceExportNotFound"))
        assert await scene.in_app(CRD, scene.offer.name) is not None


async def test_the_heart_stops_ages_and_beats_again(scene: Scene) -> None:
    async def age() -> timedelta:
        live = await scene.on_plane(CLUSTER_BINDING, "cluster")
        return datetime.now(UTC) - parse_time(live["status"]["lastHeartbeatTime"])

    async def young() -> bool:
        return await age() < timedelta(minutes=1)

    async with scene.backend(), scene.konnector() as konnector:
        await scene.bound()
        await until(lambda: says(scene.binding(), "Heartbeating"))
        assert await young()
        await konnector.stop_heart(last=timedelta(minutes=11))
        await konnector.looked()
        assert timedelta(minutes=11) <= await age() < timedelta(minutes=12)
        konnector.start_heart()
        await until(young)


async def test_the_kubeconfig_of_the_space_is_mirrored(scene: Scene) -> None:
    async def mirrored() -> bool:
        source = await scene.on_plane(SECRET, names.KUBECONFIG)
        copy = await scene.in_app(SECRET, scene.secret)
        return copy is not None and copy["data"] == source["data"]

    async with scene.backend(), scene.konnector():
        await scene.bound()
        destination = kubeconfig.Destination("https://elsewhere.example", "", "", scene.space)
        rotated = spaces.kubeconfig_secret(
            scene.space,
            names.KUBECONFIG,
            destination=destination,
            token=Secret("d.e.f"),
            marks=UNMARKED,
        )
        await scene.plane.cluster.apply(rotated, SECRET, manager=MANAGER, force=True)
        await until(mirrored)
        await remove(scene.app, SECRET, BIND, scene.secret)
        await until(mirrored)
        await until(lambda: says(scene.binding(), "Ready"))


async def test_a_binding_without_its_secret_says_so_and_gets_no_crd(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.make_space()
        await scene.request()
        await remove(scene.app, SECRET, BIND, scene.secret)
        await scene.bind()
        await until(
            lambda: says(scene.binding(), "SecretValid", "False", "KubeconfigSecretNotFound")
        )
        assert [one[0] for one in shown(await scene.binding())] == ["Ready", "SecretValid"]
        assert await scene.in_app(CRD, scene.offer.name) is None


async def test_stopped_and_started_again_it_goes_on(scene: Scene) -> None:
    konnector = scene.konnector()
    async with scene.backend(), konnector:
        await scene.bound()
    await scene.create_instance()
    assert await scene.copy() is None
    async with scene.backend(), konnector:
        await until(lambda: scene.copy())


async def test_other_spaces_are_left_alone(scene: Scene, namespace: str) -> None:
    konnector = StandInKonnector(scene.app.connection, scene.plane.connection, namespace)
    async with scene.backend(), konnector:
        await scene.make_space()
        await scene.request()
        await scene.bind()
        bindings = konnector.mirror(konnector.app, API_SERVICE_BINDING)
        await eventually(lambda: bindings.get(BIND, scene.offer.name))
        await konnector.looked()
        assert "status" not in await scene.binding()


@pytest.fixture
def unknown(control_plane: LiveCluster, app_cluster: LiveCluster) -> StandInKonnector:
    """Nobody that the app cluster knows."""
    nobody = replace(app_cluster.connection, credential=Token(Secret("nobody")))
    return StandInKonnector(nobody, control_plane.connection, "nowhere")


async def test_a_failure_ends_the_test_that_waits(unknown: StandInKonnector) -> None:
    with pytest.raises(Unauthorized):
        async with unknown:
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_failure_is_raised_to_another_task_that_asks(unknown: StandInKonnector) -> None:
    await asyncio.create_task(unknown.__aenter__())  # as a fixture does
    with pytest.raises(Unauthorized):
        await unknown.looked()
    with pytest.raises(Unauthorized):
        await asyncio.create_task(unknown.__aexit__(None, None, None))


async def test_what_a_test_raises_comes_through(
    control_plane: LiveCluster, app_cluster: LiveCluster
) -> None:
    connections = app_cluster.connection, control_plane.connection
    with pytest.raises(ZeroDivisionError):
        async with StandInKonnector(*connections, "nowhere"):
            raise ZeroDivisionError
