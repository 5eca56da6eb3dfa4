"""A socket that listens, its certificate, and what becomes of the connections that it accepts."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from reconciler.core.errors import HostError, origin
from reconciler.inbound.addresses import address_key, address_of
from reconciler.inbound.connections import Connection, Connections

_LOOK_EVERY: Final = 1.0  # seconds
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificate, with those that lead to its root, and its key are, as PEM."""

    cert: Path
    key: Path


class Certificates:
    """The last good certificate that these files held.

    `context` is for one connection: each new one gets what is good then. What cannot be read is
    logged once. Raises HostError where there is none to begin with.
    """

    def __init__(self, files: TlsFiles, clock: Callable[[], float]) -> None:
        self._files, self._clock = files, clock
        self._stamp = self._look()
        try:
            self._context = _loaded(files)
        except (OSError, ValueError) as error:
            raise HostError(
                f"cannot use the certificate {files.cert} with the key {files.key}: "
                + _reason(error),
                hint="Give PEM files that belong together; the key without a passphrase",
            ) from None
        self._looked_at = clock()

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is to be served with."""
        now = self._clock()
        if abs(now - self._looked_at) >= _LOOK_EVERY:
            self._looked_at = now
            self._read_if_changed()
        return self._context

    def _read_if_changed(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp  # also of what is not good: it is read again once it changes again
        try:
            self._context = _loaded(self._files)
        except (OSError, ValueError) as error:
            fields = {"certificate": str(self._files.cert), "reason": _reason(error)}
            _log.warning("a new certificate cannot be used: the last one is kept", extra=fields)
        else:
            _log.info("a new certificate is used", extra={"certificate": str(self._files.cert)})

    def _look(self) -> _Stamp:
        try:
            stats = [path.stat() for path in (self._files.cert, self._files.key)]
        except OSError:
            return ()
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _loaded(files: TlsFiles) -> ssl.SSLContext:
    """Return a context of its own: one into which half a pair was loaded is of no use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Without a password OpenSSL would ask for one on the terminal.
    context.load_cert_chain(files.cert, files.key, password="")
    return context


def _reason(error: Exception) -> str:
    """Return it without what the files hold."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or "they cannot be read"


_log = logging.getLogger(__name__)
_BACKLOG: Final = 1024  # who does not fit in tries again after a second
_AT_ONCE: Final = 64  # accepted before others get their turn
_BREAK: Final = 0.2  # seconds without accepting where the machine has no room for more
_EVERYWHERE: Final = "::"
_FAREWELL: Final = 2.0  # seconds for the end of a TLS connection


class Listener:
    """Accepts connections, and hands them to a protocol; over TLS after its handshake.

    It accepts by itself, where an asyncio server would do, so that those count whose
    handshake is under way, and each connection gets the certificate that is good then.

    Raises HostError.
    """

    def __init__(
        self,
        address: tuple[str, int],
        connections: Connections,
        protocol: Callable[[Connection], asyncio.BaseProtocol],
        certificates: Certificates | None,
        *,
        handshake_time: float,
    ) -> None:
        self._connections, self._protocol = connections, protocol
        self._certificates, self._handshake_time = certificates, handshake_time
        self._loop = asyncio.get_running_loop()
        self._socket = _bound(address)
        host, port = self._socket.getsockname()[:2]
        self.address: tuple[str, int] = (str(host), int(port))
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept nothing any more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    async def closed(self) -> None:
        """Return once no connection is on its way to a protocol; to be called after `close`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, name = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError:  # no file is left, or no memory
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_BREAK, self._resume)
                return
            accepted.setblocking(False)
            self._admit(accepted, name[0])

    def _admit(self, accepted: socket.socket, host: str) -> None:
        address = address_of(host)
        connection = self._connections.admit(address_key(address) if address else host)
        if connection is None:
            accepted.close()
            return
        task = self._loop.create_task(self._connect(accepted, connection))
        connection.start(task.cancel)
        self._tasks.add(task)
        # Not within the task: one that is cancelled at once never begins.
        task.add_done_callback(partial(self._ended, accepted, connection))

    async def _connect(self, accepted: socket.socket, connection: Connection) -> None:
        context = self._certificates.context() if self._certificates else None
        timeout = self._handshake_time if context else None
        await self._loop.connect_accepted_socket(
            lambda: self._protocol(connection),
            accepted,
            ssl=context,
            ssl_handshake_timeout=timeout,
            ssl_shutdown_timeout=_FAREWELL if context else None,
        )

    def _ended(
        self, accepted: socket.socket, connection: Connection, task: "asyncio.Task[None]"
    ) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        connection.close()
        accepted.close()
        if error is not None and not isinstance(error, OSError):  # as handshakes end
            fields = {"error": type(error).__name__, "place": origin(error)}
            _log.error("a connection could not be made", extra=fields)


def _bound(address: tuple[str, int]) -> socket.socket:
    host, port = address
    everywhere = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if everywhere:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((_EVERYWHERE if everywhere else host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise HostError(
            f"cannot listen on {host or 'any address,'} port {port}: {error.strerror}",
            hint="Give another address",
        ) from error
    bound.setblocking(False)
    return bound
