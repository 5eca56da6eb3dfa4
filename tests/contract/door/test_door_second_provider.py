"""A sign-in at a provider that is not ours, and what comes of it."""

import base64
import json

import aiohttp
import pytest

from tests.support.browsers import CALLBACK, Cli
from tests.support.doors import wire
from tests.support.issuer import WEB
from tests.support.issuer_clients import Client
from tests.support.second_provider import second_provider, way_back


@pytest.fixture(scope="module")
def independent():
    with second_provider(Client(WEB.id, secret=WEB.secret, redirect_uris=(CALLBACK,))) as provider:
        yield provider


@pytest.fixture(scope="module")
async def replica(backend, offer, independent):
    return await backend.start(issuer=independent.issuer)


async def back(browser, replica, cli):
    """Sign in, and return what the provider gives for the callback."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        url = await browser.begun(replica.port, cli)
        return dict((await way_back(session, url, CALLBACK)).query)


async def test_bound(backend, offer, independent, replica, browser):
    independent.sign_in_as("carol", groups=["team-a"])
    cli = Cli()
    reply = await browser.get(replica.port, "/callback", await back(browser, replica, cli))
    assert (reply.status, reply.location) == (302, f"/resources?s={cli.s}")
    reply = await browser.binds(replica.port, cli, wire(offer))
    assert reply.location.startswith(f"{cli.target}?response=")
    response = json.loads(base64.b64decode(reply.query["response"]))
    assert response["authentication"]["oauth2CodeGrant"]["id"] == f"{independent.issuer}/carol"
    assert len(await backend.spaces(f"carol#{cli.c}")) == 1


async def test_groups_count(backend, offer, independent, replica, browser):
    independent.sign_in_as("dave", groups=["team-b"])
    cli = Cli()
    await browser.get(replica.port, "/callback", await back(browser, replica, cli))
    async with backend.nothing_written():
        assert (await browser.binds(replica.port, cli, wire(offer))).status == 403
