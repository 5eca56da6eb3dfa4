"""The scripted broker over HTTP: as without sockets, and hostile in the ways of a network."""

import asyncio
from collections.abc import Callable, Iterator

import aiohttp
import pytest

from tests.support import osb_faults
from tests.support.eventually import eventually
from tests.support.osb_script import ServedBroker, scripted


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    with scripted() as made:
        yield made


def session(broker: ServedBroker) -> aiohttp.ClientSession:
    headers = {
        "Authorization": aiohttp.encode_basic_auth(broker.user, broker.password),
        "X-Broker-API-Version": "2.17",
        "X-Broker-API-Request-Identity": "r1",
    }
    return aiohttp.ClientSession(headers=headers)


async def status(broker: ServedBroker, path: str = "/v2/catalog", **options) -> int:
    async with (
        session(broker) as made,
        made.get(broker.url + path, allow_redirects=False, **options) as response,
    ):
        await response.read()
        return response.status


async def test_it_serves_its_catalogue_and_stops_and_starts_where_it_was(broker):
    assert await status(broker) == 200
    broker.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await status(broker)
    broker.start()
    assert await status(broker) == 200
    assert [entry.status for entry in broker.journal] == [200, 200]
    assert await status(broker, "/v3") == 404
    assert broker.violations == []


async def test_it_hangs_until_its_client_goes(broker):
    broker.faults.add("catalogue", osb_faults.hangs(), times=1)
    hanging = asyncio.create_task(status(broker))
    await until(lambda: broker.under_way == 1)
    assert not hanging.done()
    hanging.cancel()
    await until(lambda: broker.under_way == 0)
    assert await status(broker) == 200


async def test_it_cuts_floods_and_leads_elsewhere(broker):
    broker.faults.add("catalogue", osb_faults.cuts())
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await status(broker)  # aiohttp asks twice
    broker.faults.clear()
    broker.faults.add("catalogue", osb_faults.redirects(broker.url), times=1)
    assert await status(broker) == 302
    broker.faults.add("catalogue", osb_faults.endless(), times=1)
    async with session(broker) as made, made.get(f"{broker.url}/v2/catalog") as response:
        assert len(await response.content.readexactly(2**20)) == 2**20
    await until(lambda: broker.under_way == 0)


async def test_two_changes_of_one_instance_at_once_are_noted(broker):
    broker.faults.add("deprovision", osb_faults.hangs(), times=1)
    ids = "accepts_incomplete=true&service_id=s&plan_id=p"
    async with session(broker) as made:

        async def delete() -> None:
            async with made.delete(f"{broker.url}/v2/service_instances/i?{ids}") as response:
                await response.read()

        first = asyncio.create_task(delete())
        await until(lambda: broker.under_way == 1)
        await delete()
        first.cancel()
    assert broker.peak == 2
    assert [one.rpartition(": ")[2] for one in broker.violations] == ["another is under way"]


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds)
