"""The least that syncs claims: watches of both sides, and three writes for each object.

A process of its own, on uvloop, with aiohttp and orjson directly and `CONCURRENCY` objects at
once. A claim that comes is held and marked, is copied up, and gets the status of its copy. It
keeps no cache, compares nothing, repeats nothing, and asserts that every call succeeds.
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

from reconciler.core import keys
from reconciler.kube import kubeconfig
from reconciler.kube.connection import Token
from reconciler.kube.requests import MERGE_PATCH
from tests.support.raw import http_session

CONCURRENCY: Final = 16
READY: Final = "ready"
MARKS: Final = {keys.BOUND: keys.BOUND_VALUE}


@dataclass(frozen=True, slots=True)
class Orders:
    """What to sync, and with which kubeconfigs. `homes` are service namespaces by app namespace."""

    app: str
    plane: str
    path: str  # of the API group and version
    kind: str
    plural: str
    homes: dict[str, str]


Object = dict[str, Any]
Work = Callable[[Object], Coroutine[Any, Any, None]]


class Loop:
    """One sync, from the state of both sides at its start."""

    def __init__(
        self, orders: Orders, app: aiohttp.ClientSession, plane: aiohttp.ClientSession
    ) -> None:
        self._orders, self._app, self._plane = orders, app, plane
        self._apps = {service: app for app, service in orders.homes.items()}
        self._turn = asyncio.Semaphore(CONCURRENCY)

    async def run(self) -> None:
        """Sync until cancelled; say so when all is watched."""
        orders = self._orders
        watched: list[tuple[aiohttp.ClientSession, str, Work]] = [
            (self._app, f"{orders.path}/{orders.plural}", self._claim)
        ]
        watched += [
            (self._plane, self._collection(home), self._copy) for home in orders.homes.values()
        ]
        places = [await _place(session, path) for session, path, _ in watched]
        async with asyncio.TaskGroup() as group:
            for (session, path, work), place in zip(watched, places, strict=True):
                group.create_task(self._follow(events(session, path, place), work, group))
            print(READY, flush=True)

    async def _follow(
        self, changes: AsyncIterator[Object], work: Work, group: asyncio.TaskGroup
    ) -> None:
        async for event in changes:
            if event["type"] in ("ADDED", "MODIFIED"):
                group.create_task(self._in_turn(work, event["object"]))

    async def _in_turn(self, work: Work, live: Object) -> None:
        async with self._turn:
            await work(live)

    async def _claim(self, claim: Object) -> None:
        """Hold and mark what is new, and copy it up."""
        metadata = claim["metadata"]
        if "finalizers" in metadata or metadata["namespace"] not in self._orders.homes:
            return
        held = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": [keys.SYNCER],
            "annotations": MARKS,
        }
        here = f"{self._collection(metadata['namespace'])}/{metadata['name']}"
        await _write(self._app, "PATCH", here, {"metadata": held}, MERGE_PATCH)
        home = self._orders.homes[metadata["namespace"]]
        copy = {
            "apiVersion": claim["apiVersion"],
            "kind": claim["kind"],
            "metadata": {"name": metadata["name"], "namespace": home, "annotations": MARKS},
            "spec": claim["spec"],
        }
        await _write(self._plane, "POST", self._collection(home), copy, "application/json")

    async def _copy(self, copy: Object) -> None:
        """Bring the status down."""
        if "status" not in copy:
            return
        metadata = copy["metadata"]
        here = f"{self._collection(self._apps[metadata['namespace']])}/{metadata['name']}/status"
        await _write(self._app, "PATCH", here, {"status": copy["status"]}, MERGE_PATCH)

    def _collection(self, namespace: str) -> str:
        return f"{self._orders.path}/namespaces/{namespace}/{self._orders.plural}"


def session_of(file: Path) -> aiohttp.ClientSession:
    """Return a plain session as the user of a kubeconfig. Close it."""
    way = kubeconfig.load([file], environ={}, name=file.stem)
    session = http_session(way)
    if isinstance(way.credential, Token):
        session.headers["Authorization"] = f"Bearer {way.credential.token.reveal()}"
    return session


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


async def _write(
    session: aiohttp.ClientSession, method: str, target: str, body: Object, content_type: str
) -> None:
    headers = {"Content-Type": content_type}
    data = orjson.dumps(body)
    async with session.request(method, target, data=data, headers=headers) as response:
        answer = await response.read()
        assert response.status < 300, answer
        orjson.loads(answer)


async def _main(orders: Orders) -> None:
    async with AsyncExitStack() as stack:
        app, plane = (session_of(Path(file)) for file in (orders.app, orders.plane))
        await stack.enter_async_context(app)
        await stack.enter_async_context(plane)
        await Loop(orders, app, plane).run()


if __name__ == "__main__":
    uvloop.run(_main(Orders(**json.loads(sys.argv[1]))))
