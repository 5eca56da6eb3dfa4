"""Whole programs on models of API servers, on a clock that jumps."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from klutchctl.sandbox.state import Role
from reconciler.blueprints import objects as spaces
from reconciler.core.refs import NAMESPACE
from tests.kit.clusters import live_model, model_clusters
from tests.kit.virtual_time import VirtualLoop
from tests.kit.wire import Wires
from tests.support.clusters import LiveCluster
from tests.support.offers import offered
from tests.support.osb_scenes import OsbScene, modelled
from tests.support.scene_fixtures import fleet, in_app, managed, on_plane, scene, wide

__all__ = ["fleet", "in_app", "managed", "on_plane", "scene", "wide"]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


@pytest.fixture
async def models(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[LiveCluster, LiveCluster, Wires]]:
    async with model_clusters(tmp_path_factory.mktemp("clusters")) as made:
        yield made


@pytest.fixture
def wires(models: tuple[LiveCluster, LiveCluster, Wires]) -> Wires:
    return models[2]


@pytest.fixture
async def osb(control_plane: LiveCluster, namespace: str) -> AsyncIterator[OsbScene]:
    async with modelled(control_plane, namespace) as scene:
        yield scene
    assert (scene.broker.inventory.doubles, scene.broker.violations) == ([], [])


@pytest.fixture
async def service(control_plane: LiveCluster, namespace: str) -> AsyncIterator[str]:
    async with offered(control_plane.cluster, namespace=namespace) as offer:
        yield offer.name


@pytest.fixture
def control_plane(models: tuple[LiveCluster, LiveCluster, Wires]) -> LiveCluster:
    return models[0]


@pytest.fixture
def app_cluster(models: tuple[LiveCluster, LiveCluster, Wires]) -> LiveCluster:
    return models[1]


@pytest.fixture
async def second_app_cluster(
    models: tuple[LiveCluster, LiveCluster, Wires],
) -> AsyncIterator[LiveCluster]:
    plane, _, wires = models
    async with live_model(wires, "app-2", Role.APP_CLUSTER, Path(plane.kubeconfig)) as app:
        yield app


@pytest.fixture
async def namespace(control_plane: LiveCluster) -> str:
    name = f"test-f{uuid.uuid4().hex[:11]}"
    await control_plane.cluster.create(spaces.namespace(name), NAMESPACE, manager="tests")
    return name
