"""The broker of the example dies again and again, and who asks again gets what there is to be.

Each broker makes one change more than the one before, and dies: so every state between two changes
is met by a new one.
"""

import hashlib
from contextlib import suppress

import pytest

from postgresql_broker import instances
from postgresql_broker.broker import Broker
from postgresql_broker.catalogue import BIG, OFFERING, SESSIONS, SMALL
from postgresql_broker.instances import Binding, Change
from postgresql_broker.refusal import Refusal
from postgresql_broker.store import Rows
from postgresql_server import postgres
from postgresql_server.postgres import Postgres
from reconciler.core.secret import Secret
from tests.support.brokered import fresh
from tests.support.eventually import eventually
from tests.support.faults import SimulatedCrash

MANY = 30
KEY = Secret("of all brokers of this server")


class Lives:
    """How many changes a broker makes before it dies; None: it lives on."""

    def __init__(self, monkeypatch):
        self.left = None
        for place, name in (
            (postgres, "_run"),
            (Rows, "put_instance"),
            (Rows, "drop_instance"),
            (Rows, "put_binding"),
            (Rows, "drop_binding"),
        ):
            monkeypatch.setattr(place, name, self._dying(getattr(place, name)))

    def _dying(self, real):
        async def change(*given):
            if self.left == 0:
                raise SimulatedCrash
            await real(*given)
            if self.left is not None:
                self.left -= 1

        return change


@pytest.fixture
def lives(monkeypatch):
    return Lives(monkeypatch)


async def after_deaths(server, lives, call):
    """Have brokers die within a call until it is answered; return the answer, and the deaths."""
    for deaths in range(MANY):
        lives.left = deaths
        broker = await started(server)
        try:
            answer = await call(broker)
        except SimulatedCrash:
            continue
        finally:
            lives.left = None
            await broker.stop()
        return answer, deaths
    raise AssertionError(f"there is no answer after {MANY} deaths")


async def started(server, *, asynchronous=False):
    """Return a broker that goes on with nothing by itself: the calls have to do."""
    found = Broker(Postgres(server.address, "tests"), KEY, asynchronous=asynchronous)
    await found._store.open(hashlib.sha256(KEY.reveal().encode()).hexdigest())
    return found


def wanted(instance, plan=SMALL, **parameters):
    return Change(instance, OFFERING, fresh(), plan=plan, parameters=parameters)


async def ended(call):
    """Ask for an end, which an earlier call may have brought about."""
    with suppress(Refusal):
        await call


async def test_every_call_comes_to_its_end(server, lives):
    one = fresh()
    binding = Binding(one, "web", SMALL, {})

    calls = {
        "provision": lambda broker: broker.provision(wanted(one), may_wait=True),
        "update": lambda broker: broker.update(wanted(one, BIG, **{SESSIONS: 9}), may_wait=True),
        "bind": lambda broker: broker.bind(binding),
        "unbind": lambda broker: ended(broker.unbind(one, "web")),
        "deprovision": lambda broker: ended(broker.deprovision(one, may_wait=True)),
    }
    database = instances.database_of(one)
    died = {}
    for name, call in calls.items():
        answer, died[name] = await after_deaths(server, lives, call)
        if name == "update":
            found = server.ask(f"SELECT datconnlimit FROM pg_database WHERE datname='{database}'")
            assert found == [(9,)]
        if name == "bind":
            way = {"dbname": database, "user": answer.credentials["username"]}
            assert server.ask("SELECT 1", **way, password=answer.credentials["password"]) == [(1,)]
    assert min(died.values()) >= 2, died
    assert database not in server.databases() | server.roles()
    assert instances.role_of(binding) not in server.roles()


async def test_a_server_that_is_away_only_delays_what_was_accepted(server, caplog):
    address = server.address.read_text()
    one, broker = fresh(), await started(server, asynchronous=True)
    try:
        async with broker._store.turn(one):  # what is to be done waits until the server is away
            waiting = wanted(one)
            async with broker._store.read() as rows:
                await rows.put_instance(instances.provision(None, waiting))
            broker._go_on(one)
            server.address.write_text(address.replace(str(server.port), "1"))
        await eventually(lambda: "an operation failed" in caplog.text)
        server.address.write_text(address)

        async def done():
            found = await broker.last_operation(one)
            return found is not None and found.done

        await eventually(done)
        assert instances.database_of(one) in server.databases()
    finally:
        server.address.write_text(address)
        await broker.stop()
