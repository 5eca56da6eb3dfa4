"""Requests, answers and refusals as values, and the limits of what a client may send."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Stream: TypeAlias = Callable[[], AsyncGenerator[bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent, within the limits.

    A name that comes twice in `query` was refused with 400 before. `headers` have lower-case
    names. `address` is the client's, beyond trusted proxies; `id` names this request in answers,
    audit lines and the log. `secure` tells whether it came over TLS as far as this server.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    address: str = ""
    id: str = ""
    secure: bool = False

    @property
    def wants_html(self) -> bool:
        """Whether a person's browser asks."""
        return "text/html" in self.headers.get("accept", "")


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie to set: HttpOnly, SameSite=Lax, Path=/, host-only. An `age` of 0 deletes it."""

    name: str
    value: str
    age: int  # seconds
    secure: bool


@dataclass(frozen=True, slots=True)
class Response:
    """What a client gets. `headers` may name one twice.

    `stream` gives the parts of a body that goes on for as long as it lasts, in place of `body`. A
    client that has left, or does not take them, ends it; when the server stops, it has to end by
    itself.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    cookies: tuple[Cookie, ...] = ()
    stream: Stream | None = None


class RequestRefused(Exception):
    """A request gets this status and sentence. `headers` go with it, such as Retry-After."""

    def __init__(
        self, status: int, sentence: str, *, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


# Of a request that was refused before it was read, only what is known is there.
RefusalPage: TypeAlias = Callable[[Request, int, str], Response]


def plain(request: Request, status: int, sentence: str) -> Response:
    """Return a refusal as a line of text."""
    del request
    return Response(status, f"{sentence}\n".encode())


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server. Sizes are in bytes, times in seconds.

    `take` is how long a client may take to receive an answer, `stop` how long answers that are
    under way have when the server stops. `rate` and `burst` are for each address of a client.
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
