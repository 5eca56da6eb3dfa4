"""A provider that answers what the original does, and a browser that signs in at once.

As in 03-default-mode-oidc: `/export`, and at `/authorize` the redirect to the CLI's callback, where
the original ends, with the response in the URL-safe alphabet. There is no well-known document.
"""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
from aiohttp import web

from tests.support import programs

_EXPORT = {
    "kind": "BindingProvider",
    "apiVersion": "v1alpha1",
    "providerPrettyName": "example-backend",
    "version": "v0.0.0",
}


@dataclass
class OriginalProvider:
    """`respond` makes the BindingResponse for a session; `asked` are the queries of sign-ins."""

    respond: Callable[[str], Mapping[str, Any]]
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    async def export(self, request: web.Request) -> web.Response:
        grant = {"authenticatedURL": f"{self.url}/authorize"}
        method = {"method": "OAuth2CodeGrant", "oauth2CodeGrant": grant}
        return web.json_response({**_EXPORT, "authenticationMethods": [method]})

    async def authorize(self, request: web.Request) -> web.Response:
        query = {name: request.query[name] for name in ("s", "c", "p")}
        self.asked.append(dict(request.query))
        response = base64.urlsafe_b64encode(json.dumps(self.respond(query["s"])).encode()).decode()
        place = f"http://localhost:{query['p']}/callback?response={response}"
        return web.Response(status=302, headers={"Location": place})


@contextlib.asynccontextmanager
async def original_provider(
    respond: Callable[[str], Mapping[str, Any]],
) -> AsyncIterator[OriginalProvider]:
    """Serve it on loopback for the length of the block."""
    provider = OriginalProvider(respond)
    app = web.Application()
    app.router.add_get("/export", provider.export)
    app.router.add_get("/authorize", provider.authorize)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    provider.url = f"http://{host}:{port}"
    try:
        yield provider
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run of a CLI came to; `pages` are the statuses that the browser met."""

    code: int
    stdout: str
    stderr: str
    pages: tuple[int, ...]


async def visited(url: str) -> list[int]:
    """Follow a URL, as a browser does, to the end."""
    resolver = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(
            connector=resolver, max_line_size=1 << 17, max_field_size=1 << 17
        ) as browser,
        browser.get(url) as answer,
    ):
        await answer.read()
        return [*(one.status for one in answer.history), answer.status]


async def run(
    program: str,
    *arguments: str,
    answers: str = "",
    environ: Mapping[str, str],
    visit: Callable[[str], Awaitable[list[int]]] = visited,
    field: str = "s",
) -> Ended:
    """Run a CLI, visit the URL with this field that it prints, and give it the answers at once."""
    pages: list[int] = []

    async def heard(line: str) -> None:
        url = line.strip().rpartition(" ")[2]
        if field in parse_qs(urlsplit(url).query):
            pages.extend(await visit(url))

    done = await programs.conversed(
        program, *arguments, answers=answers, environ=environ, heard=heard
    )
    return Ended(done.returncode, done.stdout, done.stderr, tuple(pages))
