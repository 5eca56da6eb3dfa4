"""Calls that are on their way: what is sent, what is not, and what becomes of the answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from bind.osb.connections import Calls, Connection
from bind.osb.decisions.view import Ask
from bind.osb.informers import InstanceKey
from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering.messages import Deprovision
from reconciler.blueprints.offering.outcomes import Gone, Outcome
from reconciler.broker.client import BrokerClient
from reconciler.broker.gate import Gate, KeptCatalogue
from reconciler.controller.fence import WriteFence
from reconciler.controller.metrics import Metrics
from tests.support.eventually import eventually

KEY = InstanceKey("services.acme.example", "DatabaseInstance", "app", "orders")
ASK = Ask("id", Deprovision("id", "service", "plan"))


class Broker:
    """Notes what it is called with; answers once it may."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.may_answer = asyncio.Event()

    async def call(self, call: Any, *, identity: Any) -> Outcome:
        del identity
        self.calls.append(call)
        await self.may_answer.wait()
        return Gone()


class Scene:
    """Calls to one broker."""

    def __init__(self, fault: str = "") -> None:
        self.broker, self.fence = Broker(), WriteFence()
        self.enqueued: list[InstanceKey] = []
        self.calls = Calls[InstanceKey](self.fence, Metrics())
        self.calls.subscribe(self)
        gate = Gate(now=lambda: 0.0)
        client = cast("BrokerClient", self.broker)
        known = KeptCatalogue(gate, now=lambda: 0.0)
        self.connection = Connection(BrokerSpec("acme"), gate, known, client=client, fault=fault)

    def enqueue(self, key: InstanceKey) -> None:
        self.enqueued.append(key)

    def send(self) -> None:
        call = partial(self.connection.call, ASK.call, "shop", None)
        self.calls.send(KEY, ASK, self.connection, call)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.calls.run())
            await asyncio.sleep(0)
            yield
            self.calls.stop()


async def test_an_answer_stays_until_it_was_dealt_with():
    scene = Scene()
    async with scene.working():
        scene.send()
        await eventually(lambda: scene.broker.calls)
        assert scene.calls.asking(KEY)
        assert scene.calls.answer(KEY) is None
        scene.broker.may_answer.set()
        await eventually(lambda: scene.enqueued)
        answer = scene.calls.answer(KEY)
        assert answer is not None
        assert (answer.ask, answer.outcome) == (ASK, Gone())
        assert not scene.calls.asking(KEY)
        scene.calls.forget(KEY)
        assert scene.calls.answer(KEY) is None


@pytest.mark.parametrize("fault", ["its Secret is not there", ""])
async def test_a_broker_that_takes_no_calls_or_is_another_by_now_gets_none(fault):
    scene, another = Scene(fault), Broker()
    async with scene.working():
        scene.send()
        scene.connection.client = cast("BrokerClient", another)
        await eventually(lambda: scene.enqueued)
        answer = scene.calls.answer(KEY)
        assert answer is not None
        assert answer.outcome is None
    assert scene.broker.calls + another.calls == []


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "lost and not noticed yet"])
async def test_a_process_without_its_lease_calls_nobody(closed):
    scene = Scene()
    async with scene.working():
        with scene.fence.checking(lambda: "the lease ran out"):
            if closed:
                scene.fence.close("the lease was lost")
            scene.send()
            await eventually(lambda: not scene.calls.asking(KEY))
    assert scene.broker.calls == []
    assert scene.calls.answer(KEY) is None


async def test_what_is_on_its_way_is_given_up_at_the_end():
    scene = Scene()
    async with scene.working():
        scene.send()
        await eventually(lambda: scene.broker.calls)
    assert not scene.calls.asking(KEY)
    assert scene.calls.answer(KEY) is None
    scene.send()
    assert not scene.calls.asking(KEY)
