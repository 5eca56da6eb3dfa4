"""Serves the board: routes, allowed clients, and security headers.

Read-only, and without a login: on a loopback address it is for this machine, and answers only to
names of it, so that no site can have a browser read it under a name of its own (DNS rebinding).
Anywhere else a proxy that authenticates has to stand in front.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field
from datetime import datetime
from functools import partial
from math import inf
from typing import Final

import typer

from klutchctl.render import status_document
from klutchctl.web.board import rendering
from klutchctl.web.board.index import Index
from klutchctl.web.board.newest import KEPT_FOR, Made, Newest
from klutchctl.web.board.overview import Explain, cluster, history, overview, plan, refusal, unit
from klutchctl.web.board.parts import Page, Query, parse
from reconciler.controller.tasks import now_here
from reconciler.core.addresses import is_loopback_name
from reconciler.core.errors import ConfigError
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import Loaded, load_valid_part
from reconciler.fleet.values import UnitKey
from reconciler.kube.turns import Party
from reconciler.reports import why
from reconciler.reports.partial_plans import Target
from reconciler.watch.loop import States
from reconciler.web import requests
from reconciler.web.connections import Limits
from reconciler.web.serve import Listening, served

# Behind a proxy, all browsers have one address.
_LIMITS: Final = Limits(connections=512, rate=100.0, burst=600, body=1024)
_HTML: Final = "text/html; charset=utf-8"
_PART: Final = "x-board-part"
_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_FRESH: Final = (*_HEADERS, ("Cache-Control", "no-store"))
_LASTING: Final = (*_HEADERS, ("Cache-Control", "max-age=300"))
_PAGES: Final = frozenset({400, 404})  # refusals that people see

Make = Callable[[Index, Mapping[str, str], Query, datetime], Page | None]


@asynccontextmanager
async def serving(
    address: tuple[str, int],
    states: States,
    *,
    hosts: Collection[str] = (),
    explain: Explain = lambda _: None,
    docs: str = "",
    now: Callable[[], datetime] = now_here,
) -> AsyncIterator[tuple[str, int]]:
    """Serve the board of the newest state for as long as the block lasts. Yields where.

    `hosts` are names that a proxy in front is asked by, besides those of this machine. `explain`
    says what the documents do of a unit; `docs` has the pages of reasons. Raises HostError.
    """
    newest = Newest(states)
    await newest.begin()
    site = _Site(newest, explain, docs, now)
    own = frozenset(map(str.lower, hosts)) if hosts or is_loopback_name(address[0]) else None
    router = requests.Router(site.routes())

    async def answer(request: requests.Request) -> requests.Response:
        _check_host(request, own)
        return await router(request)

    listening = Listening(address, None, requests.Proxies(()), _LIMITS)
    async with served(listening, answer, refusal_page=site.refusal) as where:
        following = asyncio.create_task(newest.follow())
        try:
            yield where
        finally:
            newest.close()
            following.cancel()
            await asyncio.wait([following])


def _check_host(request: requests.Request, own: Collection[str] | None) -> None:
    """Refuse names that are not ours. Raises RequestRefused."""
    host = request.headers.get("host", "").lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if own is not None and name not in own and not is_loopback_name(name):
        raise requests.RequestRefused(421, "this is not the site that was asked for")


@dataclass(frozen=True, slots=True)
class _Site:
    newest: Newest
    explain: Explain
    docs: str
    now: Callable[[], datetime]
    made: Made = field(default_factory=lambda: Made(time.monotonic, KEPT_FOR))
    # Of 100,000 units it takes a second of the whole process: once for each version.
    documents: Made = field(default_factory=lambda: Made(time.monotonic, inf))

    def routes(self) -> dict[str, dict[str, requests.Handler]]:
        """Return the handler of each path, for GET and HEAD alone."""
        handlers: dict[str, requests.Handler] = {
            "/": self._page(lambda index, _, query, now: overview(index, query, now)),
            "/clusters/{cluster}": self._page(
                lambda index, parts, query, now: cluster(index, parts["cluster"], query, now)
            ),
            "/units/{cluster}/{unit}": self._page(self._unit),
            "/plan": self._page(lambda index, _, query, now: plan(index, query, now)),
            "/history": self._page(lambda index, _, __, now: history(index, now)),
            "/status.json": self._document,
            "/events": self._events,
            "/assets/{name}": _asset,
        }
        return {path: {"GET": one, "HEAD": one} for path, one in handlers.items()}

    def refusal(self, request: requests.Request, status: int, sentence: str) -> requests.Response:
        """Return a refusal: a page for people, a line for programs."""
        if status not in _PAGES or not request.wants_html:
            return requests.plain(request, status, sentence)
        page = refusal(self.newest.index, status, sentence, self.now())
        return requests.Response(status, rendering.html(page).encode(), _HTML, _FRESH)

    def _page(self, make: Make) -> requests.Handler:
        async def handler(request: requests.Request) -> requests.Response:
            index, query = self.newest.index, _query(request)
            only = request.headers.get(_PART) == "live"

            def rendered() -> bytes:
                page = make(index, request.parts, query, self.now())
                if page is None:
                    return b""
                return (rendering.fragment if only else rendering.html)(page).encode()

            key = request.path, astuple(query), only
            body = await self.made.get(index.version, key, rendered, _party(request).owner)
            if not body:
                raise requests.RequestRefused(
                    404, "The fleet has nothing of this name, or not any more."
                )
            part = ((_PART, "live"),) if only else ()
            return requests.Response(200, body, _HTML, (*_FRESH, *part))

        return handler

    def _unit(
        self, index: Index, parts: Mapping[str, str], _query: Query, now: datetime
    ) -> Page | None:
        key = parts["cluster"], parts["unit"]
        return unit(index, *key, now, explain=self.explain, docs=self.docs)

    async def _document(self, request: requests.Request) -> requests.Response:
        index = self.newest.index

        def written() -> bytes:
            return status_document.dump_state(index.state, self.now()).encode()

        body = await self.documents.get(index.version, "", written, _party(request).owner)
        return requests.Response(200, body, "application/json", _FRESH)

    async def _events(self, request: requests.Request) -> requests.Response:
        party = _party(request)
        if not self.newest.has_room(party):
            raise requests.RequestRefused(
                503, "too many follow already: reload the page now and then"
            )
        stream = partial(self.newest.session, party)
        return requests.Response(200, b"", "text/event-stream", _FRESH, stream=stream)


def _party(request: requests.Request) -> Party:
    """Return the address of a request, and within it the address that a proxy there appended."""
    address = requests.address_of(request.address) or requests.NOWHERE
    forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return Party(requests.address_key(address), forwarded)


def _query(request: requests.Request) -> Query:
    try:
        return parse(request.query)
    except ConfigError as error:
        raise requests.RequestRefused(400, f"{error}.") from None


async def _asset(request: requests.Request) -> requests.Response:
    asset = rendering.ASSETS.get(request.parts["name"])
    if asset is None:
        raise requests.RequestRefused(404, "there is nothing here")
    return requests.Response(200, asset.body, asset.content_type, _LASTING)


def reached_by_others(
    address: tuple[str, int], *, behind_proxy: bool, option: str, permit: str
) -> bool:
    """Return whether others than this machine reach an address, past the proxy in front of it.

    `option` gave the address, and `permit` says that there is such a proxy, which authenticates.

    Raises:
        BadParameter: others reach it, and no proxy is said to be there.
    """
    if is_loopback_name(address[0]):
        return False
    if not behind_proxy:
        raise typer.BadParameter(
            "the board has no login, and others reach this address: a proxy that authenticates "
            f"has to stand in front of it. Give {permit} where one does",
            param_hint=f"'{option}'",
        )
    return True


class Explaining:
    """Explains units by the newest snapshot, which is read once a person asks for the first one.

    May be called from any thread.
    """

    def __init__(self, newest: Callable[[], Snapshot | None]) -> None:
        self._newest = newest
        self._snapshot: Snapshot | None = None
        self._loaded: Loaded | None = None
        self._lock = threading.Lock()

    def __call__(self, key: UnitKey) -> why.Provenance | None:
        """Return the provenance of a unit in the files; None where they do not name it."""
        loaded = self._read(self._newest())
        return why.provenance(loaded, Target(key.cluster, key.name)) if loaded else None

    def _read(self, snapshot: Snapshot | None) -> Loaded | None:
        with self._lock:
            if snapshot is not self._snapshot:
                loaded = load_valid_part(snapshot, []) if snapshot is not None else None
                self._snapshot, self._loaded = snapshot, loaded
            return self._loaded
