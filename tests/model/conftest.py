"""Whole programs on models of API servers, on a clock that jumps."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from reconciler.blueprints import space as spaces
from reconciler.core.refs import NAMESPACE
from tests.kit.clusters import model_clusters
from tests.kit.virtual_time import VirtualLoop
from tests.kit.wire import Wires
from tests.support.bound_scenes import Managed, Scene, direct_scene, managed_scene
from tests.support.clusters import LiveCluster
from tests.support.konnector_scenes import wide_scene


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


@pytest_asyncio.fixture
async def models(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[LiveCluster, LiveCluster, Wires]]:
    async with model_clusters(tmp_path_factory.mktemp("clusters")) as made:
        yield made


@pytest.fixture
def control_plane(models: tuple[LiveCluster, LiveCluster, Wires]) -> LiveCluster:
    return models[0]


@pytest.fixture
def app_cluster(models: tuple[LiveCluster, LiveCluster, Wires]) -> LiveCluster:
    return models[1]


@pytest_asyncio.fixture
async def namespace(control_plane: LiveCluster) -> str:
    name = f"test-f{uuid.uuid4().hex[:11]}"
    await control_plane.cluster.create(spaces.namespace(name), NAMESPACE, manager="tests")
    return name


@pytest_asyncio.fixture
async def scene(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Scene]:
    async with direct_scene(control_plane, app_cluster, namespace) as scene:
        yield scene


@pytest_asyncio.fixture
async def wide(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Scene]:
    async with wide_scene(control_plane, app_cluster, namespace) as scene:
        yield scene


@pytest_asyncio.fixture
async def managed(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Managed]:
    async with managed_scene(control_plane, app_cluster, namespace) as managed:
        yield managed
