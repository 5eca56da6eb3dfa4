"""Sign-ins at a front door as browsers walk them, and a provider whose own time is known."""

import asyncio
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from aiohttp import web

from tests.support.issuer import WEB, FakeProvider

GROUP: Final = "team-a"
_USER: Final = "bench_user"
_OK, _FOUND = 200, 302


class Refused(Exception):
    """The door answered something else than the next step."""


class TimedProvider(FakeProvider):
    """A provider to which each browser says whose it is. `took` is what each code cost it."""

    def __init__(self) -> None:
        super().__init__((WEB,), path="", folder=None)
        self.took: dict[str, float] = {}

    async def _authorize(self, request: web.Request) -> web.Response:
        # Nothing runs between these two.
        self.sign_in_as(request.query[_USER], groups=[GROUP])
        return await super()._authorize(request)

    async def _token(self, request: web.Request) -> web.Response:
        began = time.perf_counter()
        code = self.received["token"][-1].form["code"]
        answer = await super()._token(request)
        self.took[code] = time.perf_counter() - began
        return answer


@contextmanager
def providing() -> Iterator[TimedProvider]:
    provider = TimedProvider()
    try:
        provider.start()
        yield provider
    finally:
        provider.close()


class Browsers:
    """Browsers behind one reverse proxy, each with an address of its own.

    `took` has the seconds of each route. The first bind of a subject counts as another route than
    those that come after it.
    """

    def __init__(self, door: str, provider: TimedProvider, resource: tuple[str, str]) -> None:
        self._door, self._provider = door, provider
        self._plural, self._group = resource
        self._bound: set[str] = set()
        self._count = 0
        # Shorter than the door keeps a connection that is not used: else both end it at once.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=5)
        self._behind = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        self.took: dict[str, list[float]] = defaultdict(list)
        self.refused: Counter[str] = Counter()

    async def close(self) -> None:
        await self._behind.close()

    async def is_open(self) -> bool:
        """Return whether the door answers, and knows its offers."""
        try:
            async with self._behind.get(f"{self._door}/resources?s=x") as answer:
                return answer.status == _OK
        except aiohttp.ClientConnectionError:
            return False

    async def each(self, subjects: Sequence[str], rate: float) -> None:
        """Sign all of them in and bind an app cluster of each: so many a second begin."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, subject in enumerate(subjects):
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
                group.create_task(self._try(subject))

    async def _try(self, subject: str) -> None:
        try:
            await self.sign_in(subject)
        except Refused as refused:
            self.refused[str(refused)] += 1
        except aiohttp.ClientConnectionError as error:
            self.refused[type(error).__name__] += 1

    async def sign_in(self, subject: str) -> None:
        """Walk from `/authorize` to the answer that the CLI gets. Raises Refused."""
        walk = _Walk(self._behind, self._door, self._address())
        sid, cid = secrets.token_urlsafe(18), f"cluster-of-{subject}"
        away = await walk.get("/authorize", _FOUND, s=sid, c=cid, p="40000")
        query = await self._at_provider(away, subject)
        resources = await walk.get("/callback", _FOUND, **query)
        assert resources == f"/resources?s={sid}"
        await walk.get("/resources", _OK, s=sid)
        answer = await walk.get("/bind", _FOUND, s=sid, resource=self._plural, group=self._group)
        assert answer.startswith("http://localhost:40000/callback?response=")
        took = dict(walk.took)
        took["/callback"] -= self._provider.took.pop(query["code"])
        how = "again" if subject in self._bound else "first"
        took[f"/bind, {how}"] = took.pop("/bind")
        self._bound.add(subject)
        for route, seconds in took.items():
            self.took[route].append(seconds)

    async def _at_provider(self, location: str, subject: str) -> dict[str, str]:
        who = urlencode({_USER: subject})
        async with self._behind.get(f"{location}&{who}", allow_redirects=False) as answer:
            query = parse_qs(urlsplit(answer.headers["Location"]).query)
        return {name: value for name, (value,) in query.items()}

    def _address(self) -> str:
        self._count += 1
        return f"10.{self._count >> 16}.{self._count >> 8 & 255}.{self._count & 255}"


class _Walk:
    """What one browser holds: cookies, and the time that each route took."""

    def __init__(self, behind: aiohttp.ClientSession, door: str, address: str) -> None:
        self._behind, self._door, self._address = behind, door, address
        self._cookies: dict[str, str] = {}
        self.took: dict[str, float] = {}

    async def get(self, route: str, expected: int, /, **query: str) -> str:
        """Ask for a route, and return where it leads. Raises Refused for another status."""
        cookies = "; ".join(f"{name}={text}" for name, text in self._cookies.items())
        headers = {"X-Forwarded-For": self._address, "Cookie": cookies, "Accept": "text/html"}
        began = time.perf_counter()
        async with self._behind.get(
            f"{self._door}{route}", params=query, headers=headers, allow_redirects=False
        ) as answer:
            await answer.read()
            self.took[route] = time.perf_counter() - began
            if answer.status != expected:
                raise Refused(f"{route} {answer.status}")
            for name, cookie in answer.cookies.items():
                self._cookies[name] = cookie.value
                if not cookie.value:
                    del self._cookies[name]
            return answer.headers.get("Location", "")
