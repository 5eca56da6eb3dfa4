"""Two app clusters of one control plane, with all names alike (behaviours 3, golden 05)."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pytest

from bind.settings import Settings
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.blueprints.objects import build
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, get_text, identity_of, name_of
from reconciler.core.refs import CLUSTER_ROLE_BINDING, CONFIG_MAP, ROLE_BINDING, SECRET, Kind
from tests.support.backend import USUAL
from tests.support.bound_scenes import Scene, at_home, b64, until
from tests.support.clusters import LiveCluster
from tests.support.konnector_claims import claim, data, ends, mapped, offer
from tests.support.konnector_scenes import (
    CLUSTER_WIDE,
    Side,
    Story,
    equals,
    event,
    refusal,
    working,
)
from tests.support.offers import offered
from tests.support.settled import settled

CLAIMS = claim("secrets", "Provider"), claim("configmaps", "Consumer")


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the original's matrix: the scope of the kind, and of the konnectors' rights."""

    scope: Literal["Namespaced", "Cluster"]
    settings: Settings


CASES = {
    "cc-prefixed": Case("Cluster", CLUSTER_WIDE),
    "nn": Case("Namespaced", USUAL),
    "nc": Case("Namespaced", CLUSTER_WIDE),
}


@pytest.fixture
async def scenes(
    control_plane: LiveCluster,
    app_cluster: LiveCluster,
    second_app_cluster: LiveCluster,
    namespace: str,
    case: Case,
) -> AsyncIterator[tuple[Scene, Scene]]:
    """Two spaces, where the name of one begins with that of the other."""
    unique = namespace.removeprefix("test-")
    apps = (app_cluster, second_app_cluster)
    async with offered(
        control_plane.cluster, *(app.cluster for app in apps), namespace=namespace, scope=case.scope
    ) as made:
        one, other = (
            Scene(control_plane, app, made, f"cluster-{unique}{end}", f"dev-{unique}")
            for app, end in zip(apps, ("", "-x"), strict=True)
        )
        await offer(one, *CLAIMS)
        async with at_home(one), at_home(other):
            yield one, other


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_neither_knows_of_the_other(scenes: tuple[Scene, Scene], case: Case) -> None:
    one, other = scenes
    async with one.backend(settings=case.settings), working(one) as first:
        await one.bound(*CLAIMS)
        await first.settle(spec={"size": "1Gi"}, metadata=_naming(other))
        await first.here.make("users")
        async with working(other) as second:
            await other.bound(*CLAIMS)
            await second.settle(spec={"size": "2Gi"}, metadata=_naming(one))
            await second.here.make("users")
            if case.scope == "Cluster":
                await _a_taken_name_is_reported_to_one(first, second)
            await _is_in_its_space(first, {"size": "1Gi"})
            await _is_in_its_space(second, {"size": "2Gi"})
            await _each_goes_its_way(first, second)
            await _each_goes_its_way(second, first)
            await _each_has_what_is_born_in_its_space(first, second)
            await _each_deletes_its_own("orders", first, second)
            await _each_deletes_its_own("users", second, first)
            await _each_has_what_it_claims(first, second)
            await _each_follows_its_own(one, other)
            for scene in scenes:
                await _has_rights_as_far_as(case.settings.consumer_scope, scene)
            left = (first, {"users", "first-born"}), (second, {"orders", "second-born"})
            await _nothing_else_is_anywhere(*left)


def _naming(scene: Scene) -> dict[str, Any]:
    """Return metadata that name a space. In an app cluster that means nothing (G 30)."""
    return {"annotations": {keys.CLUSTER_NAMESPACE: scene.space}}


async def _is_in_its_space(story: Story, spec: Any) -> None:
    copy = await story.there.read()
    assert copy["spec"] == spec
    marks = {} if story.scene.offer.kind.namespaced else _naming(story.scene)["annotations"]
    assert await story.there.annotations() == {keys.BOUND: "true", **marks}


async def _a_taken_name_is_reported_to_one(first: Story, second: Story) -> None:
    """One's `x-orders` would have the place of the copy of the other's `orders`."""
    one, other = first.scene, second.scene
    async with _left_alone(second, "orders"):
        await first.here.make("x-orders")
        reported = await until(lambda: event(one, "x-orders", "NameTaken"))
        assert second.there.ref("orders").name in reported["note"]
        assert "x-orders" in await until(lambda: refusal(one))
        await first.here.delete("x-orders")
        await until(lambda: first.here.gone("x-orders"))
        await until(lambda: equals(refusal(one), ""))
    assert await event(other, "orders", "NameTaken") is None
    assert await refusal(other) == ""


async def _each_goes_its_way(mover: Story, other: Story) -> None:
    """Neither spec nor status of one comes to the other, on either side."""
    whose = mover.scene.space
    async with _left_alone(other, "orders"):
        await mover.here.patch({"spec": {"size": whose}})
        await until(lambda: equals(mover.there.spec(), {"size": whose}))
        await mover.there.patch({"status": {"phase": whose}}, subresource="status")
        await until(lambda: equals(mover.here.status(), {"phase": whose}))


async def _each_deletes_its_own(name: str, deleter: Story, other: Story) -> None:
    async with _left_alone(other, name):
        await deleter.here.delete(name)
        await until(lambda: deleter.here.gone(name))
        assert await deleter.there.gone(name)


@contextlib.asynccontextmanager
async def _left_alone(story: Story, name: str) -> AsyncIterator[None]:
    """Nobody writes to either side of an instance while the block does something elsewhere."""
    before = [await side.read(name) for side in (story.here, story.there)]
    assert None not in before
    yield
    await story.writes()
    assert [await side.read(name) for side in (story.here, story.there)] == before


async def _each_has_what_is_born_in_its_space(first: Story, second: Story) -> None:
    """In a service namespace the place says whose it is, elsewhere annotations."""
    for name, owner in (("first-born", first), ("second-born", second)):
        notes = annotations_of(await owner.there.read())
        marks = {key: notes[key] for key in notes.keys() & {keys.CLUSTER_NAMESPACE, keys.SPACE_UID}}
        await owner.there.make(name, metadata={"annotations": marks})
    for name, owner, other in (("first-born", first, second), ("second-born", second, first)):
        await until(partial(owner.here.read, name))
        await other.writes()
        assert await other.here.gone(name)


async def _nothing_else_is_anywhere(*expected: tuple[Story, set[str]]) -> None:
    for story, present in expected:
        assert await _places(story.here) == {_place(story.here, name) for name in present}
    copies = {_place(story.there, name) for story, present in expected for name in present}
    assert await _places(expected[0][0].there) == copies


def _place(side: Side, name: str) -> tuple[str, str]:
    ref = side.ref(name)
    return ref.namespace, ref.name


async def _places(side: Side) -> set[tuple[str, str]]:
    """Return where instances are in a cluster, whoever's they are."""
    found = (await side.live.cluster.list(side.scene.offer.kind)).items
    return {identity_of(one) for one in found if "canary" not in name_of(one)}


async def _each_has_what_it_claims(first: Story, second: Story) -> None:
    """Their app namespaces have one name; what is in an object tells whose it is."""
    pairs = ((first.scene, second.scene), (second.scene, first.scene))
    for scene, stranger in pairs:
        for name in _claimed_by(scene):
            body = data(scene.space, "ConfigMap")
            await ends(scene)[1].make(CONFIG_MAP, name, metadata=_naming(stranger), **body)
    if not first.scene.offer.kind.namespaced:
        await _claims_wait_for_a_mapping(first, second)
    for scene, _ in pairs:
        there, _ = ends(scene)
        for name in _claimed_by(scene):
            await until(partial(there.holds, CONFIG_MAP, name, scene.space))
            await there.make(SECRET, name, **data(scene.space))
    for scene in filter(_comes_down, (first.scene, second.scene)):
        for name in _claimed_by(scene):
            await until(partial(ends(scene)[1].holds, SECRET, name, scene.space))
    await settled(first.made, second.made)
    for scene, stranger in pairs:
        await _is_with_nobody_else(scene, stranger)


def _comes_down(scene: Scene) -> bool:
    """Return whether claimed objects come down: no cluster-scoped instance asks for them (T4)."""
    return scene.offer.kind.namespaced


async def _is_with_nobody_else(scene: Scene, stranger: Scene) -> None:
    there, here = ends(scene)
    for kind in (SECRET, CONFIG_MAP):
        for end in (there, here):
            present = end is there or kind is CONFIG_MAP or _comes_down(scene)
            expected = {(end.namespace, name) for name in _claimed_by(scene) if present}
            assert await _holders(end.live, kind, scene.space) == expected
        assert await _holders(stranger.app, kind, scene.space) == set()
    copy = await ends(scene)[0].read(CONFIG_MAP, "creds")
    assert annotations_of(copy)[keys.RESOURCE_OWNER] == "Consumer"


def _claimed_by(scene: Scene) -> tuple[str, str]:
    return "creds", f"of-{scene.space}"


async def _holders(live: LiveCluster, kind: Kind, text: str) -> set[tuple[str, str]]:
    found = (await live.cluster.list(kind)).items
    return {identity_of(one) for one in found if get_text(one, "data", "key") in (text, b64(text))}


async def _claims_wait_for_a_mapping(*stories: Story) -> None:
    """A cluster-scoped claim asks for none, but one that is there serves it, too."""
    for story in stories:
        await story.writes()
        scene = story.scene
        assert not await mapped(scene)
        made = build(API_SERVICE_NAMESPACE, scene.app_namespace, namespace=scene.space, spec={})
        await scene.plane.cluster.create(made, API_SERVICE_NAMESPACE, manager="tests")


async def _each_follows_its_own(one: Scene, other: Scene) -> None:
    (there, here), (far_there, far_here) = ends(one), ends(other)
    await here.delete(CONFIG_MAP, "creds")
    await until(lambda: there.lacks(CONFIG_MAP, "creds"))
    await far_here.patch(CONFIG_MAP, "creds", **data("new", "ConfigMap"))
    await until(lambda: far_there.holds(CONFIG_MAP, "creds", "new"))
    assert not await far_there.is_orphan(CONFIG_MAP, "creds")
    if not _comes_down(one):
        return
    await there.patch(SECRET, "creds", **data("new"))
    await until(lambda: here.holds(SECRET, "creds", "new"))
    assert await far_here.holds(SECRET, "creds", other.space)
    await far_there.delete(SECRET, "creds")
    await until(lambda: far_here.lacks(SECRET, "creds"))
    assert await here.holds(SECRET, "creds", "new")


async def _has_rights_as_far_as(scope: str, scene: Scene) -> None:
    """In each service namespace, or in all namespaces by one binding and by no other."""
    export = await scene.export()
    assert get_text(export, "spec", "informerScope") == scope
    name = names.space_cluster_role(scene.space)
    assert bool(await scene.on_plane(CLUSTER_ROLE_BINDING, name)) is (scope == "Cluster")
    listed = await scene.plane.cluster.list(ROLE_BINDING, namespace=scene.service_namespace)
    in_home = [name_of(one) for one in listed.items]
    assert in_home == ([] if scope == "Cluster" else [names.BINDER])
