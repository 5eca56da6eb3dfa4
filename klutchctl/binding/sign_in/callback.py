"""Serves one answer of a sign-in to the browser, on 127.0.0.1 and ::1.

RFC 8252 7.3 and 8. Anybody on this machine, and any page in its browser, can call it: what does
not fit is answered with 400, and the wait goes on (protocol-bind.md F17). The request line holds a
whole kubeconfig where the provider is an original.
"""

import asyncio
import base64
import contextlib
import errno
import hashlib
import html
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import resources
from math import inf
from string import Template
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

from reconciler.core.errors import ConfigError, HostError
from reconciler.web.connections import Limits
from reconciler.web.requests import Request, RequestRefused, Response
from reconciler.web.serve import Listening, served

T = TypeVar("T")

_LIMITS: Final = Limits(
    line=64 * 1024, head=80 * 1024, body=1024, connections=32, rate=inf
)  # all of this machine have one address
_TRIES: Final = 20
_DONE: Final = ("Back to the command line", "It has your answer. You can close this page.")
_LOOPBACK: Final = ("127.0.0.1", "::1")
_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_PAGE: Final = resources.files(__package__).joinpath("callback.html").read_text("utf-8")
_STYLE: Final = hashlib.sha256(_PAGE.partition("<style>")[2].partition("</style>")[0].encode())
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(_STYLE.digest()).decode()}'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)


class Foreign(RequestRefused):
    """A call that is not the answer that is waited for. Its text is shown to the caller."""

    def __init__(self, text: str) -> None:
        super().__init__(400, text)


class Callback(Generic[T]):
    """Waits for the one call that `accept` takes; others are answered with the Foreign it raises.

    `port` is that of both addresses; `shown` has the heading and the text of the page that follows.
    """

    def __init__(
        self, accept: Callable[[Mapping[str, str]], T], shown: Callable[[T], tuple[str, str]]
    ) -> None:
        self.port = 0
        self._accept, self._shown = accept, shown
        self._answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def answer(self, *, seconds: float) -> T:
        """Return what the browser brought. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._answer)

    async def serve(self, request: Request) -> Response:
        """Answer one request. Raises RequestRefused."""
        if not _is_local(request.headers.get("host", ""), self.port):
            raise Foreign("This is no request for this server.")
        if request.path != "/callback":
            raise RequestRefused(404, "There is nothing here.")
        if request.method != "GET":
            raise RequestRefused(405, "Only GET is answered.")
        if not self._answer.done():
            self._answer.set_result(self._accept(request.query))
        return _page(request, 200, *self._shown(self._answer.result()))


@contextlib.asynccontextmanager
async def listening(
    accept: Callable[[Mapping[str, str]], T],
    shown: Callable[[T], tuple[str, str]] = lambda _: _DONE,
    *,
    port: int = 0,
) -> AsyncIterator[Callback[T]]:
    """Serve on a port of this machine (0: a free one) for the length of the block.

    Raises ConfigError where the port is taken, also if by another on one of both addresses only.
    """
    callback = Callback(accept, shown)
    for _ in range(_TRIES):
        try:
            stack, callback.port = await _on_both(callback, port)
            break
        except HostError as error:
            if _number(error) != errno.EADDRINUSE:
                raise
        if port:
            hint = "Another program would get the answer; choose another port"
            raise ConfigError(f"port {port} is taken", where="--callback-port", hint=hint)
    else:
        raise HostError("no port is free on 127.0.0.1 and ::1 alike")
    async with stack:
        yield callback


async def _on_both(callback: Callback[T], port: int) -> tuple[contextlib.AsyncExitStack, int]:
    """Serve on each loopback address there is, with one port. Raises HostError."""
    async with contextlib.AsyncExitStack() as stack:
        for host in _LOOPBACK:
            listens = Listening((host, port), limits=_LIMITS)
            try:
                _, port = await stack.enter_async_context(
                    served(listens, callback.serve, refusal_page=_page)
                )
            except HostError as error:
                if host == _LOOPBACK[0] or _number(error) not in _NO_FAMILY:
                    raise
        return stack.pop_all(), port


def _number(error: HostError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def _is_local(host: str, port: int) -> bool:
    """Tell whether a page from elsewhere, whose name leads here (DNS rebinding), is not asking."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname in _HOSTS and parts.port == port
    except ValueError:
        return False


def _page(request: Request, status: int, heading: str, text: str = "") -> Response:
    del request
    body = Template(_PAGE).substitute(heading=html.escape(heading), text=html.escape(text))
    return Response(status, body.encode(), "text/html; charset=utf-8", _HEADERS)
