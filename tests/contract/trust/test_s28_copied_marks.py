"""S28: marks that were copied with a claim's manifest are words, on real API servers."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, uid_of
from reconciler.core.refs import Ref
from tests.contract.trust.test_t16_lost_copies import creates
from tests.support.bound_scenes import Scene, new, remove, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound
from tests.support.losses import confirm, lose, told_of
from tests.support.settled import settled


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
        await lose(app, Ref(app.name, kind, scene.app_namespace, "orders"))
        await remove(scene.plane, kind, scene.service_namespace, "orders")
        await copied(scene, "orders", marks)
        mark = scene.plane.audit.mark()
        async with konnector(scene.app.connection) as running:
            await until(lambda: told_of(scene, "orders", "RecreationHeld"))
            await settled(running)
            assert creates(scene, mark) == []
            await confirm(scene, keys.CONFIRM_RECREATE, scene.offer.name)
            await until(scene.is_marked)
