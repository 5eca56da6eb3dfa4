"""Instances that others made, or control: providers, the original konnector, other objects."""

from functools import partial
from typing import Any

from reconciler.blueprints.objects import build
from reconciler.core import conditions, keys
from reconciler.core.manifest import annotations_of, finalizers_of, name_of, uid_of
from reconciler.core.refs import CONFIG_MAP
from tests.support.bound_scenes import Scene, until
from tests.support.composed import note_template
from tests.support.konnector_scenes import READY, Side, Story, equals, sides, story, working
from tests.support.losses import cause, confirm, says
from tests.support.settled import settled

HOLD = "provider.example/cleanup"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
BOUND = {keys.BOUND: "true"}


async def owner(side: Side) -> Any:
    """Return a reference to an object that is nowhere but on this side."""
    made = build(CONFIG_MAP, "owner", namespace=side.namespace, data={})
    live = await side.live.cluster.create(made, CONFIG_MAP, manager=side.who)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid_of(live)}


async def test_what_is_born_on_the_control_plane_comes_down_and_goes_from_here(
    scene: Scene,
) -> None:
    """G 33, 34, 56; golden 02/40, 41, 06/30, 31, with H5 mended: no owner, no finalizer; and T4."""
    async with story(scene) as account:
        await account.settle("first")
        metadata = {
            "labels": {"from": "provider", "app.kubernetes.io/name": "orders"},
            "annotations": {LAST_APPLIED: "{}", "note.example/x": "1"},
            "finalizers": [HOLD],
            "ownerReferences": [await owner(account.there)],
        }
        await account.begin()
        await account.there.make(metadata=metadata)
        await until(lambda: marked(account.there))
        await account.there.patch(READY, subresource="status")
        await until(account.is_ready)
        await until(lambda: equals(account.here.annotations(), BOUND))
        adopted = await account.here.read()
        assert adopted["spec"] == {"size": "1Gi"}
        assert adopted["metadata"]["labels"] == {"app.kubernetes.io/name": "orders"}
        assert finalizers_of(adopted) == [keys.SYNCER]
        assert "ownerReferences" not in adopted["metadata"]
        assert await account.writes() == [
            "create here orders",
            "patch here orders",
            "patch/status here orders",
            "patch there orders",
        ]

        await account.here.patch({"spec": {"size": "2Gi"}})
        await until(lambda: equals(account.there.spec(), {"size": "2Gi"}))

        await account.here.delete()
        await until(account.there.goes)
        await account.writes()  # it has looked at all that came of it
        assert finalizers_of(await account.here.read()) == [keys.SYNCER]
        await account.there.hold()
        await until(account.here.gone)
        await account.writes()
        assert await account.there.gone()
        assert await account.here.gone()
        await _what_goes_from_here_leaves_nothing(account)


async def _what_goes_from_here_leaves_nothing(account: Story) -> None:
    """G 56: neither of what came from there nor of what was made here."""
    await account.there.make("second")
    await until(lambda: account.here.read("second"))
    await until(lambda: equals(account.here.annotations("second"), BOUND))
    everything = await _names(account.here)
    assert everything == await _names(account.there)
    assert everything == {"first", "second"}
    for name in everything:
        await account.here.delete(name)
    for side in (account.here, account.there):
        await until(partial(_is_empty, side))


async def _is_empty(side: Side) -> bool:
    return not await _names(side)


async def _names(side: Side) -> set[str]:
    found = await side.live.cluster.list(side.scene.offer.kind, namespace=side.namespace)
    return {name_of(one) for one in found.items}


async def marked(side: Side) -> bool:
    return keys.BOUND in await side.annotations()


async def test_what_is_on_its_way_out_is_not_adopted(scene: Scene) -> None:
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await account.settle("first")
        here, there = sides(scene)
        await there.make(metadata={"finalizers": [HOLD]})
        await there.delete()
        await there.make("users")
        async with working(scene) as account:
            await until(lambda: here.read("users"))
            await account.writes()
            assert await here.gone()
            await there.hold()
            await until(there.gone)
            await account.writes()
            assert await here.gone()


async def test_the_originals_work_is_taken_over_without_a_change(scene: Scene) -> None:
    """H10, golden 02/20-23, 40: what it made, what it changed, and what it adopted."""
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await account.settle("first")
        here, there = sides(scene)
        await _as_the_original_leaves_them(here, there)
        names = ("made", "changed", "adopted")
        before = [await side.read(name) for name in names for side in (here, there)]
        async with working(scene) as account:
            # Each gets its claim's uid, and nothing else changes.
            pairs = [f"patch {side} {name}" for side in ("here", "there") for name in names]
            assert sorted(await account.writes()) == sorted(pairs)
            after = [await side.read(name) for name in names for side in (here, there)]
            for one, other in zip(before, after, strict=True):
                assert other["spec"] == one["spec"]
                assert other["metadata"]["generation"] == one["metadata"]["generation"]
                assert other["metadata"].get("labels") == one["metadata"].get("labels")
                assert finalizers_of(other) == finalizers_of(one)
                notes = {**annotations_of(other), keys.CLAIM_UID: ""}
                assert notes == {**annotations_of(one), **BOUND, keys.CLAIM_UID: ""}

            for name in ("made", "changed"):
                await here.patch({"spec": {"options": {"backup": None}}}, name)
                left: Any = {"size": "1Gi", "note": "n", "options": {"trace": True}}
                if name == "changed":
                    left |= {"note": "m", "resourceRef": {"name": "x"}}
                await until(partial(there.has_spec, left, name))
            assert (await there.labels("changed"))["crossplane.io/claim-name"] == "changed"
            assert finalizers_of(await there.read("changed")) == [HOLD]
            await there.hold(name="changed")
            for name in names:
                await here.delete(name)
                await until(partial(here.gone, name))
                assert await there.gone(name)


async def _as_the_original_leaves_them(here: Side, there: Side) -> None:
    held = {"finalizers": [keys.SYNCER], "annotations": {**BOUND, LAST_APPLIED: "{}"}}
    labels = {"team": "a", "app.kubernetes.io/managed-by": "argocd"}
    marked = {"annotations": held["annotations"], "labels": labels}
    spec = {"size": "1Gi", "note": "n", "options": {"backup": {"daily": True}, "trace": True}}
    for name in ("made", "changed"):
        await here.make(name, metadata={**held, "labels": labels}, spec=spec)
        await there.make(name, metadata=marked, spec=spec, manager="konnector")
    await here.patch({"spec": {"note": "m"}}, "changed")
    await there.patch(
        {
            "metadata": {"labels": {"crossplane.io/claim-name": "changed"}, "finalizers": [HOLD]},
            "spec": {"resourceRef": {"name": "x"}},
        },
        "changed",
    )
    whole = await there.read("changed")
    del whole["metadata"]["managedFields"]
    body = {**whole, "spec": {**spec, "note": "m"}}
    ref = there.ref("changed")
    await there.live.cluster.apply(body, ref.kind, manager=keys.MANAGER_KONNECTOR, force=True)
    await there.make("adopted", metadata={"labels": {"from": "provider"}})
    adopted = {"labels": {"from": "provider"}, "annotations": BOUND, "finalizers": [keys.SYNCER]}
    await here.make("adopted", metadata=adopted, manager="konnector")


PART = (conditions.DELETES_ALLOWED, conditions.PART_OF_SERVICE.reason)
MASS = (conditions.DELETES_ALLOWED, conditions.MASS_DELETION.reason)


async def adopts_controlled(scene: Scene, value: str | None) -> None:
    """Write the annotation of the template, and wait until the export says the same."""
    await note_template(scene, {keys.ADOPT_CONTROLLED: value})

    async def export_says() -> bool:
        return annotations_of(await scene.export()).get(keys.ADOPT_CONTROLLED) == value

    await until(export_says)


async def is_adopted(account: Story, name: str) -> bool:
    live = await account.here.read(name)
    return live is not None and keys.BOUND in annotations_of(live)


async def test_the_template_lets_parts_be_adopted_and_what_was_is_kept(scene: Scene) -> None:
    async with story(scene) as account:
        await account.settle("first")
        await adopts_controlled(scene, "true")
        controller = {**await owner(account.there), "controller": True}
        await account.there.make("nested", metadata={"ownerReferences": [controller]})
        await until(partial(is_adopted, account, "nested"))
        assert await cause(scene, conditions.DELETES_ALLOWED) == ""

        await adopts_controlled(scene, None)
        await until(lambda: says(scene, *PART))
        await account.here.delete("nested")
        await until(lambda: says(scene, *MASS))
        await settled(account.made)
        assert not await account.there.goes("nested")
        await account.here.delete("first")
        await until(partial(account.here.gone, "first"))
        await confirm(scene, keys.CONFIRM_MASS_DELETE)
        await until(partial(account.there.gone, "nested"))
        await until(partial(account.here.gone, "nested"))
