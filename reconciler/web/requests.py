"""Requests, answers and refusals as values, and the routes to handlers.

Pure. What has two readings is refused, where servers and proxies differ: names that come twice,
broken percent-encoding, bytes that are no text.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from math import inf
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote

from reconciler.core import addresses
from reconciler.core.addresses import Address

Network: TypeAlias = IPv4Network | IPv6Network
Stream: TypeAlias = Callable[[], AsyncGenerator[bytes]]


@dataclass(frozen=True, slots=True)
class Noted(Mapping[str, str]):
    """Headers, or the cookies of one, that note in `read` the ones that an answer depends on."""

    values_by_name: Mapping[str, str]
    read: set[str]
    header: str = ""

    def __getitem__(self, name: str) -> str:
        self.read.add(self.header or name.title())
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        self.read.add(self.header or "*")
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request, within the limits.

    A name that comes twice in `query` was refused with 400 before. `headers` have lower-case
    names. `address` is the client's, beyond trusted proxies; `id` names this request in answers,
    audit lines and the log. `secure` is whether it came over TLS as far as this server.
    `parts` are the names in its route's pattern, with their values.
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
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def wants_html(self) -> bool:
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
    """The answer to a client. `headers` may name one twice.

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
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def plain(_request: Request, status: int, sentence: str) -> Response:
    """Return a refusal as a line of text."""
    return Response(status, f"{sentence}\n".encode())


# A proxy may send the whole URL. Its host is as little believed as the header Host.
_TARGET: Final = re.compile(r"(?:https?://[^/?#]+)?(/[^?#]*)?(?:\?([^#]*))?", re.IGNORECASE)
_TEXT: Final = re.compile(r"(?:[!-$&-~]|%(?!00)[0-9A-Fa-f]{2})+")
# Behind these lies who asks, or from where, or for what. (The parser refuses two lengths.)
_SINGLE: Final = frozenset(
    {"accept", "authorization", "content-encoding", "content-type", "expect", "host", "origin"}
    | {"referer", "sec-fetch-site", "transfer-encoding", "user-agent"}
)
_OURS: Final = ("klutch-", "__host-", "__secure-")


def target(raw: str) -> tuple[str, str]:
    """Return the path of a request's target, and its query as it is. Raises RequestRefused."""
    found = None if raw.startswith("?") else _TARGET.fullmatch(raw)
    # An encoded slash would be one to the routes, and none to proxies.
    if found is None or not _TEXT.fullmatch(raw) or "%2f" in (found[1] or "").lower():
        raise RequestRefused(400, "the target cannot be read")
    try:
        return unquote(found[1] or "/", errors="strict"), found[2] or ""
    except UnicodeDecodeError:
        raise RequestRefused(400, "the target is no UTF-8") from None


def query(raw: str) -> Mapping[str, str]:
    """Return the fields of a query. Raises RequestRefused."""
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise RequestRefused(400, "the query is no UTF-8") from None
    if len(fields := dict(pairs)) != len(pairs):
        raise RequestRefused(400, "a name comes twice in the query")
    return fields


def headers(fields: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return headers by lower-case name; parts of lists are joined. Raises RequestRefused.

    Bytes that are no UTF-8 are replaced, so that values can be written into logs and pages.
    """
    found: dict[str, str] = {}
    for name, raw in fields:
        key = name.lower()
        value = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if key in found and key in _SINGLE:
            raise RequestRefused(400, f"the header {key} comes twice")
        joint = "; " if key == "cookie" else ", "
        found[key] = f"{found[key]}{joint}{value}" if key in found else value
    return found


def cookies(header: str) -> Mapping[str, str]:
    """Return cookies by name. Raises RequestRefused where one of ours comes twice.

    A neighbour below the same domain can add a cookie to ours; which one comes first is its choice.
    """
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = (part.strip(" \t") for part in pair.partition("="))
        if equals and name in found and name.lower().startswith(_OURS):
            raise RequestRefused(400, "a cookie comes twice: delete the cookies of this site")
        if equals:
            found.setdefault(name, value)
    return found


# By pattern, such as `/ui/offers/{namespace}/{name}`, and by method. HEAD is a method of its own.
Routes: TypeAlias = Mapping[str, Mapping[str, Handler]]
_NAME: Final = re.compile(r"\\\{([a-z]+)\\\}")  # in an escaped pattern


class Router:
    """Hands requests to the handlers of routes. A literal segment goes before a `{name}`.

    Raises ValueError where two patterns are for the same paths.
    """

    def __init__(self, routes: Routes) -> None:
        by_shape: dict[str, tuple[re.Pattern[str], Mapping[str, Handler]]] = {}
        for pattern, methods in routes.items():
            literal = re.escape(pattern)
            if (shape := _NAME.sub("{}", literal)) in by_shape:
                raise ValueError(f"two routes are for the paths of {pattern}")
            named = _NAME.sub(r"(?P<\1>(?!\\.{1,2}(?:/|\\Z))[^/]+)", literal)
            by_shape[shape] = re.compile(named), methods
        # "{" comes after all letters, so literal segments come first.
        self._routes = [by_shape[shape] for shape in sorted(by_shape)]

    async def __call__(self, request: Request) -> Response:
        """Answer a request. Raises RequestRefused, also for unknown paths and methods."""
        for pattern, methods in self._routes:
            if (found := pattern.fullmatch(request.path)) is None:
                continue
            if (handler := methods.get(request.method)) is not None:
                return await handler(replace(request, parts=found.groupdict()))
            allowed = (("Allow", ", ".join(sorted(methods))),)
            raise RequestRefused(405, f"{request.method} is not allowed here", headers=allowed)
        raise RequestRefused(404, "there is nothing here")


# Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
_WITH_PORT: Final = re.compile(r"(?:\[([^\]]*)\]|([0-9.]+))(?::[0-9]+)?")
NOWHERE: Final = ip_address("0.0.0.0")  # of a client that has left already
_HOST_BITS: Final = 64  # of an IPv6 address, which its holder chooses at will


def address_of(text: str) -> Address | None:
    """Return the address, an IPv4 one as itself and without a zone; None for anything else."""
    return addresses.address_of(text.partition("%")[0])


def address_key(address: Address) -> str:
    """Return the part of an address that one client cannot choose freely."""
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), _HOST_BITS), strict=False))
    return str(address)


@dataclass(slots=True)
class Proxies:
    """The networks of trusted proxies; `unnamed` is a proxy outside of them, "" for none."""

    trusted: tuple[Network, ...] = ()
    unnamed: str = ""
    _is_met: bool = False

    def client(self, peer: Address, forwarded: str) -> Address:
        """Return the client's address, given the one that connected and `X-Forwarded-For`.

        Each proxy appends the address that it was called from, so they are read from the right,
        and only as long as trusted proxies wrote them: what is to the left of that can be forged.

        Anybody can send the header, so it reveals a proxy only if it comes from a private
        address, and before a trusted proxy was met.
        """
        if forwarded and self._trusts(peer):
            self._is_met, self.unnamed = True, ""
        elif forwarded and peer.is_private and not self._is_met:
            self.unnamed = str(peer)
        entries = forwarded.split(",") if forwarded else []
        while entries and self._trusts(peer):
            entry = entries.pop().strip()
            named = _WITH_PORT.fullmatch(entry)
            before = address_of((named[1] or named[2] or "") if named else entry)
            if before is None:
                break
            peer = before
        return peer

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self.trusted)


_SWEPT: Final = 2  # full buckets that are forgotten with each use: more than one use can add
_ROUNDING: Final = 1e-3  # uses: sums of times of this century are exact to some 1e-7 s


class Buckets:
    """Limits each key to `burst` uses at once, and to `rate` a second in the long run.

    A bucket is the time at which it is full again; one that is full is forgotten. Of more than
    `most`, the one that was used longest ago is forgotten, so that memory is bounded.
    """

    def __init__(self, rate: float, burst: int, most: int = 100_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._full_at: dict[str, float] = {}  # used longest ago first

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: str, now: float) -> float:
        """Use the key, and return 0.0; or return in how many seconds it may be used."""
        if self._rate == inf:
            return 0.0
        # Not more than an empty bucket needs, should the clock have been set back.
        to_full = min(max(self._full_at.get(key, now) - now, 0.0), self._burst / self._rate)
        lacking = to_full * self._rate - (self._burst - 1)
        if lacking > _ROUNDING:
            return lacking / self._rate
        self._full_at.pop(key, None)
        self._full_at[key] = now + to_full + 1 / self._rate
        for _ in range(_SWEPT):
            oldest = next(iter(self._full_at))
            if self._full_at[oldest] > now and len(self._full_at) <= self._most:
                break
            del self._full_at[oldest]
        return 0.0
