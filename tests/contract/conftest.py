"""The scenes of tests on real clusters."""

import pytest

from reconciler.web.outbound import Http
from tests.support.chromium import chromium
from tests.support.fault_proxy import FaultProxy
from tests.support.scene_fixtures import fleet, in_app, managed, on_plane, scene, wide

__all__ = ["fleet", "in_app", "managed", "on_plane", "scene", "wide"]


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


@pytest.fixture
async def proxy(control_plane):
    async with FaultProxy(control_plane.connection) as proxy:
        yield proxy


@pytest.fixture
async def http():
    async with Http() as http:
        yield http
