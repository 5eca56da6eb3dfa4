"""Two app clusters of one control plane, with all names alike (behaviours 3, golden 05).

Nothing of one comes to the other: that is the law of random histories, in `test_histories`.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pytest

from bind.settings import Settings
from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, get_text, name_of
from reconciler.core.refs import CLUSTER_ROLE_BINDING, ROLE_BINDING
from tests.support.backend import USUAL
from tests.support.bound_scenes import Scene, at_home, until
from tests.support.clusters import LiveCluster
from tests.support.konnector_claims import mapped
from tests.support.konnector_scenes import (
    CLUSTER_WIDE,
    Story,
    equals,
    event,
    refusal,
    working,
)
from tests.support.offers import offered


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
        async with at_home(one), at_home(other):
            yield one, other


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_neither_knows_of_the_other(scenes: tuple[Scene, Scene], case: Case) -> None:
    one, other = scenes
    async with one.backend(settings=case.settings), working(one) as first:
        await one.bound()
        await first.settle(spec={"size": "1Gi"}, metadata=_naming(other))
        async with working(other) as second:
            await other.bound()
            await second.settle(spec={"size": "2Gi"}, metadata=_naming(one))
            if case.scope == "Cluster":
                await _a_taken_name_is_reported_to_one(first, second)
                assert not await mapped(one)
            await _is_in_its_space(first, {"size": "1Gi"})
            await _is_in_its_space(second, {"size": "2Gi"})
            await _each_has_what_is_born_in_its_space(first, second)
            for scene in scenes:
                await _has_rights_as_far_as(case.settings.consumer_scope, scene)


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


async def _has_rights_as_far_as(scope: str, scene: Scene) -> None:
    """In each service namespace, or in all namespaces by one binding and by no other."""
    export = await scene.export()
    assert get_text(export, "spec", "informerScope") == scope
    name = names.space_cluster_role(scene.space)
    assert bool(await scene.on_plane(CLUSTER_ROLE_BINDING, name)) is (scope == "Cluster")
    listed = await scene.plane.cluster.list(ROLE_BINDING, namespace=scene.service_namespace)
    in_home = [name_of(one) for one in listed.items]
    assert in_home == ([] if scope == "Cluster" else [names.BINDER])
