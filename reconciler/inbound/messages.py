"""Requests and answers as values."""

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
