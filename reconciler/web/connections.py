"""Limits open connections: accepts them up to a number, and closes them."""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final, cast

from reconciler.core.errors import HostError, origin
from reconciler.web.requests import NOWHERE, address_key, address_of

_log = logging.getLogger(__name__)
_BACKLOG: Final = 1024  # who does not fit in tries again after a second
_BREAK: Final = 0.2  # seconds without accepting where the machine has no room for more
_FAREWELL: Final = 2.0  # seconds for the end of a TLS connection
_LINGER: Final = 1.0  # seconds in which a client can take the answer to what was not read
_DISCARDED: Final = 16  # pieces of that which are taken off the client
PIECE: Final = 2**16  # octets that are read at once


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server. Sizes are in bytes, times in seconds.

    `take_time` is how long a client may take to receive an answer, `stop_time` how long answers
    that are under way have when the server stops. `rate` and `burst` are for each address of a
    client.
    """

    line: int = 8 * 1024  # the target, and each header
    head: int = 16 * 1024
    body: int = 64 * 1024
    head_time: float = 10.0
    body_time: float = 10.0
    answer_time: float = 30.0
    take_time: float = 10.0
    stop_time: float = 5.0
    connections: int = 256
    rate: float = 10.0
    burst: int = 40


def bound_socket(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens. Raises HostError, from the OSError."""
    host, port = address
    everywhere = host in ("", "::") and socket.has_dualstack_ipv6()
    try:
        bound = socket.create_server(
            ("::" if everywhere else host, port),
            family=socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET,
            backlog=_BACKLOG,
            dualstack_ipv6=everywhere,
        )
    except OSError as error:
        raise HostError(
            f"cannot listen on {host or 'any address,'} port {port}: "
            + (error.strerror or "").partition(" (while")[0],
            hint="Give another address",
        ) from error
    bound.setblocking(False)
    return bound


class Phase(Enum):
    """The phase of a connection."""

    HEAD = auto()  # or its handshake
    BODY = auto()
    TAKE = auto()  # the client receives an answer
    ANSWER = auto()  # a handler is at work, which is bounded elsewhere, and never cut


class Connection(asyncio.StreamReaderProtocol):
    """An accepted connection. It has a `writer` once its handshake is done."""

    def __init__(self, open_ones: "dict[Connection, None]", peer: str, limits: Limits) -> None:
        self._open, self.peer, self.limits, self.phase = open_ones, peer, limits, Phase.HEAD
        self.cut: Callable[[], object] = nothing
        self.on_close: Callable[[], object] = nothing
        self.writer: asyncio.StreamWriter
        self.reader = asyncio.StreamReader(limit=limits.head)
        super().__init__(self.reader)
        open_ones[self] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        writing = cast("asyncio.Transport", transport)
        writing.set_write_buffer_limits(high=1, low=0)  # to drain is to have sent all
        self.writer = asyncio.StreamWriter(writing, self, self.reader, asyncio.get_running_loop())
        self.cut = writing.abort

    def connection_lost(self, error: Exception | None) -> None:
        self.close()
        super().connection_lost(error)

    def eof_received(self) -> bool:
        super().eof_received()
        return False  # the client has left

    def close(self) -> None:
        self._open.pop(self, None)
        self.on_close()

    async def send(self, data: bytes) -> None:
        """Send, and return once the machine has taken all of it. Raises OSError."""
        async with asyncio.timeout(self.limits.take_time):
            self.writer.write(data)
            await self.writer.drain()

    async def leave(self, *, is_read: bool) -> None:
        """Close, once the client can have taken its answer. Raises OSError.

        To close a socket with octets that nobody read resets it, and the answer may be lost.
        """
        async with asyncio.timeout(min(_LINGER, self.limits.body_time)):
            if is_read:
                self.writer.close()
            elif self.writer.can_write_eof():
                self.writer.write_eof()
            for _ in range(_DISCARDED):
                await self.reader.read(PIECE)
            await self.writer.wait_closed()


class Connections:
    """Accepts connections, at most `limits.connections`, and has them served.

    It accepts by itself, where an asyncio server would do, so that those count whose handshake is
    under way, and each gets the certificate that is good then.
    """

    def __init__(
        self,
        limits: Limits,
        serve: Callable[[Connection], Awaitable[None]],
        certificate: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._limits, self._serve, self._certificate = limits, serve, certificate
        self._open: dict[Connection, None] = {}  # the oldest first
        self._tasks: set[asyncio.Task[object]] = set()

    async def accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, name = await loop.sock_accept(bound)
            except OSError:  # no file is left, or no memory
                await asyncio.sleep(_BREAK)
                continue
            loop.call_soon(self._admit, accepted, name[0])
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Cut those that wait for a request, and the others once they have had time to end."""
        for connection in list(self._open):
            if connection.phase is Phase.HEAD:
                connection.cut()
        ending = asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(ending, self._limits.stop_time)

    def _admit(self, accepted: socket.socket, host: str) -> None:
        """Take a new connection in, in place of another one where there are too many.

        Of those that may be cut, it is the oldest of the address that has most of them.
        """
        if len(self._open) >= self._limits.connections:
            able = [one for one in self._open if one.phase is not Phase.ANSWER]
            if not able:
                accepted.close()
                return
            most = Counter(one.peer for one in able)
            victim = max(able, key=lambda one: most[one.peer])
            victim.cut()
            victim.close()
        connection = Connection(self._open, address_key(address_of(host) or NOWHERE), self._limits)
        task = asyncio.get_running_loop().create_task(self._connect(accepted, connection))
        connection.cut = task.cancel
        self._tasks.add(task)
        # Not within the task: one that is cancelled at once never begins.
        task.add_done_callback(partial(self._ended, accepted, connection))

    async def _connect(self, accepted: socket.socket, connection: Connection) -> None:
        context = self._certificate() if self._certificate else None
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=context,
            ssl_handshake_timeout=self._limits.head_time if context else None,
            ssl_shutdown_timeout=_FAREWELL if context else None,
        )
        try:
            await self._serve(connection)
        finally:
            connection.cut()

    def _ended(
        self, accepted: socket.socket, connection: Connection, task: "asyncio.Task[object]"
    ) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            connection.close()
            accepted.close()
        if isinstance(error, Exception) and not isinstance(error, OSError):  # as clients end
            _log.error("an HTTP connection failed", extra=defect_fields(error))


def nothing() -> None:
    """Do nothing: there is no socket yet, or nothing to end."""


def defect_fields(error: BaseException) -> dict[str, str]:
    """Return the fields of a log line: the text of a defect may hold values."""
    return {"error": type(error).__name__, "place": origin(error)}
