"""Fixtures that tests on models and on real clusters share."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from reconciler.core.errors import AlreadyExists
from reconciler.core.refs import NAMESPACE
from reconciler.fleet.values import Access, Fleet
from tests.support import fleets
from tests.support.bound_scenes import Managed, Scene, direct_scene, managed_scene
from tests.support.clusters import LiveCluster
from tests.support.observing import BIND, Hand
from tests.support.wire_objects import MANAGER


@pytest.fixture
async def on_plane(control_plane: LiveCluster) -> AsyncIterator[Hand]:
    hand = Hand(control_plane, [])
    yield hand
    await hand.clean()


@pytest.fixture
async def in_app(app_cluster: LiveCluster) -> AsyncIterator[Hand]:
    """Objects that a test makes by hand in the app cluster, which has namespace klutch-bind."""
    with contextlib.suppress(AlreadyExists):
        await app_cluster.cluster.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BIND}},
            NAMESPACE,
            manager=MANAGER,
        )
    hand = Hand(app_cluster, [])
    yield hand
    await hand.clean()


@pytest.fixture
def fleet(control_plane: LiveCluster, app_cluster: LiveCluster) -> Fleet:
    plane = replace(fleets.control_plane(), access=Access(context=control_plane.context))
    app = replace(fleets.app_cluster(), access=Access(context=app_cluster.context))
    made = fleets.fleet(control_planes=[plane], clusters=[app])
    return replace(made, name=f"fleet-{uuid.uuid4().hex[:8]}")


@pytest.fixture
async def scene(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Scene]:
    async with direct_scene(control_plane, app_cluster, namespace) as scene:
        yield scene


@pytest.fixture
async def wide(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Scene]:
    """As `scene`, of a service whose instances are cluster-scoped."""
    async with direct_scene(control_plane, app_cluster, namespace, scope="Cluster") as scene:
        yield scene


@pytest.fixture
async def managed(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Managed]:
    async with managed_scene(control_plane, app_cluster, namespace) as managed:
        yield managed
