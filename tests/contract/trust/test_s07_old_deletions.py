"""S7: a claim that a restore brings back on its way out ends no copy of a later life, live.

Recipe of trust.md: the konnector is away while the claim is deleted, and its name has other data by
then. Each copy below says in another way that it is not that claim's.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.manifest import annotations_of, uid_of
from tests.support.bound_scenes import Scene, new, remove, until
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound
from tests.support.losses import deletes_since
from tests.support.settled import settled

BOUND = {keys.BOUND: keys.BOUND_VALUE}
LATER: Mapping[str, Mapping[str, str]] = {
    "an orphan": {**BOUND, keys.ORPHANED: "2026-01-01T00:00:00Z"},
    "of another claim": {**BOUND, keys.CLAIM_UID: "6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"},
    "without uid, where all have theirs": BOUND,
}


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
            await until(lambda: is_gone(scene))
            await until(lambda: is_orphan(scene))
            await settled(running)
            assert uid_of(await scene.copy() or {}) == uid_of(later)
            assert deletes_since(scene.plane, mark) == []


async def is_gone(scene: Scene) -> bool:
    return await scene.instance() is None


async def is_orphan(scene: Scene) -> bool:
    return keys.ORPHANED in annotations_of(await scene.copy() or {})
