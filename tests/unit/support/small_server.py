"""A small HTTP server to stand a proxy before, and calls that a test makes to it."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

CUTS = (aiohttp.ClientError, ConnectionResetError)


class Server:
    """Remembers writes; streams the lines that a test puts into `lines`, None ends the stream."""

    def __init__(self):
        self.writes = []
        self.headers = []
        self.connections = set()
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.left = asyncio.Event()

    def app(self):
        app = web.Application()
        app.router.add_get("/long", self.long)
        app.router.add_get("/watch", self.watch)
        app.router.add_route("PATCH", "/things/{name}", self.write)
        return app

    def note(self, request):
        self.headers.append(dict(request.headers))
        self.connections.add(request.transport.get_extra_info("peername"))

    async def long(self, request):
        self.note(request)
        return web.Response(text="0123456789" * 10)

    async def write(self, request):
        self.note(request)
        self.writes.append(f"{request.match_info['name']}={await request.text()}")
        return web.json_response({"written": True}, status=201, headers={"X-Own": "kept"})

    async def watch(self, request):
        self.note(request)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while line := await self.lines.get():
                await response.write(line)
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        return response


async def patch(client, name="x", body="1", **kwargs):
    async with client.patch(f"/things/{name}", data=body, **kwargs) as response:
        return response.status, await response.text()


@asynccontextmanager
async def watching(client):
    async with client.get("/watch", params={"watch": "true"}) as response:
        yield response.content
