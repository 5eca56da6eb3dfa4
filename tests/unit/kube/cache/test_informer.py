"""How long an informer waits between attempts, and how it takes over a list that comes in pages."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from reconciler.core.errors import Expired
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.cluster import Connectivity, Listing, WatchEvent
from reconciler.kube.informer import Informer
from reconciler.kube.limits import pause
from reconciler.kube.requests import ListQuery
from tests.support.churn import following
from tests.support.eventually import eventually

PAUSES = {
    "after a watch that ended as it should": (0, None, 0.0, 0.1),
    "after the first failure": (1, None, 0.0, 0.2),
    "it doubles": (4, None, 0.0, 1.6),
    "jitter only doubles it": (4, None, 1.0, 3.2),
    "it is bounded": (10_000, None, 1.0, 30.0),
    "all do not come back at once": (10_000, None, 0.0, 15.0),
    "the server asks for more": (1, 20.0, 1.0, 20.0),
    "the server asks for less": (9, 1.0, 1.0, 30.0),
}


@pytest.mark.parametrize(("failures", "asked", "jitter", "want"), PAUSES.values(), ids=PAUSES)
def test_pause(failures, asked, jitter, want):
    assert pause(failures, asked=asked, jitter=jitter) == pytest.approx(want)


ALL: Final = Ref("plane", CONFIG_MAP, "", "")


class Server:
    """Holds three objects in pages of one; `turn` lets a page be read."""

    name = "plane"

    def __init__(self, *, forgets: bool = False) -> None:
        self.connectivity = Connectivity()
        self.turn = asyncio.Semaphore(0)
        self.watched, self.version, self.ends, self.asked = "", "7", False, 0
        self._forgets = forgets

    def allow(self, pages: int) -> None:
        for _ in range(pages):
            self.turn.release()

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        if not query.limit:
            yield Listing(objects("a", "b", "c"), "8")
            return
        for name in "abc":
            self.asked += 1
            await self.turn.acquire()
            if name == "c" and self._forgets:
                raise Expired("too old", ref=ALL, verb="list")
            yield Listing(objects(name), self.version)

    @asynccontextmanager
    async def watch(
        self, ref: Ref, query: ListQuery, *, resource_version: str, **how: Any
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self.watched = resource_version
        yield nothing(self.ends)


async def nothing(ends: bool) -> AsyncIterator[WatchEvent]:
    if not ends:
        await asyncio.Event().wait()
    for event in tuple[WatchEvent, ...]():
        yield event


def objects(*names: str) -> Sequence[Manifest]:
    return [
        {"metadata": {"namespace": "dev", "name": name, "resourceVersion": "1"}} for name in names
    ]


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_a_list_counts_when_its_last_page_was_read(server: Any) -> None:
    async with following(informer := Informer(server, CONFIG_MAP)):
        server.allow(2)
        await eventually(server.turn.locked)
        assert (informer.store.names("dev"), informer.synced) == ([], False)
        server.allow(1)
        await eventually(lambda: server.watched == "7")
        assert (informer.store.names("dev"), informer.synced) == (["a", "b", "c"], True)


async def test_pages_that_the_server_forgets_are_read_at_once() -> None:
    server: Any = Server(forgets=True)
    async with following(informer := Informer(server, CONFIG_MAP)):
        server.allow(3)
        await eventually(lambda: server.watched == "8")
        assert informer.store.names("dev") == ["a", "b", "c"]


async def test_a_view_is_read_again_after_each_history_that_another_noticed(server: Any) -> None:
    """Else all controllers of the cluster wait until the server ends its watch."""
    async with following(informer := Informer(server, CONFIG_MAP)):
        server.allow(1)
        await eventually(server.turn.locked)
        server.connectivity.set_back()
        server.allow(5)
        await eventually(lambda: (informer.history, server.watched) == (2, "7"), within=5)
        for _ in range(4):  # while the watch ends, too
            server.connectivity.set_back()
            await asyncio.sleep(0)
        server.allow(99)
        await server.connectivity.wait_viewed()
        assert informer.history == 6


async def test_a_view_is_in_doubt_after_an_outage_until_its_watch_lasts(server: Any) -> None:
    """A server that was set back may be ahead by then, and refuses a watch in its stream."""
    server.ends = True
    async with following(informer := Informer(server, CONFIG_MAP)):
        server.allow(99)
        await eventually(lambda: informer.restarts > 1)
        server.connectivity.report()
        restarts = informer.restarts
        await eventually(lambda: informer.restarts > restarts)
        assert server.connectivity.doubts()
        server.ends = False
        await server.connectivity.wait_viewed()
        server.connectivity.report()  # the watch went on
        assert not server.connectivity.doubts()


@pytest.mark.parametrize(("version", "history"), [("3", 2), ("", 1)], ids=["back", "unknown"])
async def test_all_informers_notice_one_history(server: Any, version: str, history: int) -> None:
    server.ends, informers = True, [Informer(server, CONFIG_MAP) for _ in range(3)]
    async with following(informers[0]), following(informers[1]), following(informers[2]):
        server.allow(9)
        await eventually(lambda: server.asked == 12)
        server.version = version
        server.allow(99)
        await eventually(lambda: min(one.restarts for one in informers) > 3)
        assert {one.history for one in (*informers, server.connectivity)} == {history}
