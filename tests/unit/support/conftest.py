"""A small HTTP server, a proxy before it, and a client of the proxy."""

import aiohttp
import pytest
from aiohttp import web

from reconciler.kube.connection import Connection
from tests.support.fault_proxy import FaultProxy
from tests.unit.support.small_server import Server


@pytest.fixture
async def server():
    return Server()


@pytest.fixture
async def upstream(server):
    runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield Connection(name="here", server=f"http://{host}:{port}")
    await runner.cleanup()


@pytest.fixture
async def proxy(upstream):
    async with FaultProxy(upstream) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy):
    async with aiohttp.ClientSession(proxy.url) as session:
        yield session
