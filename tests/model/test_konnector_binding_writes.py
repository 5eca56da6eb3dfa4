"""What a konnector writes about a binding, one by one, as audit logs have it.

protocol-konnector.md G 14 to 18, 20, 24: each change is one PATCH, and no change is none.
"""

import itertools
from contextlib import AsyncExitStack

from reconciler import api
from reconciler.controller.program import Term
from reconciler.core import names
from reconciler.core.manifest import Manifest, get_text, uid_of
from reconciler.core.refs import CRD, SECRET, Ref
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    Managed,
    Scene,
    conditions,
    has,
    managers,
    remove,
    says,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.cues import Delay
from tests.support.eventually import eventually
from tests.support.faults import Events, Faults, on
from tests.support.konnector import in_space, konnector
from tests.support.settled import settled

AGENT = "konnector"


def written(live: LiveCluster, mark: int) -> list[tuple[str, str, str, str]]:
    """Return what the konnector wrote, Events aside: verb, resource, namespace, name."""
    return [
        (one.verb, one.resource, one.namespace, one.name)
        for one in live.audit.writes_since(mark)
        if one.agent == AGENT and one.resource != "events"
    ]


def statuses(live: LiveCluster, mark: int) -> list[tuple[str, str]]:
    """Return how the konnector wrote to bindings: verb and subresource."""
    return [
        (event["verb"], event["objectRef"].get("subresource", ""))
        for event in live.audit.events_since(mark)
        if event["stage"] == "RequestReceived"
        and event.get("userAgent") == AGENT
        and event.get("objectRef", {}).get("resource") == "apiservicebindings"
        and event["verb"] in ("create", "update", "patch", "delete")
    ]


async def bound(scene: Scene, made: Term) -> None:
    await scene.make_space()
    await scene.request()
    await scene.bind(ACCEPTED)
    await until(lambda: says(scene.export(), "Ready"))
    await settled(made)


async def test_a_change_is_one_patch_to_where_the_binding_is(scene: Scene) -> None:
    """H31: touched by others, its conditions are not written anew."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene, made)
        patch = ("patch", "apiservicebindings", BIND, scene.offer.name)

        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        ref = Ref("", api.CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
        body: Manifest = {"spec": {"providerPrettyName": "Shop AG"}}
        await scene.plane.cluster.merge_patch(ref, body, manager="provider")
        await until(lambda: has(scene.binding(), "Shop AG", "status", "providerPrettyName"))
        await settled(made)
        assert written(scene.app, marks[0]) == [patch]
        assert written(scene.plane, marks[1]) == []

        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        touched: Manifest = {"metadata": {"annotations": {"tests": "touched"}}}
        for live, one in (
            (scene.plane, Ref("", api.API_SERVICE_EXPORT, scene.space, scene.offer.name)),
            (scene.plane, ref),
            (scene.app, Ref("", SECRET, BIND, scene.secret)),
            (scene.app, Ref("", CRD, "", scene.offer.name)),
        ):
            await live.cluster.merge_patch(one, touched, manager="tests")
        await settled(made)
        assert written(scene.app, marks[0]) == []
        assert written(scene.plane, marks[1]) == []
        await a_condition_changes(scene, made, patch)


async def a_condition_changes(scene: Scene, made: Term, patch: tuple[str, str, str, str]) -> None:
    """Let one condition change, and others with it, to False and back: one patch each time."""
    mark = scene.app.audit.mark()
    for kind in (api.API_SERVICE_EXPORT_REQUEST, api.API_SERVICE_EXPORT):
        await remove(scene.plane, kind, scene.space, scene.offer.name)
    await until(lambda: says(scene.binding(), "Connected", "False", "APIServiceExportNotFound"))
    reported = {name: one["status"] for name, one in conditions(await scene.binding()).items()}
    assert (reported["Ready"], reported["SchemaInSync"]) == ("False", "Unknown")
    await scene.request()
    await until(lambda: says(scene.binding(), "Ready"))
    await settled(made)
    assert written(scene.app, mark) == [patch, patch]
    assert statuses(scene.app, mark) == [("patch", "status")] * 2


async def test_beside_the_control_plane_the_app_cluster_gets_no_status(managed: Managed) -> None:
    settings = in_space(managed.space, "shop-kubeconfig")
    async with managed.backend(), AsyncExitStack() as opened:
        await managed.make_secret()
        await managed.apply(managed.offer.resource)
        await until(managed.binding)
        await until(lambda: managed.read(SECRET, "shop-kubeconfig"))
        made = await opened.enter_async_context(konnector(managed.plane.connection, settings))
        await until(lambda: says(managed.binding(), "Ready"))
        await until(lambda: says(managed.export(), "Ready"))
        await settled(made)
        patch = ("patch", "apiservicebindings", managed.space, managed.offer.name)

        marks = managed.app.audit.mark(), managed.plane.audit.mark()
        ref = Ref("", api.CLUSTER_BINDING, managed.space, names.CLUSTER_BINDING)
        body: Manifest = {"spec": {"providerPrettyName": "Shop AG"}}
        await managed.plane.cluster.merge_patch(ref, body, manager="provider")
        await until(lambda: has(managed.binding(), "Shop AG", "status", "providerPrettyName"))
        await settled(made)
        assert written(managed.plane, marks[1]) == [patch]
        assert statuses(managed.plane, marks[1]) == [("patch", "status")]
        assert written(managed.app, marks[0]) == []


async def test_what_a_binding_costs(scene: Scene) -> None:
    """A CRD, its status, and the status of the export: nothing twice, and nothing replaced."""
    async with scene.backend(), konnector(scene.app.connection) as made:
        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        await bound(scene, made)
        reported = conditions(await scene.binding())
    assert {one["status"] for one in reported.values()} == {"True"}
    here = written(scene.app, marks[0])
    there = [one for one in written(scene.plane, marks[1]) if scene.space in one]
    assert here.count(("create", "customresourcedefinitions", "", "")) == 1
    assert {one[0] for one in here + there} <= {"create", "patch"}
    statuses = [one for one in here if one[1] == "apiservicebindings"]
    assert len(statuses) <= 6  # as the provider is read, and the CRD comes and is served
    assert {one[1] for one in there} <= {"clusterbindings", "apiserviceexports"}
    beats = [one for one in there if one[1] == "clusterbindings"]
    audit, itself = scene.plane.audit, (scene.space, "clusterbindings")

    # The backend writes to the same status meanwhile: what met its write was asked again.
    await eventually(lambda: len(beats) - audit.conflicts_since(marks[1], AGENT).count(itself) <= 2)


async def test_a_missing_secret_is_made_under_exactly_its_name(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        await bound(scene, made)
        before = await scene.in_app(SECRET, scene.secret)
        mark = scene.app.audit.mark()
        await remove(scene.app, SECRET, BIND, scene.secret)

        async def again() -> bool:
            live = await scene.in_app(SECRET, scene.secret)
            return live is not None and uid_of(live) != uid_of(before)

        await until(again)
        await settled(made)
        secrets = [one for one in written(scene.app, mark) if one[1] == "secrets"]
        assert secrets == [("patch", "secrets", BIND, scene.secret)]
        live = await scene.in_app(SECRET, scene.secret)
        assert live["data"] == before["data"]
        assert get_text(live, "type") == get_text(before, "type")
        assert managers(live) == {("klutch.anynines.com", "Apply", "")}


async def test_nothing_is_decided_twice_while_views_lag(managed: Managed) -> None:
    """What was written counts before a watch tells of it: no write is refused for being late."""
    await managed.make_secret()
    settings = in_space(managed.space, "shop-kubeconfig")
    late, kinds = Faults(), (api.API_SERVICE_BINDING, api.API_SERVICE_EXPORT)
    for kind, reported in itertools.product(kinds, range(50)):
        late.add(on("watch", kind=kind), Delay(0.5), at=Events(reported))
    async with managed.backend():
        await managed.apply(managed.offer.resource)
        await until(managed.binding)
        await until(managed.export)
        mark = managed.plane.audit.mark()
        async with konnector(managed.plane.connection, settings, faults=late) as made:
            await until(lambda: says(managed.binding(), "Ready"))
            await until(lambda: says(managed.export(), "Ready"))
            touched: Manifest = {"metadata": {"annotations": {"tests": "touched"}}}
            crd = Ref("", CRD, "", managed.offer.name)
            await managed.app.cluster.merge_patch(crd, touched, manager="tests")
            await settled(made)
    audit = managed.plane.audit
    await eventually(lambda: audit.conflicts_since(mark, AGENT) == [])
