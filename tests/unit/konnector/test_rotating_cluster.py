"""What stands before a cluster costs nothing. The rest needs API servers."""

import asyncio
import weakref
from typing import Any

from konnector.kubeconfig.connections import RotatingCluster
from reconciler.core.errors import Missing
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.cluster import EVERYTHING, Connectivity, Listing


class Items(list[Any]):
    """One that can be seen to go."""


class Server:
    """Has two pages, and looks whether somebody keeps the first while it reads the second."""

    name = "plane"

    def __init__(self):
        self.connectivity = Connectivity()
        self.kept = True
        self.closed = asyncio.Event()
        self.waits = asyncio.Event()

    async def send(self, request):
        await self.waits.wait()
        raise Missing("gone", ref=request.ref, verb=request.verb)

    async def pages(self, ref, query):
        first = Items([{}])
        seen = weakref.ref(first)
        yield Listing(first, "1")
        del first
        self.kept = seen() is not None
        yield Listing([{}], "2")

    async def close(self):
        self.closed.set()


def server() -> Any:
    return Server()


async def test_a_page_is_not_kept_while_the_next_is_read():
    real = server()
    pages = RotatingCluster(real).pages(Ref("plane", CONFIG_MAP, "", ""), EVERYTHING)
    versions = []
    async for page in pages:
        versions.append(page.resource_version)
        del page
    assert versions == ["1", "2"]
    assert not real.kept


async def test_a_new_way_counts_as_a_recovery_and_the_old_one_no_more():
    old, new, told = server(), server(), []
    cluster = RotatingCluster(old)
    cluster.connectivity.follow(lambda: told.append("back"))
    old.connectivity.report()
    assert len(told) == 1
    cluster.rotate(new)
    assert len(told) == 2
    old.connectivity.report()
    assert len(told) == 2
    new.connectivity.report()
    assert len(told) == 3
    await cluster.close()


async def test_an_old_way_is_closed_when_the_last_call_over_it_has_ended():
    old, new = server(), server()
    cluster = RotatingCluster(old)
    call = asyncio.create_task(cluster.get(Ref("plane", CONFIG_MAP, "here", "one")))
    await asyncio.sleep(0)
    cluster.rotate(new)
    await asyncio.sleep(0)
    assert not old.closed.is_set()
    old.waits.set()
    await call
    await asyncio.wait_for(old.closed.wait(), 5)
    assert not new.closed.is_set()
    await cluster.close()
    assert new.closed.is_set()


async def test_closing_waits_for_no_call_over_an_old_way():
    old, new = server(), server()
    cluster = RotatingCluster(old)
    call = asyncio.create_task(cluster.get(Ref("plane", CONFIG_MAP, "here", "one")))
    await asyncio.sleep(0)
    cluster.rotate(new)
    await asyncio.wait_for(cluster.close(), 5)
    assert (old.closed.is_set(), new.closed.is_set()) == (True, True)
    call.cancel()
