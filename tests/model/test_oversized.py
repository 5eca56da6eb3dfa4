"""S11: objects that are too large to be read hide no other one, and nothing acts on them."""

import asyncio
from typing import Any, Final

import pytest

from konnector import paired_sync
from reconciler.core import keys
from reconciler.core.errors import Oversized
from reconciler.core.manifest import Manifest, annotations_of, finalizers_of, uid_of
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.client import KubeCluster
from reconciler.kube.informer import Informer
from reconciler.kube.limits import Budget, Limits
from tests.kit.wire import Wires
from tests.support.bound_scenes import Scene, until
from tests.support.churn import following
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector_scenes import Story, event, story, working
from tests.support.settled import settled

NARROW: Final = Limits(max_memory=100_000)
WIDE: Final = {f"k{n:04}": "" for n in range(1_500)}
LARGE: Final[dict[str, Any]] = {"metadata": {"annotations": {"example.org/large": "x" * 60_000}}}
SMALL: Final = {"metadata": {"annotations": {"example.org/large": None}}}
# Which of 40 objects are wide
PLACES: Final = {
    "the first": {0},
    "two in a row": {1, 2},
    "the last": {39},
    "many": {0, 5, 6, 7, 20, 38, 39},
}


async def filled(live: LiveCluster, namespace: str, wide: set[int]) -> set[str]:
    for n in range(40):
        data = WIDE if n in wide else {"x": str(n)}
        body: Manifest = {"metadata": {"name": f"n{n:02}", "namespace": namespace}, "data": data}
        await live.cluster.create(body, CONFIG_MAP, manager="tests")
    return {f"n{n:02}" for n in wide}


@pytest.mark.parametrize("wide", PLACES.values(), ids=PLACES)
async def test_a_wide_object_is_known_by_its_name_and_the_others_are_read(
    control_plane: LiveCluster, wires: Wires, namespace: str, wide: set[int]
) -> None:
    large = await filled(control_plane, namespace, wide)
    async with KubeCluster(control_plane.connection, limits=NARROW) as cluster:
        informer = Informer(cluster, CONFIG_MAP, namespace=namespace)
        before = len(wires.calls)
        async with following(informer):
            await asyncio.wait_for(informer.wait_synced(), 20)
            store = informer.store
            assert set(store.names(namespace)) == {f"n{n:02}" for n in range(40)}
            assert {one for one in store.names(namespace) if store.stub(namespace, one)} == large
            assert store.get(namespace, "n30") is not None
            assert len(wires.calls) - before < 12 + 6 * len(wide), "no call for each object"

            ref = (await control_plane.cluster.list(CONFIG_MAP, namespace=namespace)).items[30]
            await control_plane.cluster.apply(
                {**ref, "metadata": {"name": "n30", "namespace": namespace}, "data": WIDE},
                CONFIG_MAP,
                manager="tests",
                force=True,
            )
            await eventually(lambda: store.stub(namespace, "n30"))
            with pytest.raises(Oversized, match="n30"):
                store.get(namespace, "n30")
        with pytest.raises(Oversized, match=r"n\d\d: .*too large"):
            await cluster.list(CONFIG_MAP, namespace=namespace)
        names = (await cluster.list(CONFIG_MAP, namespace=namespace, metadata_only=True)).items
        assert len(names) == 40


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_sync, "OF_CLAIMS", Budget(object=50_000, total=2**30))


async def said(account: Story, name: str, side: str) -> bool:
    found: Any = await event(account.scene, name, "TooLarge")
    return found is not None and f"in the {side}" in found["note"]


async def others_go_on(account: Story, name: str) -> None:
    """Wait until another claim made a whole round trip."""
    await account.settle(name, spec={"size": "3Gi"})


@pytest.mark.usefixtures("tight")
async def test_a_claim_that_is_made_too_large_stays_below(scene: Scene) -> None:
    async with story(scene) as account:
        await account.here.make("wide", **LARGE)
        await until(lambda: said(account, "wide", "app cluster"))
        await others_go_on(account, "other")
        await settled(account.made)
        assert await account.there.gone("wide")
        assert finalizers_of(await account.here.read("wide")) == []

        await account.here.patch(SMALL, "wide")
        await until(lambda: account.there.has_spec({"size": "1Gi"}, "wide"))


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("restarted", [False, True], ids=["at work", "restarted"])
async def test_a_claim_that_becomes_too_large_changes_nothing_above(
    scene: Scene, *, restarted: bool
) -> None:
    async with story(scene) as account:
        await account.settle()
        copy = await account.there.read()
        await account.here.patch({**LARGE, "spec": {"size": "9Gi"}})
        await until(lambda: said(account, "orders", "app cluster"))
        await others_go_on(account, "other")
        if not restarted:
            await account.here.delete()
            await settled(account.made)
            await unchanged(account, copy)
            return
    async with scene.backend(), working(scene) as account:
        await others_go_on(account, "another")
        await settled(account.made)
        await unchanged(account, copy)
        await account.here.patch(SMALL)
        await until(lambda: account.there.has_spec({"size": "9Gi"}))


@pytest.mark.usefixtures("tight")
async def test_a_copy_that_becomes_too_large_is_neither_lost_nor_written(scene: Scene) -> None:
    async with story(scene) as account:
        await account.settle()
        await account.there.patch(LARGE)
        await until(lambda: said(account, "orders", "control plane"))
        copy = await account.there.read()
        await account.here.patch({"spec": {"size": "9Gi"}})
        await others_go_on(account, "other")
        await account.here.delete()
        await settled(account.made)
        await unchanged(account, copy)
        assert await account.here.status() == {"phase": "Ready"}

        await account.there.patch(SMALL)
        await until(lambda: account.there.goes())


async def unchanged(account: Story, copy: Any) -> None:
    now = await account.there.read()
    assert (uid_of(now), now["spec"]) == (uid_of(copy), copy["spec"])
    assert "deletionTimestamp" not in now["metadata"]
    assert keys.ORPHANED not in annotations_of(now)
    assert not await account.here.gone()
