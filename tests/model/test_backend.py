"""The backend serves spaces, whole: requests, exports, rights, heartbeats.

Names, labels, annotations, conditions with their order, reasons and severities are as recorded
from the original, but for what protocol-bind.md F mends.
"""

from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest

from bind.export import decide
from bind.settings import Settings
from reconciler import api
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import keys, manifest, names, refs
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import GroupResource, Kind, Ref
from reconciler.core.times import created, moment
from tests.support.backend import USUAL, backend, idle
from tests.support.backend_stories import StandingClock
from tests.support.bound_scenes import (
    MANAGER,
    Scene,
    conditions,
    gone,
    managers,
    remove,
    says,
    secret,
    shown,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.faults import Faults, Meanwhile, on
from tests.support.forward_clock import ForwardClock, SetClock
from tests.support.konnector_scenes import equals
from tests.support.offers import CREDENTIALS, Offer, define_again, offered, publish_template
from tests.support.settled import settled

GRACE = Settings().export_grace
CONFIG: Manifest = {"resource": "configmaps", "version": "v1"}
OTHER_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}


async def ask(scene: Scene, resource: GroupResource) -> None:
    made = blueprint.export_request(scene.space, resource, parameters={}, marks=UNMARKED)
    await scene.plane.cluster.create(made, api.API_SERVICE_EXPORT_REQUEST, manager=MANAGER)


async def in_phase(scene: Scene, phase: str, name: str = "") -> Any:
    """Return a request once it is in a phase, the one of the scene's offer if nothing is said."""

    async def request() -> Any:
        found = await scene.on_plane(api.API_SERVICE_EXPORT_REQUEST, name or scene.offer.name)
        return found if manifest.get_text(found, "status", "phase") == phase else None

    return await until(request)


# Requests


async def test_a_request_becomes_an_export(scene: Scene) -> None:
    async with scene.backend():
        await scene.make_space()
        await scene.request()
        request = await in_phase(scene, "Succeeded")
        assert shown(request) == [("Ready", "True"), ("ExportsReady", "True")]
        await until(lambda: says(scene.export(), "ProviderInSync"))
    export = await scene.export()
    assert shown(export) == [("ProviderInSync", "True")]
    assert export["spec"]["informerScope"] == "Namespaced"
    (claim,) = export["spec"]["permissionClaims"]
    assert claim["selector"] == {"names": ["*"], "namespaces": ["*"], "owner": "Provider"}
    assert set(manifest.annotations_of(export)) == {keys.SOURCE_SPEC_HASH, keys.CRD_UID}
    assert managers(export) == {
        (keys.MANAGER_BACKEND, "Update", ""),
        (keys.MANAGER_BACKEND, "Update", "status"),
    }


async def test_a_request_waits_for_crd_and_template_and_says_so(
    scene: Scene, namespace: str
) -> None:
    plane = scene.plane.cluster
    async with scene.backend(), offered(plane, namespace=namespace, template=False) as untold:
        await scene.make_space()
        await ask(scene, untold.resource)

        def waits(reason: str) -> Any:
            reading = scene.on_plane(api.API_SERVICE_EXPORT_REQUEST, untold.name)
            return says(reading, "ExportsReady", "False", reason)

        await until(lambda: waits("TemplateNotFound"))
        request = await in_phase(scene, "Pending", untold.name)
        message = conditions(request)["ExportsReady"]["message"]
        assert f"offers {untold.name}; offered: " in message
        assert scene.offer.name in message

        await remove(scene.plane, refs.CRD, "", untold.name)
        await until(lambda: waits("CRDNotFound"))
        request = await in_phase(scene, "Pending", untold.name)
        assert shown(request) == [
            ("Ready", "False", "Error", "CRDNotFound"),
            ("ExportsReady", "False", "Error", "CRDNotFound"),
        ]

        await publish_template(plane, untold, namespace=namespace)
        await until(lambda: gone(scene.on_plane(refs.CRD, untold.name)))
        await define_again(plane, untold)
        await in_phase(scene, "Succeeded", untold.name)


async def test_a_request_fails_after_a_minute_and_all_expire_after_ten(
    scene: Scene, namespace: str
) -> None:
    clock = ForwardClock()
    plane = scene.plane.cluster
    async with scene.backend(clock=clock), offered(plane, namespace=namespace, template=False) as x:
        await scene.make_space()
        await ask(scene, x.resource)
        await scene.request()
        await in_phase(scene, "Succeeded")
        pending = await in_phase(scene, "Pending", x.name)
        clock.put_forward(decide.TIMEOUT)
        failed = await in_phase(scene, "Failed", x.name)
        assert manifest.uid_of(failed) == manifest.uid_of(pending)
        assert f"offers {x.name}" in failed["status"]["terminalMessage"]
        assert shown(failed)[1] == ("ExportsReady", "False", "Error", "TemplateNotFound")

        await publish_template(plane, x, namespace=namespace)
        clock.put_forward(decide.LIFETIME - decide.TIMEOUT)
        await until(lambda: gone(scene.on_plane(api.API_SERVICE_EXPORT_REQUEST, x.name)))
        await until(lambda: gone(scene.on_plane(api.API_SERVICE_EXPORT_REQUEST, scene.offer.name)))
        assert await scene.export() is not None
        assert await scene.on_plane(api.API_SERVICE_EXPORT, x.name) is None
        await ask(scene, x.resource)
        await until(lambda: scene.on_plane(api.API_SERVICE_EXPORT, x.name))


async def test_a_request_is_as_old_as_the_api_server_says(scene: Scene) -> None:
    async with scene.backend(clock=SetClock(timedelta(days=2))) as made:
        await scene.make_space()
        await scene.request()
        await in_phase(scene, "Succeeded")
        await settled(made)
        await in_phase(scene, "Succeeded")


# Exports


async def test_an_export_outlives_a_crd_that_is_away_for_a_moment(scene: Scene) -> None:
    clock = StandingClock()
    async with scene.backend(clock=clock):
        await scene.make_space()
        await scene.request()
        await until(lambda: says(scene.export(), "ProviderInSync"))
        before = await scene.export()
        await remove(scene.plane, refs.CRD, "", scene.offer.name)
        missing = "CustomResourceDefinitionNotFound"
        await until(lambda: says(scene.export(), "ProviderInSync", "False", missing))
        clock.put_forward(GRACE - timedelta(seconds=60))
        await until(lambda: gone(scene.on_plane(refs.CRD, scene.offer.name)))
        await define_again(scene.plane.cluster, scene.offer)
        await until(lambda: says(scene.export(), "ProviderInSync"))
        assert manifest.uid_of(await scene.export()) == manifest.uid_of(before)

        await remove(scene.plane, refs.CRD, "", scene.offer.name)
        await until(lambda: says(scene.export(), "ProviderInSync", "False", missing))
        clock.put_forward(GRACE)
        await until(lambda: gone(scene.export()))


async def test_an_export_follows_all_that_changes_in_its_crd_and_template(scene: Scene) -> None:
    name, plane = scene.offer.name, scene.plane
    listing = await plane.cluster.list(api.API_SERVICE_EXPORT_TEMPLATE)
    (template,) = [one for one in listing.items if api.offered_resource(one).name == name]

    async def spec() -> Any:
        return (await scene.export())["spec"]

    async def versions() -> list[tuple[str, bool]]:
        return [(one["name"], one["storage"]) for one in (await spec())["versions"]]

    async def claimed() -> list[str]:
        claims = manifest.get_maps(await scene.export(), "spec", "permissionClaims")
        return [manifest.get_text(one, "resource") for one in claims]

    async with scene.backend() as backend:
        await scene.make_space()
        await scene.request()
        await in_phase(scene, "Succeeded")
        await change(plane, refs.CRD, "", name, {"spec": {"names": {"shortNames": ["db"]}}})
        await idle(backend)
        assert (await spec())["names"]["shortNames"] == ["db"]

        v1 = (await scene.on_plane(refs.CRD, name))["spec"]["versions"][0]
        both: list[JSON] = [{**v1, "storage": False}, {**v1, "name": "v2", "served": False}]
        more: Manifest = {"names": {"shortNames": None}, "versions": both}
        await change(plane, refs.CRD, "", name, {"spec": more})
        await idle(backend)
        assert "shortNames" not in (await spec())["names"]
        assert await versions() == [("v1", True)]

        for claims in ([CREDENTIALS, CONFIG], [CONFIG], [], [CREDENTIALS]):
            offer: Manifest = {"spec": {"permissionClaims": claims}}
            place = manifest.namespace_of(template), manifest.name_of(template)
            await change(plane, api.API_SERVICE_EXPORT_TEMPLATE, *place, offer)
            await idle(backend)
            assert await claimed() == [one["resource"] for one in claims]


async def test_rights_are_made_kept_and_taken(scene: Scene) -> None:
    plane, role = scene.plane, names.space_cluster_role(scene.space)
    everywhere = (refs.CLUSTER_ROLE_BINDING, role)
    async with scene.backend(settings=replace(USUAL, consumer_scope="Cluster")) as backend:
        await scene.make_space()
        await scene.request()
        await in_phase(scene, "Succeeded")
        await idle(backend)
        assert await scene.on_plane(*everywhere)
        rules = (await scene.on_plane(refs.CLUSTER_ROLE, role))["rules"]
        assert [one["resources"] for one in rules] == [["secrets"], ["databases"]]
    await remove(plane, refs.ROLE_BINDING, scene.space, names.BINDER)
    other = build(refs.ROLE_BINDING, names.BINDER, namespace=scene.space, roleRef=OTHER_ROLE)
    await plane.cluster.create(other, refs.ROLE_BINDING, manager=MANAGER)
    async with scene.backend() as backend:
        await idle(backend)
        assert await scene.on_plane(*everywhere) is None
        given = await scene.on_plane(refs.ROLE_BINDING, names.BINDER)
        assert given["roleRef"]["name"] == names.BINDER

        await change(plane, refs.CLUSTER_ROLE, "", role, {"rules": rules[:1]})
        await change(plane, refs.ROLE_BINDING, scene.space, names.BINDER, {"subjects": None})
        await idle(backend)
        assert (await scene.on_plane(refs.CLUSTER_ROLE, role))["rules"] == rules
        given = await scene.on_plane(refs.ROLE_BINDING, names.BINDER)
        assert [one["namespace"] for one in given["subjects"]] == [scene.space]


async def change(live: LiveCluster, kind: Kind, namespace: str, name: str, body: Manifest) -> None:
    await live.cluster.merge_patch(Ref(live.name, kind, namespace, name), body, manager=MANAGER)


# Spaces


async def test_a_heart_that_stops_is_reported_on_time(scene: Scene) -> None:
    clock = ForwardClock()

    def healthy(*said: str) -> Any:
        return says(scene.on_plane(api.CLUSTER_BINDING, "cluster"), "Healthy", *said)

    async def carries_databases() -> bool:
        role = names.space_cluster_role(scene.space)
        rules = manifest.get_maps(await scene.on_plane(refs.CLUSTER_ROLE, role), "rules")
        return any("databases" in manifest.get_texts(one, "resources") for one in rules)

    async with scene.backend(clock=clock):
        await scene.make_space()
        await until(lambda: healthy("False", "FirstHeartbeatPending"))
        await scene.request()
        await scene.bind()
        async with scene.konnector():
            await until(healthy)
        await until(carries_databases)
        clock.put_forward(api.INTERVAL)
        await remove(scene.plane, api.API_SERVICE_EXPORT, scene.space, scene.offer.name)
        # So the backend has looked at the space since.
        await until(lambda: equals(carries_databases(), False))
        assert await healthy()
        clock.put_forward(api.INTERVAL)
        await until(lambda: healthy("False", "HeartbeatTimeout"))


# App namespaces


async def map_namespace(scene: Scene) -> None:
    made = build(api.API_SERVICE_NAMESPACE, scene.app_namespace, namespace=scene.space)
    await scene.plane.cluster.create(made, api.API_SERVICE_NAMESPACE, manager="konnector")


async def unmap_namespace(scene: Scene) -> None:
    await remove(scene.plane, api.API_SERVICE_NAMESPACE, scene.space, scene.app_namespace)


async def mapped(scene: Scene) -> bool:
    mapping = await scene.on_plane(api.API_SERVICE_NAMESPACE, scene.app_namespace)
    return manifest.get_text(mapping, "status", "namespace") == scene.service_namespace


async def make_mapped(scene: Scene) -> None:
    """Make the space, and an app namespace with its service namespace."""
    await scene.make_space()
    await map_namespace(scene)
    await until(lambda: mapped(scene))


async def goes(scene: Scene) -> bool:
    service = await scene.on_plane(refs.NAMESPACE, scene.service_namespace)
    return service is None or manifest.is_deleting(service)


async def test_an_app_namespace_gets_a_counterpart_where_the_konnector_has_rights(
    scene: Scene,
) -> None:
    async with scene.backend():
        await make_mapped(scene)
        service = await scene.on_plane(refs.NAMESPACE, scene.service_namespace)
        home = f"{scene.space}/{scene.app_namespace}"
        notes = dict(manifest.annotations_of(service))
        assert notes.pop(keys.ACCOUNT_UID)
        born, said = created(service), moment(notes.pop(keys.MADE_AT))
        assert born is not None
        assert said is not None
        assert abs(born - said) < timedelta(minutes=1)
        uid = manifest.uid_of(await scene.on_plane(refs.NAMESPACE, scene.space))
        assert notes == {"klutch.anynines.com/api-service-namespace": home, keys.SPACE_UID: uid}
        rights = await scene.on_plane(refs.ROLE_BINDING, "klutch-binder", scene.service_namespace)
        assert rights["roleRef"]["name"] == names.space_cluster_role(scene.space)
        await unmap_namespace(scene)
        await until(lambda: goes(scene))


async def test_a_counterpart_that_was_left_behind_is_found_at_the_start(scene: Scene) -> None:
    async with scene.backend():
        await make_mapped(scene)
    await unmap_namespace(scene)
    clock = ForwardClock()
    clock.put_forward(timedelta(hours=2))  # before that, a restore may bring its app namespace
    async with scene.backend(clock=clock):
        await until(lambda: goes(scene))


async def reported(scene: Scene, reason: str) -> bool:
    """Return whether an Event says this of the service namespace."""
    events = (await scene.plane.cluster.list(refs.EVENT, namespace="default")).items
    kept = [one for one in events if one.get("reason") == reason]
    return scene.service_namespace in {manifest.get_text(one, "regarding", "name") for one in kept}


async def test_what_a_backup_brings_before_its_app_namespace_is_kept_for_it(scene: Scene) -> None:
    plane = scene.plane.cluster
    async with scene.backend():
        await scene.make_space()
        notes = {
            keys.API_SERVICE_NAMESPACE: f"{scene.space}/{scene.app_namespace}",
            keys.MADE_AT: "2026-01-01T00:00:00Z",
            keys.SPACE_UID: manifest.uid_of(await scene.on_plane(refs.NAMESPACE, scene.space)),
        }
        made = build(refs.NAMESPACE, scene.service_namespace, marks=Marks(annotations=notes))
        restored = await plane.create(made, refs.NAMESPACE, manager="a backup")
        await plane.create(secret("kept", scene.service_namespace), refs.SECRET, manager="a backup")
        await until(lambda: reported(scene, "NamespaceMadeAnew"))
        assert not await goes(scene)
        await map_namespace(scene)
        await until(lambda: mapped(scene))
        left = await scene.on_plane(refs.NAMESPACE, scene.service_namespace)
        assert manifest.uid_of(left) == manifest.uid_of(restored)


async def test_an_app_namespace_that_is_back_before_the_search_ends_keeps_its_data(
    scene: Scene,
) -> None:
    faults = Faults()
    async with backend(scene.plane.connection, faults=faults):
        await make_mapped(scene)
        service = await scene.on_plane(refs.NAMESPACE, scene.service_namespace)
        search = on("list", kind=refs.SECRET, namespace=scene.service_namespace)
        faults.add(search.nth(1), Meanwhile(lambda: map_namespace(scene)))
        await unmap_namespace(scene)
        await until(lambda: mapped(scene))
        left = await scene.on_plane(refs.NAMESPACE, scene.service_namespace)
        assert manifest.uid_of(left) == manifest.uid_of(service)
        assert not manifest.is_deleting(left)


async def test_released_data_keep_their_namespace(scene: Scene) -> None:
    async with scene.backend():
        await make_mapped(scene)
        notes = Marks(annotations={keys.RELEASED: "2026-01-01T00:00:00Z"})
        kept = build(refs.SECRET, "kept", namespace=scene.service_namespace, marks=notes)
        await scene.plane.cluster.create(kept, refs.SECRET, manager=MANAGER)
        await unmap_namespace(scene)
        await until(lambda: reported(scene, "ReleasedDataKept"))
        assert not await goes(scene)


async def test_copies_that_nobody_deletes_keep_their_namespace(scene: Scene) -> None:
    """T3: a konnector that lost sight of them lets the mapping go, and no data with it."""
    plane, clock, faults = scene.plane.cluster, ForwardClock(), Faults()
    kind, searched = scene.offer.kind, list[str]()

    async def note() -> None:
        searched.append(scene.service_namespace)

    faults.add(on("list", kind=refs.SECRET, namespace=scene.service_namespace), Meanwhile(note))
    async with backend(scene.plane.connection, faults=faults, clock=clock):
        await make_mapped(scene)
        notes = Marks(annotations={keys.BOUND: "true", keys.ORPHANED: "2026-01-01T00:00:00Z"})
        copy = build(kind, "orders", namespace=scene.service_namespace, marks=notes, spec={})
        await plane.create(copy, kind, manager="konnector")
        credential = build(refs.CONFIG_MAP, "c", namespace=scene.service_namespace, marks=notes)
        await plane.create(credential, refs.CONFIG_MAP, manager="konnector")
        await unmap_namespace(scene)
        await until(lambda: reported(scene, "BoundDataKept"))
        assert not await goes(scene)
        assert searched == []  # what comes after the first find
        await remove(scene.plane, refs.CONFIG_MAP, scene.service_namespace, "c")
        await remove(scene.plane, kind, scene.service_namespace, "orders")

        async def left() -> bool:
            clock.put_forward(timedelta(minutes=10))
            return await goes(scene)

        await until(left)


@pytest.mark.parametrize("kept", [False, True])
async def test_copies_go_with_a_space_that_is_deleted(scene: Scene, *, kept: bool) -> None:
    plane, kind = scene.plane.cluster, scene.offer.kind
    async with scene.backend():
        await make_mapped(scene)
        notes = Marks(annotations={keys.BOUND: "true"})
        copy = build(kind, "orders", namespace=scene.service_namespace, marks=notes, spec={})
        await plane.create(copy, kind, manager="konnector")
        if kept:
            await unmap_namespace(scene)
            await until(lambda: reported(scene, "BoundDataKept"))
        await remove(scene.plane, refs.NAMESPACE, "", scene.space)
        if not kept:
            await unmap_namespace(scene)
        await until(lambda: goes(scene))


async def test_app_namespaces_that_end_at_once_cost_no_search_of_each_kind(scene: Scene) -> None:
    """S5: what no export ever had is searched once, and one namespace of a space after another."""
    plane, faults, clock = scene.plane.cluster, Faults(), ForwardClock()
    others = [Offer(f"x{number}.{scene.offer.group}", "Namespaced") for number in range(6)]
    mappings = [f"{scene.app_namespace}-{number}" for number in range(5)]
    homes = [names.service_namespace(scene.space, one) for one in mappings]
    async with backend(scene.plane.connection, faults=faults, clock=clock):
        await scene.make_space()
        for offer in others:
            await define_again(plane, offer)
        for one in mappings:
            made = build(api.API_SERVICE_NAMESPACE, one, namespace=scene.space)
            await plane.create(made, api.API_SERVICE_NAMESPACE, manager="konnector")

        async def served() -> bool:
            listing = await plane.list(api.API_SERVICE_NAMESPACE, namespace=scene.space)
            return all(manifest.get_text(one, "status", "namespace") for one in listing.items)

        await until(served)
        before = len(faults.calls)
        for one in mappings:
            await remove(scene.plane, api.API_SERVICE_NAMESPACE, scene.space, one)

        async def ended() -> bool:
            found = [await scene.on_plane(refs.NAMESPACE, one) for one in homes]
            return all(one is None or manifest.is_deleting(one) for one in found)

        await until(ended)
    lists = [call.ref for call in faults.calls[before:] if call.verb == "list"]
    groups = {one.group for one in others}
    assert sorted(ref.kind.group for ref in lists if ref.kind.group in groups) == sorted(groups)
    searched = [ref.namespace for ref in lists if ref.namespace in homes]
    assert len([one for one, _ in groupby(searched)]) == len(homes)
    for offer in others:
        await remove(scene.plane, refs.CRD, "", offer.name)
