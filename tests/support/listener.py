"""A server on loopback that owns its connections: once closed, nothing of it is left."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Literal, Self, TypeAlias

from aiohttp import web

from tests.support.fake_clock import settle

How: TypeAlias = Literal["fin", "rst"]
Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_LINGER_ZERO = struct.pack("ii", 1, 0)


def hang_up(writer: asyncio.StreamWriter, how: How) -> None:
    """End a connection: "fin" sends what is buffered and says goodbye, "rst" does neither."""
    if how == "fin":
        writer.close()
        return
    # Closing a socket that does not linger is what makes the kernel send a reset.
    with contextlib.suppress(OSError, AttributeError):  # closed already; with TLS, nothing is left
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    writer.transport.abort()


async def let_go(writer: asyncio.StreamWriter) -> None:
    """Close a connection whatever its state, and wait until its socket is gone."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def bound_socket(port: int) -> socket.socket:
    """Return a socket at a port, which takes no connections before it is told to listen."""
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", port))
    except BaseException:
        made.close()
        raise
    return made


async def ended(runner: web.AppRunner, bound: socket.socket) -> None:
    """End a server of aiohttp that listens at a socket, and all that it has accepted.

    Not by `cleanup` alone: what was accepted in the turn before a server is closed stays open then
    (CPython 3.11 to 3.13), until whichever test runs when it is collected fails of it.
    """
    asyncio.get_running_loop().remove_reader(bound)
    await settle()
    await runner.cleanup()


class ThreadedServer(ABC):
    """A server of aiohttp on a thread of its own, which keeps its port while it is stopped."""

    def __init__(self) -> None:
        self._bound = bound_socket(0)
        self.port: int = self._bound.getsockname()[1]
        self._tls: ssl.SSLContext | None = None
        self._connections: set[asyncio.Transport] = set()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    @abstractmethod
    def _runner(self) -> web.AppRunner:
        """Return the application, ready to run."""

    def start(self) -> None:
        """Serve, on the same port as before."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(ready),), daemon=True)
        self._thread.start()
        ready.result(10)

    def stop(self) -> None:
        """End all connections and refuse new ones; nobody else gets the port."""
        if self._thread is not None:
            self._stop()
            self._thread.join(10)
            self._thread = None
            self._bound = bound_socket(self.port)

    def close(self) -> None:
        """Stop, and give the port back."""
        self.stop()
        self._bound.close()

    async def _serve(self, ready: Future[None]) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._stop = partial(loop.call_soon_threadsafe, stop.set)
        runner = self._runner()
        await runner.setup()
        await web.SockSite(runner, self._bound, ssl_context=self._tls).start()
        ready.set_result(None)
        await stop.wait()
        await ended(runner, self._bound)
        for connection in self._connections:  # over TLS, a peer may not say goodbye for long
            connection.abort()
        await settle()


class Listener:
    """Calls `serve` for each connection, in a task of its own.

    `serve` may leave with an OSError when its peer does. Any other exception is a defect of a
    test or of the proxy, and comes out of `close`.
    """

    def __init__(self, serve: Serve, *, tls: ssl.SSLContext | None = None) -> None:
        self._serve, self._tls = serve, tls
        self._server: asyncio.Server | None = None
        self._bound: socket.socket | None = None  # to the port, while it is refused
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._defects: list[BaseException] = []
        self.port = 0
        self.accepted = 0

    async def accept(self) -> None:
        """Take connections; on a free port at first, on the same one after `refuse`."""
        bound, self._bound = self._bound or bound_socket(0), None
        self._server = await asyncio.start_server(
            self._connected,
            sock=bound,
            ssl=self._tls,
            # The wait for a peer's goodbye, which a stalled peer never says.
            ssl_shutdown_timeout=None if self._tls is None else 1.0,
        )
        # A connection that was taken in the turn before a server is closed meets a closed one, in
        # which CPython 3.11 has it fail, and stay open. We know our connections ourselves.
        self._server._attach = self._server._detach = lambda *_: None  # type: ignore[attr-defined]
        self.port = bound.getsockname()[1]

    def refuse(self) -> None:
        """Refuse new connections. Those that are open go on, and nobody else gets the port."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._bound = bound_socket(self.port)

    def cut(self, how: How) -> None:
        for task, writer in self._open.items():
            hang_up(writer, how)
            task.cancel()

    async def close(self) -> None:
        """Refuse, end all connections and wait for them. Raises what `serve` should not have."""
        self.refuse()
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # a socket is closed in the turn after its abort
        if self._defects:
            raise BaseExceptionGroup("serving a connection failed", self._defects)

    # Not a coroutine: asyncio would wrap it in a task that nobody owns.
    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # refused since the kernel accepted it
            writer.transport.abort()
            return
        self.accepted += 1
        task = asyncio.create_task(self._run(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._finished)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except* OSError:
            pass
        finally:
            await let_go(writer)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task).transport.abort()  # a task cancelled before its first step did not
        if not task.cancelled() and (defect := task.exception()):
            self._defects.append(defect)


class Proxy:
    """What stands before a server: a listener for as long as the block lasts."""

    def __init__(self, serve: Serve, *, tls: ssl.SSLContext | None = None) -> None:
        self._listener = Listener(serve, tls=tls)

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def connections(self) -> int:
        return self._listener.accepted

    def cut(self, how: How = "rst") -> None:
        self._listener.cut(how)

    def refuse(self) -> None:
        self._listener.refuse()

    async def accept(self) -> None:
        """Take connections again, on the same port."""
        await self._listener.accept()
