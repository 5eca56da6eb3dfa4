"""The example's PostgreSQL, its kinds on the control plane, and two users of it."""

import pytest
import pytest_asyncio

from tests.support import operated, postgresql
from tests.support.operated import Place, user


@pytest.fixture(scope="module")
def server():
    with postgresql.served() as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane):
    async with operated.offered(control_plane):
        yield control_plane


@pytest.fixture
def place(plane, server, tmp_path):
    return Place(plane, server, tmp_path / "data")


@pytest.fixture
async def shop(plane, server):
    async with user(plane, server) as one:
        yield one


@pytest.fixture
async def bank(plane, server):
    async with user(plane, server) as one:
        yield one
