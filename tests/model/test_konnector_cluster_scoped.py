"""Instances that are in no namespace: isolation Prefixed, ownership by annotation (D, H3)."""

from typing import Any

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, finalizers_of, labels_of, uid_of
from reconciler.core.refs import NAMESPACE
from tests.support.bound_scenes import Scene, until
from tests.support.konnector_scenes import (
    CLUSTER_WIDE,
    Story,
    equals,
    event,
    refusal,
    story,
)

HOLD = "provider.example/cleanup"
NAME = "app.kubernetes.io/name"


def marks(space: str) -> dict[str, Any]:
    return {"annotations": {keys.CLUSTER_NAMESPACE: space}}


async def owner(scene: Scene) -> Any:
    """Return the reference that has objects go with the space."""
    space = await scene.on_plane(NAMESPACE, scene.space)
    return {"apiVersion": "v1", "kind": "Namespace", "name": scene.space, "uid": uid_of(space)}


async def test_a_copy_has_prefix_mark_and_owner_and_costs_what_it_must(wide: Scene) -> None:
    """G 28, 29, 42; F.3; golden 04/30-32, 50."""
    async with story(wide, CLUSTER_WIDE) as told:
        await told.settle("first")
        await told.begin()
        metadata = {"labels": {NAME: "a", "argocd.argoproj.io/instance": "x"}}
        await told.settle(metadata=metadata)
        created = [*2 * ["patch here orders"], "patch/status here orders", "create there orders"]
        assert await told.writes() == created
        copy = await told.there.read()
        assert copy["metadata"]["name"] == f"{wide.space}-orders"
        assert labels_of(copy) == {NAME: "a"}
        assert annotations_of(copy) == {
            keys.BOUND: "true",
            keys.CLUSTER_NAMESPACE: wide.space,
        }
        assert copy["metadata"]["ownerReferences"] == [await owner(wide)]
        assert finalizers_of(await told.here.read()) == [keys.SYNCER]
        assert await told.here.annotations() == {keys.BOUND: "true"}

        await told.begin()
        await told.here.patch({"spec": {"size": "2Gi"}})
        await until(lambda: equals(told.there.spec(), {"size": "2Gi"}))
        await told.there.patch({"spec": {"size": "9Gi"}})
        await until(lambda: equals(told.there.spec(), {"size": "2Gi"}))
        assert await told.writes() == ["patch there orders"] * 2
        assert (await told.there.read())["metadata"]["ownerReferences"] == [await owner(wide)]
        await _comes_back(told)

        await told.here.patch({"spec": {"size": None, "note": "n"}})
        await until(lambda: equals(told.there.spec(), {"note": "n"}))

        await told.there.hold(HOLD)
        await told.writes()
        await told.begin()
        await told.here.delete()
        await until(told.there.goes)
        assert await told.writes() == ["delete there orders"]
        assert finalizers_of(await told.here.read()) == [keys.SYNCER]
        await told.there.hold()
        await until(told.here.gone)
        assert await told.there.gone()


async def _comes_back(told: Story) -> None:
    """G 44: with all that a copy has, and without the status of the one that is gone."""
    before = await told.there.read()
    await told.begin()
    await told.there.delete()
    made = await until(told.there.read)
    for key in ("name", "labels", "annotations", "ownerReferences"):
        assert made["metadata"][key] == before["metadata"][key]
    assert uid_of(made) != uid_of(before)
    assert made["spec"] == before["spec"]
    await until(lambda: equals(told.here.status(), None))
    assert await told.writes() == ["patch/status here orders", "create there orders"]


async def test_another_space_whose_name_begins_alike_is_left_alone(wide: Scene) -> None:
    """G 30, H3, golden 04/40: nothing of it is deleted or adopted, and no name is taken away."""
    async with story(wide, CLUSTER_WIDE) as told:
        await told.settle()
        other = f"{wide.space}-2"
        for name in ("2-foo", "2-bar"):
            bound = {keys.BOUND: "true"} if name == "2-foo" else {}
            annotations = {keys.CLUSTER_NAMESPACE: other, **bound}
            await told.there.make(name, metadata={"annotations": annotations})
        await told.begin()
        await told.here.patch({"metadata": marks(other)})
        assert await told.writes() == []
        assert (await told.there.annotations())[keys.CLUSTER_NAMESPACE] == wide.space
        assert await told.here.gone("2-foo")
        assert await told.here.gone("2-bar")

        await told.here.make("2-foo", spec={"size": "9Gi"})
        taken = await until(lambda: event(wide, "2-foo", "NameTaken"))
        assert f"{wide.space}-2-foo" in taken["note"]
        assert "2-foo" in await until(lambda: refusal(wide))
        assert await told.there.spec("2-foo") == {"size": "1Gi"}
        assert await told.writes() == []
        await told.here.delete("2-foo")
        await until(lambda: told.here.gone("2-foo"))
        await until(lambda: equals(refusal(wide), ""))
        assert await told.there.spec("2-foo") == {"size": "1Gi"}


async def test_only_what_names_the_space_is_adopted(wide: Scene) -> None:
    """G 30-32, golden 04/41, 42: without the annotation it is somebody else's."""
    async with story(wide, CLUSTER_WIDE) as told:
        await told.settle("first")
        await told.begin()
        await told.there.make("plain")
        await told.there.make("bound", metadata={"annotations": {keys.BOUND: "true"}})
        owned = {**marks(wide.space), "ownerReferences": [await owner(wide)]}
        await told.there.make("marked", metadata=owned)
        adopted = await until(lambda: told.here.read("marked"))
        assert annotations_of(adopted) == {keys.BOUND: "true"}
        assert finalizers_of(adopted) == [keys.SYNCER]
        assert "ownerReferences" not in adopted["metadata"]
        assert await told.writes() == [
            "create here marked",
            "patch there marked",
        ]
        assert await told.there.annotations("marked") == {
            keys.BOUND: "true",
            keys.CLUSTER_NAMESPACE: wide.space,
        }
        assert (await told.there.read("marked"))["metadata"]["ownerReferences"] == [
            await owner(wide)
        ]
        for name in ("plain", "bound"):
            assert await told.here.gone(name)
            assert not await told.there.gone(name)
        await told.here.delete("marked")
        await until(lambda: told.here.gone("marked"))
        assert await told.there.gone("marked")
