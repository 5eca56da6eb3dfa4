"""The broker of the example on a real PostgreSQL: what platforms ask for is there, and survives."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from postgresql_broker.catalogue import BIG, ENCODING, OFFERING, SESSIONS, SMALL
from postgresql_broker.instances import database_of
from postgresql_broker.store import Store
from postgresql_server.postgres import Postgres
from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering import messages
from reconciler.blueprints.offering.catalogue import MaintenanceInfo
from reconciler.blueprints.offering.outcomes import Absent, Done, Gone
from reconciler.broker.client import BrokerClient, address_of
from reconciler.core.errors import ConfigError
from tests.support.eventually import eventually
from tests.support.operated import fresh, running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(server, folder):
    with running(server, folder) as one:
        yield one


@pytest.fixture(scope="module")
def platform(broker):
    return broker.platform


@pytest.fixture
def instance(platform):
    """An instance that is there, and goes with all its bindings."""
    name = fresh()
    assert platform.provision(name).status == 201
    yield name
    assert platform.deprovision(name).status in (200, 410)


def sql(server, credentials, query):
    way = {"dbname": credentials["database"], "user": credentials["username"]}
    return server.ask(query, **way, password=credentials["password"])


def limit_of(server, instance):
    """Return how many sessions a database takes, and how it stores texts."""
    query = "SELECT datconnlimit, pg_encoding_to_char(encoding) FROM pg_database WHERE datname="
    ((limit, encoding),) = server.ask(f"{query}'{database_of(instance)}'")
    return limit, encoding


def is_refused(server, credentials):
    """Return whether these credentials lead nowhere."""
    with pytest.raises(psycopg.OperationalError) as failure:
        sql(server, credentials, "SELECT 1")
    return "password authentication failed" in str(failure.value)


def test_an_instance_is_a_database_as_its_plan_and_parameters_say(server, platform):
    one, parameters = fresh(), {SESSIONS: 3, ENCODING: "LATIN1"}
    assert platform.fetch(one).status == 404
    assert platform.provision(one, parameters=parameters).status == 201
    assert platform.provision(one, parameters=parameters).status == 200
    assert platform.provision(one, parameters={SESSIONS: 4}).status == 409
    assert limit_of(server, one) == (3, "LATIN1")
    answer = platform.update(one, plan_id=BIG, parameters={SESSIONS: 12})
    assert (answer.status, limit_of(server, one)) == (200, (12, "LATIN1"))
    seen = platform.fetch(one).body
    assert (seen["plan_id"], seen["parameters"]) == (BIG, {SESSIONS: 12, ENCODING: "LATIN1"})
    assert seen["maintenance_info"] == {"version": "1.0.0"}
    assert platform.update(one, parameters={ENCODING: "UTF8"}).status == 400
    assert platform.update(one, maintenance_info={"version": "2.0.0"}).status == 422
    assert platform.deprovision(one, BIG).status == 200
    assert platform.deprovision(one, BIG).status == 410
    assert database_of(one) not in server.databases() | server.roles()


def test_a_binding_is_a_login_until_it_is_unbound(server, platform, instance):
    answer = platform.bind(instance, "web", parameters={SESSIONS: 2})
    login = answer.body["credentials"]
    assert answer.status == 201
    endpoint = {"host": "127.0.0.1", "ports": [str(server.port)], "protocol": "tcp"}
    assert answer.body["endpoints"] == [endpoint]
    sql(server, login, "CREATE TABLE kept AS SELECT 'a row' AS line")
    again = platform.bind(instance, "web", parameters={SESSIONS: 2})
    assert (again.status, again.body) == (200, answer.body)
    assert platform.bind(instance, "web").status == 409
    assert platform.fetch(instance, "web").body["credentials"] == login
    assert "go first" in platform.deprovision(instance).body["description"]
    assert platform.unbind(instance, "web").status == 200
    assert platform.unbind(instance, "web").status == 410
    assert platform.fetch(instance, "web").status == 404
    assert is_refused(server, login)
    other = platform.bind(instance, "worker").body["credentials"]
    assert sql(server, other, "SELECT line FROM kept") == [("a row",)]
    assert platform.unbind(instance, "worker").status == 200


def test_a_login_gets_into_no_other_database(server, platform, instance):
    other = fresh()
    assert platform.provision(other).status == 201
    login = platform.bind(instance, "web").body["credentials"]
    for database in (database_of(other), "postgres"):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            sql(server, {**login, "database": database}, "SELECT 1")
    assert platform.unbind(instance, "web").status == 200
    assert platform.deprovision(other).status == 200


async def test_our_own_client_understands_every_answer(platform):
    texts = {"username": platform.username, "password": platform.password}
    way = address_of(BrokerSpec("example", url=platform.url), {"stringData": texts})
    one = fresh()
    about = (one, OFFERING, SMALL)
    bound = (one, "web", OFFERING, SMALL)
    async with BrokerClient(
        way, timeout=timedelta(seconds=60), allow_plain_http=True, allow_loopback=True
    ) as client:
        (offering,) = (await client.catalogue()).offerings
        for plan in offering.plans:
            assert all((plan.bindable, plan.plan_updateable, plan.binding_rotatable))
            assert plan.maintenance == MaintenanceInfo("1.0.0", "The server's own version.")
            assert all((plan.schemas.create, plan.schemas.update, plan.schemas.bind))

        async def done(call):
            outcome = await client.call(call)
            assert isinstance(outcome, Done), outcome
            return outcome

        await done(messages.Provision(*about, "eu", "shop", {"platform": "kubernetes"}))
        logins = [(await done(messages.Bind(*bound, app="shop"))).credentials for _ in range(2)]
        assert logins[0] == logins[1]
        seen = await done(messages.FetchInstance(*about))
        assert (seen.plan, seen.maintenance) == (SMALL, "1.0.0")
        await done(messages.Update(one, OFFERING, BIG, messages.Previous(SMALL)))
        for call in (
            messages.Unbind(*bound),
            messages.Deprovision(*about),
            messages.Unbind(*bound),
            messages.Deprovision(*about),
        ):
            assert isinstance(await client.call(call), Gone)
        assert isinstance(await client.call(messages.FetchInstance(*about)), Absent)


async def test_what_a_killed_broker_began_is_done_by_the_next_one(server, folder):
    first, second = fresh(), fresh()
    with running(server, folder, "--asynchronous") as broker:
        answer = broker.platform.provision(first)
        assert (answer.status, answer.headers["Retry-After"]) == (202, "1")
        await eventually(lambda: platform_says(broker.platform, first, "succeeded"))
        login = broker.platform.bind(first, "web").body["credentials"]
        begun = broker.platform.provision(second).body["operation"]
        broker.kill()
    with running(server, folder, "--asynchronous") as broker:
        platform = broker.platform
        await eventually(lambda: platform_says(platform, second, "succeeded", operation=begun))
        assert platform.provision(second).status == 200
        assert platform.fetch(first, "web").body["credentials"] == login
        assert sql(server, login, "SELECT 1") == [(1,)]
        assert platform.unbind(first, "web").status == 200
        for one in (first, second):
            assert platform.deprovision(one).status == 202
        for one in (first, second):
            await eventually(partial(is_gone, platform, one))
    assert {database_of(first), database_of(second)}.isdisjoint(server.databases())


def platform_says(platform, instance, state, **query):
    return platform.last_operation(instance, **query).body["state"] == state


def is_gone(platform, instance):
    return platform.last_operation(instance).status == 410


def test_no_password_is_in_a_log_or_among_arguments(server, broker, platform, instance):
    login = platform.bind(instance, "web").body["credentials"]
    sql(server, login, "SELECT 1")
    assert platform.unbind(instance, "web").status == 200
    arguments = Path(f"/proc/{broker.process.pid}/cmdline").read_text()
    whole = arguments + broker.log.read_text() + server.log.read_text()
    assert "a call was answered" in whole
    for password in (login["password"], platform.password):
        assert password not in whole
    remembered = server.ask("SELECT b::text FROM postgresql_broker.bindings b")
    assert login["password"] not in str(remembered)


async def test_another_key_is_refused_before_it_locks_anybody_out(server, broker):
    with pytest.raises(ConfigError, match="another key"):
        await Store(Postgres(server.address, "tests")).open("of another key")
