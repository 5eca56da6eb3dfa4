"""U3: an APIServiceBinding that is deleted plainly is released: nothing is lost or stuck."""

from functools import partial

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, finalizers_of
from reconciler.core.refs import SECRET
from tests.support.bound_scenes import ACCEPTED, Scene, conditions, gone, says, until
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, data, is_idle
from tests.support.konnector_scenes import sides, warns


async def freed(scene: Scene, name: str = "orders") -> bool:
    return keys.SYNCER not in finalizers_of(await scene.instance(name))


async def test_a_plain_deletion_is_a_release(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, ACCEPTED)
        await there.make(SECRET, "creds", **data("one"))
        await until(lambda: here.holds(SECRET, "creds", "one"))
        await scene.create_instance("second", size="1Gi")
        await until(lambda: scene.copy("second"))
        before = await scene.copy()
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        for name in ("orders", "second"):
            await until(partial(freed, scene, name))
            notes = annotations_of(await scene.copy(name))
            assert keys.RELEASED in notes
            assert keys.BOUND not in notes
            said = conditions(await scene.instance(name))["Synced"]
            assert (said["status"], said["reason"]) == ("False", "BindingReleased")
        await until(lambda: warns(scene))
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        # A developer can delete what is left; neither data nor credentials go along.
        mine, theirs = sides(scene)
        await mine.delete("second")
        await until(lambda: mine.gone("second"))
        await eventually(lambda: is_idle(made))
        assert not await theirs.goes("second")
        assert await here.holds(SECRET, "creds", "one")

        # Bound again, it goes on with the same service.
        await scene.bind(ACCEPTED)
        await until(lambda: says(scene.binding(), "Connected"))
        await mine.patch({"spec": {"size": "2Gi"}})
        await until(lambda: theirs.has_spec({"size": "2Gi"}))
        copy = await scene.copy()
        assert copy["metadata"]["uid"] == before["metadata"]["uid"]
        assert keys.RELEASED not in annotations_of(copy)
        assert "Synced" not in conditions(await scene.instance())
        assert not await warns(scene)


async def test_what_was_deleted_while_nobody_looked_is_freed_at_the_start(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene, ACCEPTED)
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection):
            await until(lambda: freed(scene))
        deletes = [one for one in scene.plane.audit.writes_since(mark) if one.verb == "delete"]
        assert [one for one in deletes if one.agent.startswith("konnector")] == []
        assert await scene.copy()
