"""T22: labels and annotations that travel are listed, and each side says what more comes to it."""

from functools import partial
from typing import Final

from reconciler import api
from reconciler.core import keys
from reconciler.core.manifest import Manifest, annotations_of, labels_of
from reconciler.core.refs import SECRET, Ref
from tests.support.bound_scenes import BIND, Scene, until
from tests.support.composed import note_template
from tests.support.konnector import konnector
from tests.support.konnector_claims import End, bound, claim, data
from tests.support.konnector_scenes import equals, sides, story, working
from tests.support.settled import settled

PAUSED, NAME = "crossplane.io/paused", "crossplane.io/external-name"
DESCRIBED: Final = {"app.kubernetes.io/name": "orders", "servicebinding.io/provider": "shop"}
LABELS: Final = {**DESCRIBED, "app.kubernetes.io/managed-by": "Helm", "team": "a"}
ORDERS: Final = {PAUSED: "true", NAME: "somebody-elses-db", "team": "a"}
METADATA: Final = {"labels": LABELS, "annotations": ORDERS}
TEAM: Final = {"team": "a"}
BOUND: Final = {keys.BOUND: "true"}
MANAGERS: Final = (keys.MANAGER_KONNECTOR, keys.MANAGER_ORIGINAL_KONNECTOR)
OWNED: Final = {keys.RESOURCE_OWNER, keys.ORIGIN_UID, keys.ORIGIN_SPACE_UID}


async def test_what_orders_a_control_plane_does_not_go_up(scene: Scene) -> None:
    async with story(scene) as reported:
        await reported.settle(metadata=METADATA)
        assert await reported.there.labels() == {**DESCRIBED, **TEAM}
        assert await reported.there.annotations() == BOUND
        await reported.here.patch({"spec": {"size": "2Gi"}})
        await until(lambda: reported.there.has_spec({"size": "2Gi"}))
        assert await reported.there.annotations() == BOUND

        # The provider's word, on its template, lets more of it go up; a tool's mark never does.
        await note_template(
            scene, {keys.CARRIES: "team, crossplane.io/external-*, app.kubernetes.io/*"}
        )
        await until(
            lambda: equals(reported.there.annotations(), BOUND | {NAME: ORDERS[NAME]} | TEAM)
        )
        assert await reported.there.labels() == {**DESCRIBED, **TEAM}
        export = await scene.export()
        assert keys.CARRIES in annotations_of(export)
        await reported.here.patch({"metadata": {"labels": {"team": None}}})
        await until(lambda: equals(reported.there.labels(), DESCRIBED))


async def test_an_app_cluster_cannot_name_what_goes_up(scene: Scene) -> None:
    async with story(scene) as reported:
        ref = Ref(scene.app.name, api.API_SERVICE_BINDING, BIND, scene.offer.name)
        named: Manifest = {"metadata": {"annotations": {keys.CARRIES: "*"}}}
        await scene.app.cluster.merge_patch(ref, named, manager="developer")
        await reported.settle(metadata={**METADATA, "annotations": {**ORDERS, keys.CARRIES: "*"}})
        assert await reported.there.annotations() == BOUND


async def test_what_comes_down_is_listed_and_named_by_the_app_cluster(scene: Scene) -> None:
    accepted = claim("secrets", "Provider"), claim("configmaps", "Consumer")
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, *accepted)
        await there.make(SECRET, "creds", metadata=METADATA, **data("one"))
        copy = await until(lambda: here.holds(SECRET, "creds", "one"))
        assert labels_of(copy) == DESCRIBED
        owned = annotations_of(copy)
        assert owned.keys() == OWNED
        assert owned[keys.RESOURCE_OWNER] == "Provider"

        # The provider cannot widen that by its own word.
        await note_template(scene, {keys.CARRIES: "*"})
        await until(lambda: _names(scene, "*"))
        await there.patch(SECRET, "creds", **data("two"))
        copy = await until(lambda: here.holds(SECRET, "creds", "two"))
        assert (labels_of(copy), annotations_of(copy)) == (DESCRIBED, owned)

        # What others write on a copy is theirs.
        await here.patch(SECRET, "creds", metadata={"labels": {"mine": "x"}})
        ref = Ref(scene.app.name, api.API_SERVICE_BINDING, BIND, scene.offer.name)
        named: Manifest = {"metadata": {"annotations": {keys.CARRIES: "team"}}}
        await scene.app.cluster.merge_patch(ref, named, manager="developer")
        await until(lambda: equals(_labels(here), {**DESCRIBED, **TEAM, "mine": "x"}))
        assert annotations_of(await here.read(SECRET, "creds")) == {**owned, **TEAM}
        await settled(made)


async def test_what_went_up_before_stays_as_it_is(scene: Scene) -> None:
    """An installation of 0.1.0, whose copies were made with all labels and annotations."""
    held = {"annotations": {**ORDERS, **BOUND}, "labels": LABELS, "finalizers": [keys.SYNCER]}
    body = {"labels": {**DESCRIBED, **TEAM}, "annotations": {NAME: "db-1", **BOUND}}
    async with scene.backend():
        async with working(scene) as reported:
            await scene.bound()
            await reported.settle("first")
        here, there = sides(scene)
        for manager in MANAGERS:
            await here.make(manager, metadata=held)
            await there.make(manager, metadata=body, manager=manager)
        async with working(scene) as reported:
            stamped = {f"patch {side} {name}" for side in ("here", "there") for name in MANAGERS}
            assert set(await reported.writes()) == stamped
            for name in MANAGERS:
                await here.patch({"spec": {"size": "2Gi"}}, name)
                await until(partial(there.has_spec, {"size": "2Gi"}, name))
                assert await there.annotations(name) == {NAME: "db-1", **BOUND}
                assert await there.labels(name) == {**DESCRIBED, **TEAM}


async def _labels(end: End) -> dict[str, str]:
    return labels_of(await end.read(SECRET, "creds"))


async def _names(scene: Scene, value: str) -> bool:
    live = await scene.on_plane(api.API_SERVICE_EXPORT, scene.offer.name)
    return annotations_of(live).get(keys.CARRIES) == value
