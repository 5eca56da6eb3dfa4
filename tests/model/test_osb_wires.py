"""The scripted broker without sockets: calls of the product, outcomes of the product."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from reconciler.blueprints.offering import messages
from reconciler.blueprints.offering.messages import OriginatingIdentity
from reconciler.blueprints.offering.outcomes import (
    Accepted,
    Busy,
    Conflict,
    Done,
    Gone,
    Outcome,
    Progress,
    Unknown,
)
from reconciler.broker.address import Basic, BrokerAddress
from reconciler.broker.client import BrokerClient
from reconciler.core.secret import Secret
from tests.kit.osb import BrokerWires
from tests.support import osb_faults
from tests.support.cues import AFTER
from tests.support.faults import Crash, SimulatedCrash, deeds
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_requests import BINDING, CONTEXT, INSTANCE
from tests.support.osb_wire import MUTATING

IDENTITY = OriginatingIdentity({"username": "somebody", "uid": "1", "groups": []})


URL = "https://broker.example"


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker(now=lambda: asyncio.get_running_loop().time())


@pytest.fixture
def wires(broker: ScriptedBroker) -> Iterator[BrokerWires]:
    wires = BrokerWires({URL: broker})
    with wires.plugged():
        yield wires


@pytest.fixture
async def calls(broker: ScriptedBroker, wires: BrokerWires) -> AsyncIterator["Calls"]:
    address = BrokerAddress(URL, Basic(broker.user, Secret(broker.password)))
    async with BrokerClient(address, timeout=timedelta(seconds=60)) as client:
        yield Calls(client, broker)


class Calls:
    """The calls of one instance and its binding."""

    def __init__(self, client: BrokerClient, broker: ScriptedBroker) -> None:
        self.client = client
        offering = broker.catalogue["services"][0]
        self.ids: tuple[str, str, str] = INSTANCE, offering["id"], offering["plans"][0]["id"]
        service, plan = self.ids[1:]
        self.bound = INSTANCE, BINDING, service, plan

    async def make(self, call: messages.Call) -> Outcome:
        return await self.client.call(call, identity=IDENTITY)

    async def provision(self, **more) -> Outcome:
        return await self.make(messages.Provision(*self.ids, "org", "space", CONTEXT, **more))

    async def bind(self) -> Outcome:
        return await self.make(messages.Bind(*self.bound, "space", CONTEXT))

    async def deprovision(self) -> Outcome:
        return await self.make(messages.Deprovision(*self.ids))


async def test_calls_come_to_outcomes(broker, calls):
    assert await calls.provision() == Done(
        dashboard_url=f"https://dashboard.example/{INSTANCE}", created=True
    )
    assert isinstance(await calls.provision(parameters={"a": 1}), Conflict)
    bound = await calls.bind()
    assert isinstance(bound, Done)
    assert bound.credentials is not None
    assert isinstance(await calls.make(messages.Unbind(*calls.bound)), Gone)
    assert isinstance(await calls.deprovision(), Gone)
    assert isinstance(await calls.deprovision(), Gone)
    catalogue = await calls.client.catalogue()
    assert [offering.name for offering in catalogue.offerings] == ["database"]
    assert broker.violations == []
    assert broker.inventory.is_empty


async def test_operations_are_polled_on_the_clock_of_the_loop(broker, calls: Calls):
    broker.modes.asynchronous, broker.modes.takes = MUTATING, 3600.0
    broker.modes.retry_after = 600
    begun = await calls.provision()
    assert isinstance(begun, Accepted)
    assert begun.retry_after == timedelta(minutes=10)
    poll = messages.LastOperation(*calls.ids, begun.operation)
    states = []
    while "succeeded" not in states:
        progress = await calls.make(poll)
        assert isinstance(progress, Progress)
        states.append(progress.state)
        await asyncio.sleep(600)
    assert len(states) == 7
    assert broker.violations == []


async def test_faults_come_to_outcomes_too(broker, calls):
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for fault in (osb_faults.hangs(), osb_faults.cuts(), osb_faults.endless()):
        broker.faults.add("provision", fault, times=1)
        assert isinstance(await calls.provision(), Unknown)
    assert loop.time() - begun == pytest.approx(60, abs=1)
    broker.faults.add("provision", osb_faults.broken_json(201), times=1)
    malformed = await calls.provision()
    assert isinstance(malformed, Unknown)
    assert malformed.malformed
    broker.faults.add("provision", osb_faults.busy(), times=1)
    assert isinstance(await calls.provision(), Busy)


async def test_a_process_dies_of_a_call_as_of_a_write(broker, wires, calls):
    wires.faults.add(deeds().nth(2), Crash(), at=AFTER)
    await calls.provision()
    with pytest.raises(SimulatedCrash):
        await calls.bind()
    assert BINDING in broker.inventory.bindings
    with pytest.raises(SimulatedCrash):
        await calls.deprovision()
    assert INSTANCE in broker.inventory.instances
