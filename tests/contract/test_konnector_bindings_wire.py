"""What a konnector writes about a binding, one by one, as the API servers' audit logs have it.

protocol-konnector.md G 14 to 18, 20, 24: each change is one PATCH to where the binding is, and
no change is none.
"""

import asyncio

from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.core import names
from reconciler.core.manifest import Manifest, get_text, uid_of
from reconciler.core.refs import CRD, SECRET, Ref
from tests.support.bound_scenes import (
    ACCEPTED,
    BIND,
    Scene,
    conditions,
    has,
    managers,
    remove,
    says,
    until,
)
from tests.support.clusters import LiveCluster
from tests.support.konnector import konnector

AGENT = "konnector"


def written(live: LiveCluster, mark: int) -> list[tuple[str, str, str, str]]:
    """Return what the konnector wrote, Events aside: verb, resource, namespace, name."""
    return [
        (one.verb, one.resource, one.namespace, one.name)
        for one in live.audit.writes_since(mark)
        if one.agent == AGENT and one.resource != "events"
    ]


async def silent(scene: Scene) -> bool:
    """Tell whether the konnector has written nothing for a while."""
    marks = scene.app.audit.mark(), scene.plane.audit.mark()
    await asyncio.sleep(2)
    return not written(scene.app, marks[0]) and not written(scene.plane, marks[1])


async def bound(scene: Scene) -> None:
    await scene.make_space()
    await scene.request()
    await scene.bind(ACCEPTED)
    await until(lambda: says(scene.export(), "Ready"))
    await until(lambda: silent(scene))


async def test_a_change_is_one_patch_to_where_the_binding_is(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene)
        patch = ("patch", "apiservicebindings", BIND, scene.offer.name)

        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        ref = Ref("", CLUSTER_BINDING, scene.space, names.CLUSTER_BINDING)
        body: Manifest = {"spec": {"providerPrettyName": "Shop AG"}}
        await scene.plane.cluster.merge_patch(ref, body, manager="provider")
        await until(lambda: has(scene.binding(), "Shop AG", "status", "providerPrettyName"))
        await until(lambda: silent(scene))
        assert written(scene.app, marks[0]) == [patch]
        assert written(scene.plane, marks[1]) == []

        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        touched: Manifest = {"metadata": {"annotations": {"tests": "touched"}}}
        for live, one in (
            (scene.plane, Ref("", API_SERVICE_EXPORT, scene.space, scene.offer.name)),
            (scene.plane, ref),
            (scene.app, Ref("", SECRET, BIND, scene.secret)),
            (scene.app, Ref("", CRD, "", scene.offer.name)),
        ):
            await live.cluster.merge_patch(one, touched, manager="tests")
        await until(lambda: silent(scene))
        assert written(scene.app, marks[0]) == []
        assert written(scene.plane, marks[1]) == []


async def test_what_a_binding_costs(scene: Scene) -> None:
    """A CRD, its status, and the status of the export: nothing twice, and nothing replaced."""
    async with scene.backend(), konnector(scene.app.connection):
        marks = scene.app.audit.mark(), scene.plane.audit.mark()
        await bound(scene)
        told = conditions(await scene.binding())
    assert {one["status"] for one in told.values()} == {"True"}
    here = written(scene.app, marks[0])
    there = [one for one in written(scene.plane, marks[1]) if scene.space in one]
    assert here.count(("create", "customresourcedefinitions", "", "")) == 1
    assert {one[0] for one in here + there} <= {"create", "patch"}
    statuses = [one for one in here if one[1] == "apiservicebindings"]
    assert len(statuses) <= 6  # as the provider is read, and the CRD comes and is served
    assert {one[1] for one in there} <= {"clusterbindings", "apiserviceexports"}
    beats = [one for one in there if one[1] == "clusterbindings"]
    assert len(beats) <= 3  # the backend writes to the same status meanwhile


async def test_a_missing_secret_is_made_under_exactly_its_name(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await bound(scene)
        before = await scene.in_app(SECRET, scene.secret)
        mark = scene.app.audit.mark()
        await remove(scene.app, SECRET, BIND, scene.secret)

        async def again() -> bool:
            live = await scene.in_app(SECRET, scene.secret)
            return live is not None and uid_of(live) != uid_of(before)

        await until(again)
        await until(lambda: silent(scene))
        secrets = [one for one in written(scene.app, mark) if one[1] == "secrets"]
        assert secrets == [("patch", "secrets", BIND, scene.secret)]
        live = await scene.in_app(SECRET, scene.secret)
        assert live["data"] == before["data"]
        assert get_text(live, "type") == get_text(before, "type")
        assert managers(live) == {("klutch.anynines.com", "Apply", "")}
