"""The HTTP side of the example's broker, without a socket or a server behind it."""

import asyncio
import json
import logging
from base64 import b64encode

import pytest
from werkzeug.test import Client

from postgresql_broker.broker import Broker
from postgresql_broker.front import Account, application
from postgresql_broker.refusal import Refusal
from postgresql_server.postgres import ServerTrouble
from reconciler.core.secret import Secret
from tests.support.operated import SERVICES

INSTANCE = "/v2/service_instances/orders"


class Failing(Broker):
    """A broker that fails in one way."""

    def __init__(self, error):
        self._error = error

    async def fetch(self, instance):
        raise self._error


@pytest.fixture
async def ask():
    """What asks for a path, of a broker that fails in one way."""
    loop = asyncio.get_running_loop()

    async def asking(path, error=None, password="right", method="get", json=None, **headers):
        client = Client(application(Failing(error), Account("platform", Secret("right")), loop))
        login = b64encode(f"platform:{password}".encode()).decode()
        usual = {"Authorization": f"Basic {login}", "X-Broker-API-Version": "2.17"}
        call = getattr(client, method)
        return await asyncio.to_thread(call, path, headers=usual | headers, json=json)

    return asking


async def test_the_catalogue_is_the_one_that_files_are_made_of(ask):
    answer = await ask("/v2/catalog")
    saved = json.loads((SERVICES / "osb" / "catalog.json").read_text())
    assert json.loads(answer.data) == saved


async def test_without_its_password_nobody_comes_in(ask):
    assert (await ask("/v2/catalog", password="wrong")).status_code == 401
    assert (await ask(INSTANCE, password="")).status_code == 401


async def test_a_body_that_is_too_large_is_not_read(ask):
    answer = await ask(INSTANCE, method="put", json={"context": "x" * 70_000})
    assert answer.status_code == 413


async def test_a_refusal_is_an_answer(ask):
    answer = await ask(INSTANCE, Refusal(422, "Not now", "ConcurrencyError"))
    assert answer.status_code == 422
    assert json.loads(answer.data) == {"error": "ConcurrencyError", "description": "Not now"}


async def test_a_trouble_of_postgresql_is_put_off(ask):
    answer = await ask(INSTANCE, ServerTrouble("no way to PostgreSQL"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


async def test_a_defect_shows_no_value(ask, caplog):
    caplog.set_level(logging.DEBUG)
    answer = await ask(INSTANCE, ValueError("a password"))
    assert answer.status_code == 500
    assert "a call failed" in caplog.text
    assert "a password" not in caplog.text + answer.text


async def test_headers_are_in_no_log(ask, caplog):
    caplog.set_level(logging.DEBUG)
    await ask("/v2/catalog", **{"X-Broker-API-Originating-Identity": "kubernetes e30="})
    assert b64encode(b"platform:right").decode() not in caplog.text
    assert "e30=" not in caplog.text
