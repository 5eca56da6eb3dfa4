"""How an informer takes over a list that comes in pages. The rest needs an API server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from reconciler.core.errors import Expired
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.cache.informer import Informer
from reconciler.kube.cluster import Listing, WatchEvent
from reconciler.kube.connectivity import Connectivity
from reconciler.kube.requests import ListQuery
from tests.support.eventually import eventually

ALL: Final = Ref("plane", CONFIG_MAP, "", "")


class Server:
    """Holds three objects in pages of one; `turn` lets a page be read."""

    name = "plane"

    def __init__(self, *, forgets: bool = False) -> None:
        self.connectivity = Connectivity()
        self.turn = asyncio.Semaphore(0)
        self.watched = ""
        self._forgets = forgets

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        if not query.limit:
            yield Listing(objects("a", "b", "c"), "8")
            return
        for name in "abc":
            await self.turn.acquire()
            if name == "c" and self._forgets:
                raise Expired("too old", ref=ALL, verb="list")
            yield Listing(objects(name), "7")

    @asynccontextmanager
    async def watch(
        self, ref: Ref, query: ListQuery, *, resource_version: str, **how: Any
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self.watched = resource_version
        await asyncio.Event().wait()
        yield nothing()


async def nothing() -> AsyncIterator[WatchEvent]:
    return
    yield


def objects(*names: str) -> Sequence[Manifest]:
    return [
        {"metadata": {"namespace": "dev", "name": name, "resourceVersion": "1"}} for name in names
    ]


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_a_list_counts_when_its_last_page_was_read(server: Any) -> None:
    informer = Informer(server, CONFIG_MAP)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(informer.run())
        server.turn.release()
        server.turn.release()
        await eventually(server.turn.locked)
        assert (informer.store.names("dev"), informer.synced) == ([], False)
        server.turn.release()
        await informer.wait_synced()
        assert informer.store.names("dev") == ["a", "b", "c"]
        await eventually(lambda: server.watched == "7")
        running.cancel()


async def test_pages_that_the_server_forgets_are_read_at_once() -> None:
    server: Any = Server(forgets=True)
    informer = Informer(server, CONFIG_MAP)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(informer.run())
        for _ in range(3):
            server.turn.release()
        await informer.wait_synced()
        assert informer.store.names("dev") == ["a", "b", "c"]
        await eventually(lambda: server.watched == "8")
        running.cancel()
