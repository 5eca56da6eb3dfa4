"""Servers on loopback for scripted brokers, each in a thread of its own, on a port it keeps."""

import asyncio
import contextlib
import ssl
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from klutchctl.sandbox import credentials
from tests.support.listener import ThreadedServer
from tests.support.osb_wire import Said

_CHUNK = b"a" * 65536


class LoopbackServer(ThreadedServer):
    """Serves what `exchanged` says. `peak` is how many requests it ever had at once.

    With `tls`, it is certified below that folder, by the authority `ca`.
    """

    def __init__(self, *, tls: Path | None = None) -> None:
        super().__init__()
        self.ca: bytes | None = None
        if tls is not None:
            self._tls, self.ca = _certified(tls)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.under_way = self.peak = 0

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
        self.peak = max(self.peak, self.under_way)
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


def _certified(folder: Path) -> tuple[ssl.SSLContext, bytes]:
    """Return a server's TLS, and the authority that certified it."""
    now = datetime.now(UTC)
    authority = credentials.authority("broker", now=now)
    pair = credentials.issue(authority, "broker", use=credentials.Use.SERVER, now=now)
    chain = folder / "broker.pem"
    chain.write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    return context, authority.certificate_pem
