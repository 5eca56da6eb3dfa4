"""What stands before a cluster costs nothing. The rest needs API servers."""

import weakref
from typing import Any

from konnector.switching import Switching
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.cluster import Listing
from reconciler.kube.recovery import Recovery


class Items(list[Any]):
    """One that can be seen to go."""


class Server:
    """Has two pages, and looks whether somebody keeps the first while it reads the second."""

    name = "plane"

    def __init__(self):
        self.recovery = Recovery()
        self.kept = True

    async def pages(self, kind, **how):
        first = Items([{}])
        seen = weakref.ref(first)
        yield Listing(first, "1")
        del first
        self.kept = seen() is not None
        yield Listing([{}], "2")

    async def close(self):
        pass


def server() -> Any:
    return Server()


async def test_a_page_is_not_kept_while_the_next_is_read():
    real = server()
    pages = Switching(real).pages(CONFIG_MAP)
    versions = []
    async for page in pages:
        versions.append(page.resource_version)
        del page
    assert versions == ["1", "2"]
    assert not real.kept


async def test_a_new_way_counts_as_a_recovery_and_the_old_one_no_more():
    old, new, told = server(), server(), []
    cluster = Switching(old)
    cluster.recovery.follow(lambda: told.append("back"))
    old.recovery.tell()
    assert len(told) == 1
    await cluster.switch(new)
    assert len(told) == 2
    old.recovery.tell()
    assert len(told) == 2
    new.recovery.tell()
    assert len(told) == 3
