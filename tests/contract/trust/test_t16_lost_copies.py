"""T16, S6, S7, S27, S28: no new, empty service for a lost one, and nothing of a former life, live.

What was bound and lost its copy is held, alone as with its kind or its service namespace. A claim
that a restore brings back on its way out ends no copy of a later life; recipe of trust.md: the
konnector is away while the claim is deleted, and its name has other data by then. An app namespace
gets nothing of a former one of its name; marks that were copied with a manifest are words.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, uid_of
from reconciler.core.refs import CRD, NAMESPACE, Ref
from tests.support import losses
from tests.support.bound_scenes import Scene, gone, new, read, remove, served, until
from tests.support.eventually import eventually
from tests.support.konnector import AGENT, konnector
from tests.support.konnector_claims import bound, is_idle
from tests.support.made_again import assert_nothing_passes, give, make_again, use_names, used
from tests.support.offers import define_again
from tests.support.settled import settled

HELD = ("RecreationAllowed", "RecreationHeld")
BOUND = {keys.BOUND: keys.BOUND_VALUE}
LATER: Mapping[str, Mapping[str, str]] = {
    "an orphan": {**BOUND, keys.ORPHANED: "2026-01-01T00:00:00Z"},
    "of another claim": {**BOUND, keys.CLAIM_UID: "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"},
    "without uid, where all have theirs": BOUND,
}


def creates(scene: Scene, mark: int) -> list[str]:
    """Return the copies that konnectors asked to be made."""
    found = scene.plane.audit.writes_since(mark, namespace=scene.service_namespace)
    return [one.name for one in found if one.verb == "create" and AGENT in one.agent]


async def test_a_control_plane_restored_without_copies_gets_no_new_ones(scene: Scene) -> None:
    many, lost = losses.Many(scene, 7), 4
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            await many.make("orders")
        for name in many.names[:lost]:
            await many.lose_copy(name)
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as made:
            await until(lambda: losses.says(scene, *HELD))
            assert await until(lambda: losses.reported(scene, "RecreationHeld"))
            for name in many.names[:lost]:
                await until(partial(losses.reported_of, scene, name, "RecreationHeld"))
            await eventually(lambda: is_idle(made))
            assert creates(scene, mark) == []
            assert losses.measured(made, "klutch_held_writes_total", verb="create") >= lost
            await losses.confirm(scene, keys.CONFIRM_RECREATE, "others.shop.example")
            await eventually(lambda: is_idle(made))
            assert creates(scene, mark) == []
            await losses.confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
            await until(lambda: many.are_there("orders"))
            await until(lambda: losses.says(scene, "RecreationAllowed", ""))


async def its_kind(scene: Scene) -> None:
    """Make the CRD anew, as `kubectl replace --force` does."""
    plane, name = scene.plane, scene.offer.name
    await remove(plane, CRD, "", name)
    await until(lambda: gone(read(plane, CRD, "", name)))
    await define_again(plane.cluster, scene.offer)
    await until(lambda: served(plane, scene.offer.kind))


async def its_namespace(scene: Scene) -> None:
    plane, name = scene.plane, scene.service_namespace
    was = uid_of(await read(plane, NAMESPACE, "", name))
    await remove(plane, NAMESPACE, "", name)

    async def is_another() -> bool:
        return uid_of(await read(plane, NAMESPACE, "", name) or {}) not in ("", was)

    await until(is_another)


async def itself(scene: Scene) -> None:
    await remove(scene.plane, scene.offer.kind, scene.service_namespace, "orders")


LOSSES: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "with its kind": its_kind,
    "with its namespace": its_namespace,
    "alone": itself,
}


@pytest.mark.parametrize("how", LOSSES)
async def test_the_only_instance_of_a_kind_is_not_made_anew_unasked(scene: Scene, how: str) -> None:
    async with scene.backend(), konnector(scene.app.connection) as running:
        await bound(scene)
        was, mark = uid_of(await scene.copy()), scene.plane.audit.mark()
        await LOSSES[how](scene)
        await until(lambda: losses.reported_of(scene, "orders", "RecreationHeld"))
        await settled(running)
        assert creates(scene, mark) == []
        await scene.create_instance("others", size="1Gi")
        await until(lambda: scene.is_marked("others"))
        assert (await scene.copy(), len(creates(scene, mark))) == (None, 1)
        await losses.confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
        await until(scene.is_marked)
        assert uid_of(await scene.copy()) != was


@pytest.mark.parametrize("case", LATER)
async def test_an_old_deletion_ends_no_copy_of_a_later_life(scene: Scene, case: str) -> None:
    kind = scene.offer.kind
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            mapping = await scene.on_plane(API_SERVICE_NAMESPACE, scene.app_namespace)
            assert keys.UIDS_SINCE in annotations_of(mapping)
        await remove(scene.app, kind, scene.app_namespace, "orders")
        await remove(scene.plane, kind, scene.service_namespace, "orders")
        made: Any = scene.offer.instance("orders", namespace=scene.service_namespace, spec={})
        metadata = {**made["metadata"], "annotations": LATER[case]}
        later = await new(scene.plane, {**made, "metadata": metadata}, kind, manager="restore")
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as running:
            await until(lambda: gone(scene.instance()))
            await until(lambda: is_orphan(scene))
            await settled(running)
            assert uid_of(await scene.copy() or {}) == uid_of(later)
            assert losses.deletes_since(scene.plane, mark) == []


async def is_orphan(scene: Scene) -> bool:
    return keys.ORPHANED in annotations_of(await scene.copy() or {})


async def test_a_namespace_that_is_made_again_gets_nothing_unasked(scene: Scene) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await used(scene)
        await make_again(scene)
        await use_names(scene)
        async with konnector(scene.app.connection) as running:
            await assert_nothing_passes(scene, running)
            await give(scene)


async def copied(scene: Scene, name: str, marks: Mapping[str, str]) -> None:
    """Apply the manifest of a claim under another name, with its marks."""
    made: Any = scene.offer.instance(name, namespace=scene.app_namespace, spec={"size": "1Gi"})
    made["metadata"] |= {"annotations": dict(marks), "finalizers": [keys.SYNCER]}
    await new(scene.app, made, scene.offer.kind, manager="developer")


@pytest.mark.parametrize("case", ["beside it", "of a copied one", "while nobody looks"])
async def test_a_manifest_that_was_copied_with_its_marks_is_served(scene: Scene, case: str) -> None:
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            first, marks = uid_of(await scene.copy()), annotations_of(await scene.instance())
            if case == "of a copied one":
                await copied(scene, "others", marks)
                await until(lambda: scene.is_marked("others"))
                marks = annotations_of(await scene.instance("others"))
            if case != "while nobody looks":
                await copied(scene, "thirds", marks)
                await until(lambda: scene.is_marked("thirds"))
        if case == "while nobody looks":
            await copied(scene, "thirds", marks)
        async with konnector(scene.app.connection):
            await until(lambda: scene.is_marked("thirds"))
        assert uid_of(await scene.copy()) == first != uid_of(await scene.copy("thirds"))


async def test_one_that_a_restore_brings_is_held(scene: Scene) -> None:
    app, kind = scene.app.cluster, scene.offer.kind
    async with scene.backend():
        async with konnector(scene.app.connection):
            await bound(scene)
            marks = annotations_of(await scene.instance())
        await losses.lose(app, Ref(app.name, kind, scene.app_namespace, "orders"))
        await remove(scene.plane, kind, scene.service_namespace, "orders")
        await copied(scene, "orders", marks)
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as running:
            await until(lambda: losses.reported_of(scene, "orders", "RecreationHeld"))
            await settled(running)
            assert creates(scene, mark) == []
            await losses.confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
            await until(scene.is_marked)
