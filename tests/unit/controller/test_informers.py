"""A set of informers ends with a defect of what it calls."""

import asyncio
from typing import Any

import pytest

from reconciler.controller.manager import InformerSet
from reconciler.controller.metrics import Metrics
from reconciler.core.refs import SECRET, Ref


class SyncedInformer:
    ref, store, synced, trouble, restarts = Ref("app", SECRET, "", ""), (), True, "", 0

    async def wait_synced(self) -> None:
        return

    async def run(self) -> None:
        await asyncio.Event().wait()


async def test_a_defect_of_on_synced_ends_the_set() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    informer: Any = SyncedInformer()
    informers = InformerSet[str](Metrics())
    informers.add("orders", informer, on_synced=broken)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(5):
            await informers.run()
    assert caught.group_contains(ZeroDivisionError)
