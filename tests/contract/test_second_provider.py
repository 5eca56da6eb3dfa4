"""Grants of a provider that is not ours, and its tokens, as our library reads them."""

import asyncio
import os
import re
import time

import aiohttp
import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import grants, tokens
from reconciler.oidc.provider import GrantRefused
from reconciler.oidc.tokens import texts
from reconciler.web.issuer import Issuer
from tests.support.issuer import CLI, MACHINE, SIGNER, WEB
from tests.support.issuer_clients import Client
from tests.support.second_provider import second_provider, way_back

CALLBACK = "https://bind.example.org/callback"
DOOR = Client(WEB.id, secret=WEB.secret, redirect_uris=(CALLBACK,))
SCOPES = ("openid", "profile", "email")
NONCE = "n-0S6_WzA2Mj"


@pytest.fixture(scope="module")
def provider():
    with second_provider(DOOR, CLI, MACHINE, SIGNER) as provider:
        yield provider


@pytest.fixture
def issuer(http, provider):
    return Issuer(http, provider.issuer, now=time.time)


@pytest.fixture
async def browser():
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield session


async def posted(http, form: grants.Form) -> tuple[int, bytes]:
    answer = await http.send(form)
    return answer.status, answer.body


async def test_a_person_with_a_browser(provider, http, issuer, browser):
    provider.sign_in_as("bob", email="bob@example.org", groups=["team-a", "team-b"])
    known, verifier = await issuer.provider(), grants.verifier(os.urandom(32))
    url = grants.authorization_url(
        known,
        client_id=DOOR.id,
        redirect_uri=CALLBACK,
        scopes=SCOPES,
        state="st",
        nonce=NONCE,
        challenge=grants.challenge(verifier),
    )
    back = (await way_back(browser, url, CALLBACK)).query
    assert back["state"] == "st"
    assert known.announces_iss
    assert grants.callback_problem(known, iss=back["iss"]) == ""

    def form(verifier: Secret) -> grants.Form:
        return grants.code_form(
            known,
            grants.Client(DOOR.id, secret=Secret(DOOR.secret)),
            code=Secret(back["code"]),
            redirect_uri=CALLBACK,
            verifier=verifier,
            now=time.time(),
            jti=os.urandom(16),
        )

    with pytest.raises(GrantRefused):
        grants.tokens_of(*await posted(http, form(grants.verifier(os.urandom(32)))))
    given = grants.tokens_of(*await posted(http, form(verifier)))
    check = tokens.IdTokenCheck(
        provider.issuer, DOOR.id, NONCE, known.algorithms, given.access_token
    )
    claims = await issuer.verified(
        lambda keys: tokens.id_token(given.required_id_token(), keys, check, now=time.time())
    )
    assert (claims.subject, texts(claims.raw.get("groups"))) == ("bob", ("team-a", "team-b"))
    assert claims.raw.get("email") == "bob@example.org"
    with pytest.raises(GrantRefused):  # a code is good once
        grants.tokens_of(*await posted(http, form(verifier)))


@pytest.mark.parametrize("machine", [MACHINE, SIGNER], ids=lambda one: one.id)
async def test_a_machine(provider, http, issuer, machine):
    known = await issuer.provider()
    secret = Secret(machine.secret) if machine.secret else None
    key = Secret(machine.key.private_pem.decode()) if machine.key else None
    form = grants.machine_form(
        known,
        grants.Client(machine.id, secret=secret, key=key),
        scopes=(),
        now=time.time(),
        jti=os.urandom(16),
    )
    given = grants.tokens_of(*await posted(http, form))
    check = tokens.BearerCheck(provider.issuer, (provider.audience,), known.algorithms, {})
    claims = await issuer.verified(
        lambda keys: tokens.bearer(given.access_token, keys, check, now=time.time())
    )
    assert claims.subject == machine.id


async def test_a_person_with_a_device(provider, http, issuer, browser):
    provider.sign_in_as("carol")
    known, verifier = await issuer.provider(), grants.verifier(os.urandom(32))
    client = grants.Client(CLI.id)
    asked = grants.device_form(
        known, client, scopes=("openid",), challenge=grants.challenge(verifier)
    )
    device = grants.device_code_of(*await posted(http, asked))

    async def polled() -> grants.Tokens:
        form = grants.device_token_form(
            known,
            client,
            device_code=device.device_code,
            verifier=verifier,
            now=time.time(),
            jti=os.urandom(16),
        )
        return grants.tokens_of(*await posted(http, form))

    with pytest.raises(GrantRefused) as refused:
        await polled()
    assert grants.after_device_refusal(refused.value, device.interval) == device.interval
    await agree(browser, device.verification_uri_complete)
    given = await polled()
    check = tokens.IdTokenCheck(provider.issuer, CLI.id, "", known.algorithms, given.access_token)
    claims = await issuer.verified(
        lambda keys: tokens.id_token(given.required_id_token(), keys, check, now=time.time())
    )
    assert claims.subject == "carol"


async def agree(browser, url: str) -> None:
    """Send the forms of the provider's own pages, as a person who agrees."""
    async with asyncio.timeout(20), browser.get(url) as answer:
        page = await answer.text()
    while fields := dict(re.findall(r'name="(\w+)" value="([^"]*)"', page)):
        action = re.search(r'action="([^"]+)"', page)
        assert action, page
        async with browser.post(action[1], data=fields) as answer:
            page = await answer.text()
    assert "success" in page.lower(), page
