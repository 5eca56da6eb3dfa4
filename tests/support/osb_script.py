"""A hostile Open Service Broker on loopback, as osb_broker.py scripts it.

    with scripted() as broker:
        broker.modes.asynchronous = frozenset({"provision", "bind"})
        broker.faults.add("bind", osb_faults.hangs(processed=True), times=1)
        ...
    assert broker.violations == [] and broker.inventory.is_empty

Serves in a thread of its own, so that tests may block; all attributes may be changed meanwhile.
"""

import asyncio
import contextlib
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from klutchctl.sandbox import credentials
from tests.support import osb_wire
from tests.support.fake_clock import settle
from tests.support.listener import bound_socket
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_wire import MUTATING, Asked, Members, Said

_CHUNK = b"a" * 65536


class ServedBroker(ScriptedBroker):
    """A scripted broker that listens. `peak` is how many requests it ever had at once."""

    def __init__(self, catalogue: Members | None = None, *, tls: Path | None = None) -> None:
        super().__init__(catalogue)
        self._bound = bound_socket(0)  # kept while nothing listens there
        self.port: int = self._bound.getsockname()[1]
        self.ca: bytes | None = None
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls, self.ca = _certified(tls)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.peak = 0
        self._open: Counter[str] = Counter()  # requests under way, by instance
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    @property
    def under_way(self) -> int:
        """How many requests are not answered yet."""
        return self._open.total()

    def start(self) -> None:
        """Serve, at the same port as before."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(ready),), daemon=True)
        self._thread.start()
        ready.result(10)

    def stop(self) -> None:
        """End all connections and refuse new ones; what it holds stays, and its port."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)
            self._thread = None
            self._bound = bound_socket(self.port)

    def close(self) -> None:
        """Stop, and give the port back."""
        self.stop()
        self._bound.close()

    async def _serve(self, ready: "Future[None]") -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        site = web.SockSite(runner, self._bound, ssl_context=self._tls)
        await site.start()
        ready.set_result(None)
        await self._stopping.wait()
        await runner.cleanup()
        await settle()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = osb_wire.asked(request.method, request.raw_path, request.headers, body)
        if asked is None:
            return web.json_response({"description": "there is nothing"}, status=404)
        with self._counted(asked):
            reply = self.answer(asked)
            if pause := self.modes.slow.get(asked.verb):
                await asyncio.sleep(pause)
            return await _sent(reply, request)

    @contextlib.contextmanager
    def _counted(self, asked: Asked) -> Iterator[None]:
        """Count what is under way; no platform has two changes of one instance there."""
        key = asked.instance if asked.verb in MUTATING else ""
        if key and self._open[key]:
            self.violations.append(f"{asked.method} {asked.path}: another is under way")
        self._open[key] += 1
        self.peak = max(self.peak, self._open.total())
        try:
            yield
        finally:
            self._open[key] -= 1


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


@contextlib.contextmanager
def scripted(
    catalogue: Members | None = None, *, tls: Path | None = None
) -> Iterator[ServedBroker]:
    """Run a broker with this catalogue; with `tls`, certified below that folder (`ca`)."""
    broker = ServedBroker(catalogue, tls=tls)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
