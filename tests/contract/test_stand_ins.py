"""The stand-ins bind a service in Direct mode, on real API servers.

What is expected was recorded from the originals: names, labels, annotations, finalizers,
conditions with their order, reasons and severities, field managers.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints import binding as blueprint
from reconciler.blueprints import kubeconfig
from reconciler.blueprints import space as spaces
from reconciler.blueprints.objects import UNMARKED
from reconciler.core import keys, names
from reconciler.core.durations import parse_time
from reconciler.core.errors import Unauthorized
from reconciler.core.manifest import (
    annotations_of,
    get_text,
    uid_of,
)
from reconciler.core.refs import CRD, SECRET
from reconciler.core.secret import Secret
from reconciler.kube.connection import Token
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.stand_in_backend import StandInBackend
from tests.support.stand_in_konnector import StandInKonnector
from tests.support.stand_in_offer import offered, publish_template
from tests.support.stand_in_scenes import (
    ACCEPTED,
    BIND,
    MANAGER,
    Scene,
    direct_scene,
    gone,
    managers,
    remove,
    says,
    shown,
    until,
)


@pytest.fixture
async def scene(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Scene]:
    async with direct_scene(control_plane, app_cluster, namespace) as scene:
        yield scene


async def test_a_request_becomes_an_export_and_a_binding_a_crd(scene: Scene) -> None:
    started = datetime.now(UTC) - timedelta(seconds=1)
    async with scene.backend(), scene.konnector():
        await scene.make_space()
        await scene.request()

        async def succeeded() -> Any:
            found = await scene.on_plane(API_SERVICE_EXPORT_REQUEST, scene.offer.name)
            return found if get_text(found, "status", "phase") == "Succeeded" else None

        request = await until(succeeded)
        assert shown(request) == [("Ready", "True"), ("ExportsReady", "True")]
        binding = await scene.bind()
        await until(lambda: says(scene.binding(), "Heartbeating"))
        await until(lambda: says(scene.export(), "Connected"))
        await until(lambda: says(scene.export(), "Established", reason="InitialNamesAccepted"))

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
    assert export["spec"]["informerScope"] == "Namespaced"
    (claim,) = export["spec"]["permissionClaims"]
    assert claim["selector"] == {"names": ["*"], "namespaces": ["*"], "owner": "Provider"}
    assert set(annotations_of(export)) == {keys.SOURCE_SPEC_HASH}
    assert managers(export) == {
        ("example-backend", "Update", ""),
        ("example-backend", "Update", "status"),
        ("konnector", "Update", "status"),
    }
    cluster = await scene.on_plane(CLUSTER_BINDING, "cluster")
    assert cluster["status"]["heartbeatInterval"] == "5m0s"
    assert cluster["status"]["konnectorVersion"] == "v1.5.0"
    assert parse_time(cluster["status"]["lastHeartbeatTime"]) >= started
    assert shown(cluster) == [("Ready", "True"), ("SecretValid", "True"), ("ValidVersion", "True")]


async def test_once_all_is_said_nothing_is_written(scene: Scene) -> None:
    async with scene.backend() as backend, scene.konnector() as konnector:
        await scene.bound(ACCEPTED)
        await scene.create_instance(size="1Gi")
        await until(lambda: scene.copy())
        await until(lambda: says(scene.export(), "Established", reason="InitialNamesAccepted"))

        async def quiet() -> bool:
            marks = [(live.audit, live.audit.mark()) for live in (scene.plane, scene.app)]
            for process in (backend, konnector) * 2:
                await process.looked()
            return not any(
                write
                for audit, mark in marks
                for write in audit.writes_since(mark)
                if write.namespace in (scene.space, scene.service_namespace, scene.app_namespace)
                or scene.offer.name in (write.name, write.resource)
            )

        await until(quiet)


async def test_without_crd_or_template_a_request_stays_pending(
    scene: Scene, namespace: str, control_plane: LiveCluster
) -> None:
    plane = control_plane.cluster
    async with scene.backend(), offered(plane, namespace=namespace, template=False) as untold:
        await scene.make_space()
        missing = blueprint.Resource("nowhere.example", "things")
        for resource in (missing, untold.resource, scene.offer.resource):
            made = blueprint.export_request(scene.space, resource, parameters={}, marks=UNMARKED)
            await plane.create(made, API_SERVICE_EXPORT_REQUEST, manager=MANAGER)
        # It was created last, so the others have been looked at when it is answered.
        await until(lambda: scene.export())

        request = await scene.on_plane(API_SERVICE_EXPORT_REQUEST, missing.name)
        assert request["status"]["phase"] == "Pending"
        assert shown(request) == [
            ("Ready", "False", "Error", "CRDNotFound"),
            ("ExportsReady", "False", "Error", "CRDNotFound"),
        ]
        silent = await scene.on_plane(API_SERVICE_EXPORT_REQUEST, untold.name)
        assert silent["status"] == {"phase": "Pending"}

        await publish_template(plane, untold, namespace=namespace)
        await until(lambda: scene.on_plane(API_SERVICE_EXPORT, untold.name))


async def test_requests_fail_and_expire_on_cue(scene: Scene) -> None:
    async with scene.backend() as backend:
        backend.fail(scene.offer.name, "no room left")
        await scene.make_space()
        await scene.request()

        async def phase() -> str:
            request = await scene.on_plane(API_SERVICE_EXPORT_REQUEST, scene.offer.name)
            return get_text(request, "status", "phase")

        async def failed() -> bool:
            return await phase() == "Failed"

        await until(failed)
        request = await scene.on_plane(API_SERVICE_EXPORT_REQUEST, scene.offer.name)
        assert request["status"]["terminalMessage"] == "no room left"
        assert shown(request)[1] == ("ExportsReady", "False", "Error", "CRDInvalid")
        backend.mend(scene.offer.name)
        await backend.looked()
        assert await phase() == "Failed"
        assert await scene.export() is None

        assert await backend.expire() == [scene.offer.name]
        await scene.request()
        await until(lambda: scene.export())


async def test_a_provider_crd_that_goes_takes_the_export_along(scene: Scene) -> None:
    async with scene.backend(), scene.konnector():
        await scene.bound()
        await remove(scene.plane, CRD, "", scene.offer.name)
        await until(lambda: gone(scene.export()))
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


async def test_stopped_and_started_again_they_go_on(scene: Scene) -> None:
    backend, konnector = scene.backend(), scene.konnector()
    async with backend, konnector:
        await scene.bound()
    await scene.create_instance()
    assert await scene.copy() is None
    async with backend, konnector:
        await until(lambda: scene.copy())


async def test_other_spaces_are_left_alone(scene: Scene, namespace: str) -> None:
    connection, elsewhere = scene.plane.connection, replace(scene, space=namespace)
    konnector = StandInKonnector(scene.app.connection, connection, namespace)
    async with StandInBackend(connection, {namespace}), konnector:
        await scene.make_space()
        await scene.request()
        await scene.bind()
        await elsewhere.request()
        # It was created last, so the other has been seen when it is answered.
        await until(elsewhere.export)
        assert await scene.export() is None
        bindings = konnector.mirror(konnector.app, API_SERVICE_BINDING)
        await eventually(lambda: bindings.get(BIND, scene.offer.name))
        await konnector.looked()
        assert "status" not in await scene.binding()


async def test_a_failure_ends_the_test_that_waits(control_plane: LiveCluster) -> None:
    nobody = replace(control_plane.connection, credential=Token(Secret("nobody")))
    with pytest.raises(Unauthorized):
        async with StandInBackend(nobody, set()):
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_failure_is_raised_to_another_task_that_asks(control_plane: LiveCluster) -> None:
    nobody = replace(control_plane.connection, credential=Token(Secret("nobody")))
    backend = StandInBackend(nobody, set())
    await asyncio.create_task(backend.__aenter__())  # as a fixture does
    with pytest.raises(Unauthorized):
        await backend.looked()
    with pytest.raises(Unauthorized):
        await asyncio.create_task(backend.__aexit__(None, None, None))


async def test_what_a_test_raises_comes_through(control_plane: LiveCluster) -> None:
    with pytest.raises(ZeroDivisionError):
        async with StandInBackend(control_plane.connection, set()):
            raise ZeroDivisionError
