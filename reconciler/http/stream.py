"""An answer as it comes, over HTTP/1.1 or HTTP/2: status, headers, body, and its end.

Knows silence and deadlines; does not know what a request means. All that cuts an answer raises
NoAnswer, never in the words of a library.
"""

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias

from reconciler.tls import system_text

Fields: TypeAlias = Sequence[tuple[bytes, bytes]]

# Called just before a request is sent, which may have waited for its turn or a connection.
MAY_SEND: Final[ContextVar[Callable[[], None]]] = ContextVar("may_send", default=lambda: None)
WINDOW: Final = 2**18  # octets of one answer that wait for their reader
LATE: Final = "no answer in time"
UNREACHED: Final = "no connection in time"
CLOSED: Final = "the connection was closed by us"
NO_HTTP: Final = "the answer is not HTTP, or its head is too long"
_SHORT: Final = "the answer was cut short"
CUT: Final = "the connection was cut before the answer"


class NoAnswer(Exception):
    """No complete answer came. `sent`: the request may have reached the server.

    `permanent`: the next try will fail the same way (a certificate, a proxy's refusal), or this
    one has waited long enough: the system sends a SYN again within a time-out, and a server that
    has stopped would cost the time of all tries.
    """

    def __init__(self, message: str, *, sent: bool, permanent: bool = False) -> None:
        super().__init__(message)
        self.message, self.sent, self.permanent = message, sent, permanent


class Untrusted(NoAnswer):
    """The server's certificate is not trusted."""


class Excess(NoAnswer):
    """The answer is more than is read: to ask for the same again is no use."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True, permanent=True)


# The first that fits is taken: subclasses stand before their bases.
_SENTENCES: Final[tuple[tuple[type[Exception], str, bool], ...]] = (
    (ssl.SSLError, "no TLS connection: {reason}", True),
    (socket.gaierror, "the host name cannot be resolved", False),
    (TimeoutError, UNREACHED, True),
)


def explain(error: Exception, *, proxied: bool) -> NoAnswer:
    """Explain why there is no connection. Nothing was sent."""
    reason = system_text(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        message = f"the server's certificate is not trusted ({reason})"
        return Untrusted(message, sent=False, permanent=True)
    for kind, sentence, permanent in _SENTENCES:
        if isinstance(error, kind):
            return NoAnswer(sentence.format(reason=reason), sent=False, permanent=permanent)
    end = " to the proxy" if proxied else ""
    return NoAnswer(f"no connection{end}: {reason}", sent=False)


class Link(Protocol):
    """The connection of a stream, as its stream uses it."""

    def is_sending(self) -> bool:
        """Return whether a part of the request has not left this machine."""

    def acknowledge(self, number: int, octets: int) -> None:
        """Note that so many octets have a reader: the server may send more."""

    def leave(self, number: int, *, is_cut: bool) -> None:
        """Forget a stream that is over. `is_cut`: the server may still send."""


class Stream(contextlib.AbstractAsyncContextManager["Stream"]):
    """An answer: its `status`, `headers`, and the `chunks` of its body. It has one reader.

    It ends where nothing comes for `silence` seconds, and at `deadline`, a time of the loop.
    """

    def __init__(
        self, link: Link, number: int, *, silence: float | None, deadline: float = math.inf
    ) -> None:
        self.status = 0  # until the head is there
        self.headers: Mapping[str, str] = {}  # by names in lower case, as lists where repeated
        self._link, self._number, self._deadline = link, number, deadline
        self._silence = math.inf if silence is None else silence
        self._unread: list[bytes] = []
        self.unread = 0  # octets
        self._end: str | None = None  # what cut it; "" = nothing did
        self._reader: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._judge_time()

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the server stop; to read on fails."""
        self.end(CLOSED)

    async def opened(self) -> "Stream":
        """Return it once its head is there. Raises NoAnswer, and closes it where that is so."""
        try:
            while not self.status:
                if self._end is not None:
                    raise NoAnswer(self._end or CUT, sent=True)
                await self._news()
        except BaseException:
            self.close()
            raise
        return self

    async def parts(self) -> list[bytes]:
        """Return the data that came since the last call; none is the end.

        Data that is not taken stops the server. Raises NoAnswer where the answer is cut.
        """
        while not self._unread:
            if self._end is not None:
                if self._end:
                    raise NoAnswer(self._end, sent=True)
                return []
            await self._news()
        parts, octets = self._unread, self.unread
        self._unread, self.unread = [], 0
        if self._end is None:
            self._link.acknowledge(self._number, octets)
        return parts

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the data as it comes, as `parts` does."""
        while parts := await self.parts():
            for part in parts:
                yield part

    async def _news(self) -> None:
        self._heard = self._loop.time()  # as long as nobody reads, the silence is ours
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _notify(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def begin(self, status: int, fields: Fields) -> None:
        """Take in the head of the answer."""
        headers: dict[str, str] = {}
        for octets, value in fields:
            text, name = value.decode("latin-1"), octets.decode("latin-1").lower()
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        self.headers = headers
        self.status = status
        if not status:
            self.end(NO_HTTP)
        self._notify()

    def take(self, data: bytes) -> None:
        """Take in a part of the body."""
        self._unread.append(data)
        self.unread += len(data)
        self._notify()

    def end(self, problem: str = "", *, is_cut: bool = True) -> None:
        """Note the end of the answer, and the problem that cut it, if any."""
        if self._end is None:
            self._end = problem
            if problem == CLOSED:
                self._unread, self.unread = [], 0
            if self._timer is not None:
                self._timer.cancel()
            self._link.leave(self._number, is_cut=is_cut and problem != "")
            self._notify()

    def cut(self, problem: str = "") -> None:
        """Note that its connection, or the server, ended it, with a problem or without words."""
        self.end(problem or (_SHORT if self.status else CUT), is_cut=False)

    def _judge_time(self) -> None:
        """End it where its reader waited for too long. One timer does, not one for each event."""
        now = self._loop.time()
        if self._reader is None or self._link.is_sending():
            self._heard = now
        due = min(self._heard + self._silence, self._deadline)
        if due == math.inf:
            return
        if due > now:
            self._timer = self._loop.call_at(due, self._judge_time)
        else:
            self.end(LATE)
