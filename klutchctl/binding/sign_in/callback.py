"""The server that a browser comes back to: on 127.0.0.1 and ::1, for one sign-in.

RFC 8252 7.3 and 8. Anybody on this machine, and any page in its browser, can call it: what does
not fit is answered with 400, and the wait goes on (protocol-bind.md F17). The request line holds a
whole kubeconfig where the provider is an original.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import parse_qsl, urlsplit

from reconciler.core.errors import ConfigError, HostError

T = TypeVar("T")

_LINE: Final = 64 * 1024
_HEAD: Final = 16 * 1024
_SECONDS: Final = 10.0  # for one request
_CONNECTIONS: Final = 32
_TRIES: Final = 20
_LOOPBACK: Final = ("127.0.0.1", "::1")
_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_DONE: Final = "You have been authenticated. Please head back to the command line."
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


class Foreign(Exception):
    """A call that is not the answer that is waited for. Its text is shown to the caller."""


class Callback(Generic[T]):
    """Waits for the one call that `accept` takes; others are answered with the Foreign it raises.

    `port` is that of both addresses.
    """

    def __init__(self, accept: Callable[[Mapping[str, str]], T]) -> None:
        self.port = 0
        self._accept = accept
        self._answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._room = asyncio.Semaphore(_CONNECTIONS)
        self._open: set[asyncio.Task[None]] = set()  # connections
        self._silent: set[asyncio.Task[None]] = set()  # of them, without a whole request so far

    async def answer(self, *, seconds: float) -> T:
        """Return what the browser brought. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._answer)

    # Not a coroutine: asyncio 3.11 logs a traceback of one that it made a task of, and cancels.
    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        task = asyncio.create_task(self._serve(reader, writer))
        for tasks in (self._open, self._silent):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # it may never have begun

    async def close(self) -> None:
        """End connections; who asked is answered first. A browser keeps a spare one open."""
        for task in self._silent:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._room, asyncio.timeout(_SECONDS):
                call = await _read(reader)
                if task := asyncio.current_task():
                    self._silent.discard(task)
                status, text = self._answered(call)
                writer.write(_response(status, text))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            pass  # somebody else's connection; the browser's own comes again
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answered(self, call: "_Call | None") -> tuple[int, str]:
        if call is None or not _is_local(call.host, self.port):
            return 400, "This is no request for this server."
        if call.path != "/callback":
            return 404, "There is nothing here."
        if call.method != "GET":
            return 405, "Only GET is answered."
        if self._answer.done():
            return 200, _DONE
        try:
            self._answer.set_result(self._accept(call.query))
        except Foreign as refusal:
            return 400, str(refusal)
        return 200, _DONE


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: Mapping[str, str]
    host: str


@contextlib.asynccontextmanager
async def listening(
    accept: Callable[[Mapping[str, str]], T], *, port: int = 0
) -> AsyncIterator[Callback[T]]:
    """Serve on a port of this machine (0: a free one) for the length of the block.

    Raises ConfigError where the port is taken, also if by another on one of both addresses only.
    """
    callback = Callback(accept)
    sockets = _sockets(port)
    callback.port = sockets[0].getsockname()[1]
    servers = [await asyncio.start_server(callback.serve, sock=one, limit=_LINE) for one in sockets]
    try:
        yield callback
    finally:
        for server in servers:
            server.close()
        await callback.close()


def _sockets(port: int) -> list[socket.socket]:
    """Return a socket on each loopback address there is, all with one port."""
    for _ in range(_TRIES):
        try:
            return _on_both(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise HostError(
                    f"no port of this machine can be opened: {error.strerror}"
                ) from None
        if port:
            hint = "Another program would get the answer; choose another port"
            raise ConfigError(f"port {port} is taken", where="--callback-port", hint=hint)
    raise HostError("no port is free on 127.0.0.1 and ::1 alike")


def _on_both(port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for host in _LOOPBACK:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                one = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                if opened and error.errno in _NO_FAMILY:
                    continue
                raise
            opened.append(one)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                one.bind((host, port))
            except OSError as error:
                if len(opened) > 1 and error.errno in _NO_FAMILY:
                    opened.pop().close()
                    continue
                raise
            port = one.getsockname()[1]
    except OSError:
        for one in opened:
            one.close()
        raise
    return opened


async def _read(reader: asyncio.StreamReader) -> _Call | None:
    """Return the head of a request, None for one that is none, or too large."""
    try:
        line = (await reader.readuntil(b"\n")).decode("ascii").split()
        host, size = "", 0
        while (header := (await reader.readuntil(b"\n")).decode("latin-1").strip()) != "":
            name, _, value = header.partition(":")
            size += len(header)
            if size > _HEAD or (name.lower() == "host" and host):
                return None
            host = value.strip() if name.lower() == "host" else host
        method, target, version = line
        if not version.startswith("HTTP/1."):
            return None
        parts = urlsplit(target)
        fields = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=20)
    except (ValueError, asyncio.LimitOverrunError):
        return None
    query = dict(fields)
    return _Call(method, parts.path, query, host) if len(query) == len(fields) else None


def _is_local(host: str, port: int) -> bool:
    """Tell whether a page from elsewhere, whose name leads here (DNS rebinding), is not asking."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname in _HOSTS and parts.port == port
    except ValueError:
        return False


def _response(status: int, text: str) -> bytes:
    body = f"<!doctype html><title>klutchctl</title><h1>{text}</h1>\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
