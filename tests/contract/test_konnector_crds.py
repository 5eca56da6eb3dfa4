"""What a real app cluster says of a CRD, and what its changes cost the views of a konnector.

protocol-konnector.md G 27, H30. The other CRDs that are hard to bring: tests/model.
"""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from bind.settings import Settings
from konnector.binding import crd
from reconciler.api import API_SERVICE_EXPORT
from reconciler.blueprints.export import Terms, new_export
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys
from reconciler.core.errors import Conflict, Rejected
from reconciler.core.manifest import Manifest, resource_version_of
from reconciler.core.refs import CRD, Kind, Ref
from tests.support import konnector_crds
from tests.support.backend import USUAL
from tests.support.bound_scenes import (
    Scene,
    conditions,
    gone,
    has,
    read,
    remove,
    says,
    served,
    shown,
    until,
)
from tests.support.broker_wire import certified
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, claim, is_idle, offer
from tests.support.konnector_scenes import CLUSTER_WIDE, events, redefine
from tests.support.konnector_ways import Listened, listened
from tests.support.osb_server import LoopbackServer
from tests.support.osb_wire import Said

MANY: Final = 12


@asynccontextmanager
async def namesake(scene: Scene) -> AsyncIterator[str]:
    """Let another CRD of the app cluster have the kind; yield its name."""
    (version,) = (await konnector_crds.crd_of(scene.plane, scene))["spec"]["versions"]
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


async def export_shows(scene: Scene, reported: Sequence[tuple[str, ...]]) -> bool:
    assert shown(await scene.export()) == reported
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
            reported, of_crd = (
                conditions(await scene.export()),
                conditions(await konnector_crds.crd_of(scene.app, scene)),
            )
            for one in ("Established", "NamesAccepted"):
                assert reported[one]["lastTransitionTime"] == of_crd[one]["lastTransitionTime"]
            assert reported["Weather"] == weather


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
        change = {"additionalPrinterColumns": konnector_crds.column("Size")}
        await redefine(scene.plane, scene, lambda version: version.update(change))
        await until(lambda: konnector_crds.shows_column(scene, "Size"))
        await goes_up(scene, "after-schema")
        assert there.looks() - looks < MANY

        looks = there.looks()
        first, second = await konnector_crds.two_versions(scene)
        await konnector_crds.define(scene, {**second, "storage": True}, {**first, "storage": False})
        await until(lambda: konnector_crds.has_versions(scene, "v2", "v1"))
        await eventually(lambda: all(there.read("/v2/")))
        await goes_up(scene, "after-version")
        assert there.looks() - looks >= MANY


async def test_a_crd_of_a_protected_group_is_taken_with_its_approval(
    app_cluster: LiveCluster,
) -> None:
    """An API server refuses one of `*.k8s.io` without."""
    plain = {"openAPIV3Schema": {"type": "object"}}
    spec: Manifest = {
        "group": "demo.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": plain}],
    }
    owner = crd.Owner({"metadata": {"name": "things.demo.k8s.io", "uid": "u"}})
    for notes in ({keys.API_APPROVED: "unapproved, a test"}, {}):
        defined = build(CRD, "things.demo.k8s.io", marks=Marks(annotations=notes), spec=spec)
        made = crd.wanted(new_export("space", spec, [], terms=Terms(), crd=defined), owner)
        with pytest.raises(Rejected) if not notes else contextlib.nullcontext():
            await app_cluster.cluster.create(made, CRD, manager="tests", dry_run=True)


class Converter(LoopbackServer):
    """The webhook of a provider: `spec.size` of v1 is `spec.resources.size` of v2."""

    @asynccontextmanager
    async def exchanged(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[Said]:
        review = json.loads(body)
        request = review.pop("request")
        version = request["desiredAPIVersion"]
        objects = [_converted(one, version) for one in request["objects"]]
        done = {"uid": request["uid"], "result": {"status": "Success"}}
        review["response"] = {**done, "convertedObjects": objects}
        yield Said(200, json.dumps(review).encode(), {"Connection": "close"})


def _converted(one: dict[str, Any], version: str) -> dict[str, Any]:
    spec = dict(one["spec"])
    size = spec.pop("resources", spec).pop("size", None)
    if size is not None:
        spec |= {"resources": {"size": size}} if version.endswith("/v2") else {"size": size}
    return {**one, "apiVersion": version, "spec": spec}


def knows(version: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the version with these fields, and a note, in its spec."""
    known = {"note": {"type": "string"}, **fields}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": known}}}
    return {**version, "schema": {"openAPIV3Schema": schema}}


async def test_a_stored_version_that_is_replaced_costs_no_claim_a_field(
    scene: Scene, tmp_path: Path
) -> None:
    """The provider's webhook converts its copies; nothing converts claims."""
    size, clock, trusted = {"type": "string"}, ForwardClock(), certified(tmp_path)
    webhook = Converter(tls=trusted.context)
    webhook.start()
    ca = base64.b64encode(trusted.ca.encode()).decode()
    config = {"clientConfig": {"url": webhook.url, "caBundle": ca}}
    conversion = {"strategy": "Webhook", "webhook": {**config, "conversionReviewVersions": ["v1"]}}
    one, two = await konnector_crds.two_versions(scene)
    first = knows(one, size=size)
    second = knows(two, resources={"type": "object", "properties": {"size": size}})
    copy_of = partial(read, scene.plane, replace(scene.offer.kind, version="v2"))
    try:
        await konnector_crds.define(scene, first, second, conversion=conversion)
        async with scene.backend(), konnector(scene.app.connection, clock=clock):
            await scene.bound()
            await scene.create_instance(size="10Gi", note="data")
            await until(scene.copy)
            await konnector_crds.define(
                scene, {**second, "storage": True}, {**first, "storage": False}
            )
            held = "StoredVersionReplaced"
            await until(lambda: says(scene.binding(), "SchemaInSync", "False", held))
            (version,) = (await konnector_crds.crd_of(scene.app, scene))["spec"]["versions"]
            assert version["name"] == "v1"
            await scene.patch_instance(
                {"metadata": {"labels": {"a": "b"}}, "spec": {"size": "20Gi"}}
            )
            copy = partial(copy_of, scene.service_namespace, "orders")
            await until(lambda: has(copy(), "20Gi", "spec", "resources", "size"))
            assert (await scene.instance())["spec"] == {"size": "20Gi", "note": "data"}

            await remove(scene.app, scene.offer.kind, scene.app_namespace, "orders")
            clock.put_forward(timedelta(minutes=2))
            await until(lambda: konnector_crds.has_versions(scene, "v2", "v1"))
            await until(lambda: says(scene.binding(), "SchemaInSync"))
    finally:
        await konnector_crds.define(
            scene, first, second, conversion={"strategy": "None", "webhook": None}
        )
        webhook.close()


REPLACED = {
    "of another scope": (CLUSTER_WIDE, {"scope": "Cluster"}),
    "of another kind": (
        USUAL,
        {"names": {"plural": "databases", "kind": "Store", "listKind": "StoreList"}},
    ),
}


@pytest.mark.parametrize(("settings", "change"), REPLACED.values(), ids=REPLACED)
async def test_a_kind_that_is_replaced_frees_its_lost_claims(
    scene: Scene, settings: Settings, change: Manifest
) -> None:
    """No API server changes scope and kind of a CRD: the one of the app cluster is made anew."""
    plane, app, name = scene.plane, scene.app, scene.offer.name
    async with scene.backend(settings=settings):
        async with konnector(app.connection):
            await bound(scene)
            await scene.create_instance("others", size="1Gi")
            await until(lambda: scene.is_marked("others"))
            spec = (await konnector_crds.crd_of(plane, scene))["spec"]
            await remove(plane, CRD, "", name)
            await until(lambda: gone(read(plane, CRD, "", name)))
            await plane.cluster.create(build(CRD, name, spec=spec | change), CRD, manager="tests")
            await until(lambda: says(scene.binding(), "SchemaInSync", "False", "KindReplaced"))
            await until(lambda: is_held(scene, "others", "it is"))
            await remove(app, scene.offer.kind, scene.app_namespace, "orders")
            await until(lambda: gone(scene.instance()))
        async with konnector(app.connection):
            await remove(app, CRD, "", name)
            await until(lambda: follows(scene))
            await until(lambda: says(scene.binding(), "SchemaInSync"))


async def is_held(scene: Scene, name: str, why: str) -> bool:
    notes = await events(scene, name, "RecreationHeld")
    return any(f"withdraws the kind: {why}" in one["note"] for one in notes)


async def follows(scene: Scene) -> bool:
    there, here = [await read(one, CRD, "", scene.offer.name) for one in (scene.plane, scene.app)]
    return here is not None and crd.instance_kind(there) == crd.instance_kind(here)


async def goes_up(scene: Scene, *names: str) -> None:
    for name in names:
        await scene.create_instance(name, size="1Gi")
    for name in names:
        await until(partial(scene.copy, name))


async def generation(scene: Scene) -> int:
    return int((await scene.export())["metadata"]["generation"])


async def is_after(scene: Scene, before: int) -> bool:
    return await generation(scene) > before
