"""The least that syncs claims: watches of both sides, and three writes for each object.

A process of its own, on uvloop, with aiohttp and orjson directly. A claim that comes is held and
marked, is copied up, and gets the status of its copy. It keeps no object, compares nothing, repeats
nothing, reads no answer but for its status code, and passes by whatever of aiohttp costs time:
cookies, URLs that are parsed, tasks for nothing.

Figures are compared for years, so this file stays as it is (`konnectors.py` has its digest): a
commit that changes it changes nothing else, and says why.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import uvloop
from yarl import URL

from reconciler.core import keys
from reconciler.kube import kubeconfig
from reconciler.kube.connection import ClientCertificate, Token
from reconciler.kube.requests import MERGE_PATCH
from reconciler.kube.transport import ssl_context

READY: Final = "ready"
MARKS: Final = {keys.BOUND: keys.BOUND_VALUE}


@dataclass(frozen=True, slots=True)
class Orders:
    """What to sync, and with which kubeconfigs. `homes` are service namespaces by app namespace.

    `in_flight` objects are worked on at once.
    """

    app: str
    plane: str
    path: str  # of the API group and version
    kind: str
    plural: str
    homes: dict[str, str]
    in_flight: int = 32


Object = dict[str, Any]
# Returns what an event asks for, None for nothing.
Work = Callable[[Object], Coroutine[Any, Any, None] | None]


@dataclass(frozen=True, slots=True)
class Server:
    """A session, and the URL that its paths are appended to."""

    session: aiohttp.ClientSession
    url: str

    async def write(self, method: str, path: str, body: Object, content_type: str) -> None:
        async with self.session.request(
            method,
            URL(self.url + path, encoded=True),
            data=orjson.dumps(body),
            headers={"Content-Type": content_type},
        ) as response:
            answer = await response.read()
            assert response.status < 300, answer


class Loop:
    """One sync, from the state of both sides at its start."""

    def __init__(self, orders: Orders, app: Server, plane: Server) -> None:
        self._orders, self._app, self._plane = orders, app, plane
        self._apps = {service: app for app, service in orders.homes.items()}
        self._turn = asyncio.Semaphore(orders.in_flight)

    async def run(self) -> None:
        """Sync until cancelled; say so when all is watched."""
        orders = self._orders
        watched: list[tuple[Server, str, Work]] = [
            (self._app, f"{orders.path}/{orders.plural}", self._claim)
        ]
        watched += [
            (self._plane, self._collection(home), self._copy) for home in orders.homes.values()
        ]
        places = [await _place(server.session, path) for server, path, _ in watched]
        async with asyncio.TaskGroup() as group:
            for (server, path, work), place in zip(watched, places, strict=True):
                changes = events(server.session, path, place)
                group.create_task(self._follow(changes, work, group))
            print(READY, flush=True)

    async def _follow(
        self, changes: AsyncIterator[Object], work: Work, group: asyncio.TaskGroup
    ) -> None:
        async for event in changes:
            if event["type"] in ("ADDED", "MODIFIED"):
                asked = work(event["object"])
                if asked is not None:
                    group.create_task(self._in_turn(asked))

    async def _in_turn(self, asked: Coroutine[Any, Any, None]) -> None:
        async with self._turn:
            await asked

    def _claim(self, claim: Object) -> Coroutine[Any, Any, None] | None:
        metadata = claim["metadata"]
        if "finalizers" in metadata or metadata["namespace"] not in self._orders.homes:
            return None
        return self._up(claim, metadata)

    async def _up(self, claim: Object, metadata: Object) -> None:
        """Hold and mark what is new, and copy it up."""
        held = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": [keys.SYNCER],
            "annotations": MARKS,
        }
        here = f"{self._collection(metadata['namespace'])}/{metadata['name']}"
        await self._app.write("PATCH", here, {"metadata": held}, MERGE_PATCH)
        home = self._orders.homes[metadata["namespace"]]
        copy = {
            "apiVersion": claim["apiVersion"],
            "kind": claim["kind"],
            "metadata": {"name": metadata["name"], "namespace": home, "annotations": MARKS},
            "spec": claim["spec"],
        }
        await self._plane.write("POST", self._collection(home), copy, "application/json")

    def _copy(self, copy: Object) -> Coroutine[Any, Any, None] | None:
        return self._down(copy) if "status" in copy else None

    async def _down(self, copy: Object) -> None:
        """Bring the status down."""
        metadata = copy["metadata"]
        here = f"{self._collection(self._apps[metadata['namespace']])}/{metadata['name']}/status"
        await self._app.write("PATCH", here, {"status": copy["status"]}, MERGE_PATCH)

    def _collection(self, namespace: str) -> str:
        return f"{self._orders.path}/namespaces/{namespace}/{self._orders.plural}"


def server_of(file: Path) -> Server:
    """Return a plain way to a server as the user of a kubeconfig. Close its session."""
    way = kubeconfig.load([file], environ={}, name=file.stem)
    certificate = way.credential if isinstance(way.credential, ClientCertificate) else None
    session = aiohttp.ClientSession(
        way.server,
        connector=aiohttp.TCPConnector(ssl=ssl_context(way, certificate), limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        auto_decompress=False,
    )
    if isinstance(way.credential, Token):
        session.headers["Authorization"] = f"Bearer {way.credential.token.reveal()}"
    return Server(session, way.server)


async def events(
    session: aiohttp.ClientSession, path: str, place: str
) -> AsyncIterator[dict[str, Any]]:
    """Yield what happens from a resourceVersion on. Servers end a watch that they find slow."""
    forever = aiohttp.ClientTimeout(total=None)
    while True:
        target, rest = f"{path}?watch=1&resourceVersion={place}", b""
        async with session.get(target, timeout=forever) as response:
            assert response.status == 200, response.status
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = orjson.loads(line)
                    place = event["object"]["metadata"]["resourceVersion"]
                    yield event


async def _place(session: aiohttp.ClientSession, path: str) -> str:
    async with session.get(f"{path}?limit=1") as response:
        assert response.status == 200, response.status
        version: str = orjson.loads(await response.read())["metadata"]["resourceVersion"]
        return version


async def _main(orders: Orders) -> None:
    async with AsyncExitStack() as stack:
        app, plane = (server_of(Path(file)) for file in (orders.app, orders.plane))
        await stack.enter_async_context(app.session)
        await stack.enter_async_context(plane.session)
        await Loop(orders, app, plane).run()


if __name__ == "__main__":
    uvloop.run(_main(Orders(**json.loads(sys.argv[1]))))
