"""Instances that are in no namespace: isolation Prefixed, ownership by annotation (D, H3)."""

from typing import Any

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, finalizers_of, labels_of, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, ObjectKey, Ref
from tests.kit.clusters import model_of
from tests.support import losses
from tests.support.bound_scenes import BIND, Scene, conditions, gone, remove, until
from tests.support.konnector_scenes import CLUSTER_WIDE, Story, equals, event, refusal, story

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
    async with story(wide, CLUSTER_WIDE) as account:
        await account.settle("first")
        await account.begin()
        await account.settle(metadata={"labels": {NAME: "a", "argocd.argoproj.io/instance": "x"}})
        status = "patch/status here orders"
        created = ["patch here orders", status, "patch here orders", "create there orders"]
        assert await account.writes() == created
        copy = await account.there.read()
        assert copy["metadata"]["name"] == f"{wide.space}-orders"
        assert labels_of(copy) == {NAME: "a"}
        assert annotations_of(copy) == {
            keys.BOUND: "true",
            keys.CLAIM_UID: uid_of(await account.here.read()),
            keys.CLUSTER_NAMESPACE: wide.space,
            keys.SPACE_UID: (await owner(wide))["uid"],
        }
        assert copy["metadata"]["ownerReferences"] == [await owner(wide)]
        assert finalizers_of(await account.here.read()) == [keys.SYNCER]
        assert await account.here.annotations() == {keys.BOUND: "true"}

        await account.begin()
        await account.here.patch({"spec": {"size": "2Gi"}})
        await until(lambda: equals(account.there.spec(), {"size": "2Gi"}))
        await account.there.patch({"spec": {"size": "9Gi"}})
        await until(lambda: equals(account.there.spec(), {"size": "2Gi"}))
        assert await account.writes() == ["patch there orders"] * 2
        assert (await account.there.read())["metadata"]["ownerReferences"] == [await owner(wide)]
        await _comes_back(account)

        await account.here.patch({"spec": {"size": None, "note": "n"}})
        await until(lambda: equals(account.there.spec(), {"note": "n"}))

        await account.there.hold(HOLD)
        await account.writes()
        await account.begin()
        await account.here.delete()
        await until(account.there.goes)
        assert await account.writes() == ["delete there orders"]
        assert finalizers_of(await account.here.read()) == [keys.SYNCER]
        await account.there.hold()
        await until(account.here.gone)
        assert await account.there.gone()


async def _comes_back(account: Story) -> None:
    """G 44: with all that a copy has, and without the status of the one that is gone."""
    before = await account.there.read()
    await account.scene.recreate_always()
    await account.begin()
    await account.there.delete()
    made = await until(account.there.read)
    for key in ("name", "labels", "annotations", "ownerReferences"):
        assert made["metadata"][key] == before["metadata"][key]
    assert uid_of(made) != uid_of(before)
    assert made["spec"] == before["spec"]
    await until(lambda: equals(account.here.status(), None))
    assert await account.writes() == ["patch/status here orders", "create there orders"]


async def test_what_was_released_outlives_its_space(wide: Scene) -> None:
    """It is owned while it is bound. The next space of the name gets it by its former uid alone."""
    async with story(wide, CLUSTER_WIDE) as account:
        await account.settle()
        space = await owner(wide)
        notes = {keys.BOUND: "true", keys.CLUSTER_NAMESPACE: wide.space, keys.ORPHANED: "then"}
        older = {"annotations": notes, "ownerReferences": [space]}  # copies had no uid of a space
        for owners in ([space], None):
            if not owners:
                await account.there.make("older", metadata=older)
            await wide.unbind()
            await until(lambda: is_released(account))
            if owners:
                await wide.own_crd(await wide.bind())
                await until(lambda: equals(is_released(account), False))
            copy = await account.there.read()
            assert copy["metadata"].get("ownerReferences") == owners
        await until(lambda: is_released(account, "older"))
        await remove(wide.plane, NAMESPACE, "", wide.space)
        await until(lambda: gone(wide.on_plane(NAMESPACE, wide.space, "")))
        await remove(wide.app, SECRET, BIND, wide.secret)
        for step in (wide.make_space, wide.request, wide.bind):
            await step()
        await account.here.make("older")
        await until(lambda: event(wide, "orders", "NameTaken"))
        taken = await until(lambda: event(wide, "older", "NameTaken"))
        line = f"kubectl annotate namespace {wide.space} {keys.CONFIRM_SPACE}={space['uid']} "
        assert line in taken["note"]
        assert await account.there.read() == copy
        assert annotations_of(await account.there.read("older"))[keys.SPACE_UID] == space["uid"]
        ref = Ref(wide.plane.name, NAMESPACE, "", wide.space)
        await losses.note(wide.plane, ref, keys.CONFIRM_SPACE, space["uid"])
        await until(lambda: equals(is_released(account), False), within=600)
        assert uid_of(await account.there.read()) == uid_of(copy)


async def is_released(account: Story, name: str = "orders") -> bool:
    return keys.RELEASED in await account.there.annotations(name)


async def test_a_copy_belongs_to_the_space_that_a_control_plane_set_back_has(wide: Scene) -> None:
    """Its owner was of a life that is no more: the API server deleted each copy at once."""
    async with story(wide, CLUSTER_WIDE) as account:
        await account.settle()
        store, key = model_of(wide.plane).store, ObjectKey("", wide.space)
        live = store.get(("", "namespaces"), key) or {}
        store.put(("", "namespaces"), key, {**live, "metadata": {**live["metadata"], "uid": "1"}})
        await wide.recreate_always()
        await account.here.make("later")
        made = await until(lambda: account.there.read("later"), within=600)
        assert made["metadata"]["ownerReferences"] == [{**await owner(wide), "uid": "1"}]


async def test_another_space_whose_name_begins_alike_is_left_alone(wide: Scene) -> None:
    """G 30, H3, golden 04/40: nothing of it is deleted or adopted, and no name is taken away."""
    async with story(wide, CLUSTER_WIDE) as account:
        await account.settle()
        other = f"{wide.space}-2"
        for name in ("2-foo", "2-bar"):
            bound = {keys.BOUND: "true"} if name == "2-foo" else {}
            annotations = {keys.CLUSTER_NAMESPACE: other, **bound}
            await account.there.make(name, metadata={"annotations": annotations})
        await account.begin()
        await account.here.patch({"metadata": marks(other)})
        assert await account.writes() == []
        assert (await account.there.annotations())[keys.CLUSTER_NAMESPACE] == wide.space
        assert await account.here.gone("2-foo")
        assert await account.here.gone("2-bar")

        await account.here.make("2-foo", spec={"size": "9Gi"})
        note = (await until(lambda: event(wide, "2-foo", "NameTaken")))["note"]
        assert f"{wide.space}-2-foo" in note
        assert keys.CONFIRM_SPACE not in note
        assert "2-foo" in await until(lambda: refusal(wide))
        assert await account.there.spec("2-foo") == {"size": "1Gi"}
        assert await account.writes() == ["patch/status here 2-foo"]
        assert conditions(await account.here.read("2-foo"))["Synced"]["reason"] == "NameTaken"
        await account.here.delete("2-foo")
        await until(lambda: account.here.gone("2-foo"))
        await until(lambda: equals(refusal(wide), ""))
        assert await account.there.spec("2-foo") == {"size": "1Gi"}


async def test_only_what_names_the_space_is_adopted(wide: Scene) -> None:
    """G 30-32, golden 04/41, 42: without the annotation it is somebody else's."""
    async with story(wide, CLUSTER_WIDE) as account:
        await account.settle("first")
        await account.begin()
        await account.there.make("plain")
        await account.there.make("bound", metadata={"annotations": {keys.BOUND: "true"}})
        owned = {**marks(wide.space), "ownerReferences": [await owner(wide)]}
        await account.there.make("marked", metadata=owned)
        await until(lambda: equals(account.here.annotations("marked"), {keys.BOUND: "true"}))
        adopted = await account.here.read("marked")
        assert finalizers_of(adopted) == [keys.SYNCER]
        assert "ownerReferences" not in adopted["metadata"]
        assert await account.writes() == [
            "create here marked",
            "patch here marked",
            "patch there marked",
        ]
        found = await account.there.annotations("marked")
        assert found == {keys.BOUND: "true", **owned["annotations"]}
        copy = await account.there.read("marked")
        assert copy["metadata"]["ownerReferences"] == owned["ownerReferences"]
        for name in ("plain", "bound"):
            assert await account.here.gone(name)
            assert not await account.there.gone(name)
        await account.here.delete("marked")
        await until(lambda: account.here.gone("marked"))
        assert await account.there.gone("marked")
