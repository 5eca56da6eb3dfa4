"""Servers on loopback for scripted brokers, each in a thread of its own, on a port it keeps."""

import asyncio
import contextlib
import ssl
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from aiohttp import web

from tests.support.listener import ThreadedServer
from tests.support.osb_wire import Said

_CHUNK = b"a" * 65536


class LoopbackServer(ThreadedServer):
    """Serves what `exchanged` says. `under_way` is how many requests it has now."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._tls = tls
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.under_way = 0

    @abstractmethod
    def exchanged(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[Said]:
        """Yield the answer to a request; the exchange lasts as long as the block."""

    def _runner(self) -> web.AppRunner:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with (
            self._counted(),
            self.exchanged(request.method, request.raw_path, request.headers, body) as said,
        ):
            return await _sent(said, request)

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1


async def _sent(reply: Said, request: web.Request) -> web.StreamResponse:
    match reply.way:
        case "hang":
            await asyncio.Event().wait()
        case "cut":
            assert request.transport is not None
            request.transport.abort()
        case "endless":
            return await _endless(reply, request)
    headers = {"Content-Type": "application/json", **reply.headers}
    return web.Response(body=reply.body, status=reply.status or 500, headers=headers)


async def _endless(reply: Said, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status)
    await response.prepare(request)
    await response.write(reply.body)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(_CHUNK)
            await asyncio.sleep(0)
    return response


S = TypeVar("S", bound=LoopbackServer)


@contextlib.contextmanager
def running(server: S) -> Iterator[S]:
    """Let a server listen for the length of the block."""
    try:
        server.start()
        yield server
    finally:
        server.close()
