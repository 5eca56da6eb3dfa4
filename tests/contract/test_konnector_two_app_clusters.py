"""Two app clusters of one control plane, with all names alike (behaviours 3, golden 05)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

import pytest

from bind.settings import Settings
from reconciler.core.manifest import name_of
from tests.support.backend import USUAL
from tests.support.bound_scenes import Scene, until
from tests.support.clusters import LiveCluster
from tests.support.konnector_scenes import CLUSTER_WIDE, Story, at_home, equals, working
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
    home = f"dev-{unique}" if case.scope == "Namespaced" else ""
    apps = (app_cluster, second_app_cluster)
    async with offered(
        control_plane.cluster, *(app.cluster for app in apps), namespace=namespace, scope=case.scope
    ) as offer:
        one, other = (
            Scene(control_plane, app, offer, f"cluster-{unique}{end}", home)
            for app, end in zip(apps, ("", "-x"), strict=True)
        )
        async with at_home(one), at_home(other):
            yield one, other


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_neither_knows_of_the_other(scenes: tuple[Scene, Scene], case: Case) -> None:
    one, other = scenes
    async with one.backend(settings=case.settings), working(one) as first:
        await one.bound()
        await first.settle(spec={"size": "1Gi"})
        async with working(other) as second:
            await other.bound()
            await second.settle(spec={"size": "2Gi"})
            if case.scope == "Cluster":
                await first.here.make("x-orders")  # has the place of the other's copy
            await first.here.make("mine")
            await until(lambda: first.there.read("mine"))

            assert await first.there.spec() == {"size": "1Gi"}
            assert await second.there.spec() == {"size": "2Gi"}
            await _each_goes_its_way(first, second)

            await first.here.delete()
            await until(first.here.gone)
            assert await first.there.gone()
            await second.writes()
            assert await second.here.spec() == {"size": "4Gi"}
            assert await second.there.spec() == {"size": "4Gi"}
            found = (await other.app.cluster.list(other.offer.kind)).items
            assert "mine" not in {name_of(one) for one in found}


async def _each_goes_its_way(first: Story, second: Story) -> None:
    await second.here.patch({"spec": {"size": "4Gi"}})
    await until(lambda: equals(second.there.spec(), {"size": "4Gi"}))
    await second.there.patch({"status": {"phase": "Failed"}}, subresource="status")
    await until(lambda: equals(second.here.status(), {"phase": "Failed"}))
    await first.writes()
    assert await first.there.spec() == {"size": "1Gi"}
    assert await first.is_ready()
