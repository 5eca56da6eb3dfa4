"""Every grant of the front door at a real Keycloak, as a sandbox has it."""

import os
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
import pytest_asyncio

from klutchctl.sandbox import processes
from klutchctl.sandbox.keycloak import realm
from klutchctl.sandbox.keycloak.realm import Purpose
from reconciler.core.secret import Secret
from reconciler.oidc import grants, pkce, tokens
from reconciler.oidc.errors import GrantRefused
from reconciler.oidc.grants import Client
from reconciler.outbound.http import Http
from reconciler.outbound.issuer import Issuer
from tests.support.keycloak import signs_in

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
CALLBACK = "http://127.0.0.1:29999/callback"
VERIFIER = pkce.verifier(bytes(range(32)))


class Visitor:
    """Asks the provider as the door and the CLI do."""

    def __init__(self, keycloak, http):
        self.keycloak = keycloak
        self.http = http
        self.issuer = Issuer(http, keycloak.issuer, now=time.time)

    async def tokens(self, form):
        answer = await self.http.send(form)
        return grants.tokens_of(answer.status, answer.body)

    async def credentials(self, client):
        provider = await self.issuer.provider()
        return await self.tokens(
            grants.client_credentials_form(provider, client, scopes=(), **proof())
        )

    async def bearer(self, token):
        """Return the claims of a token, as the door takes it."""
        check = tokens.BearerCheck(self.keycloak.issuer, (self.keycloak.door,), ("RS256",), {})
        return await self.issuer.verified(
            lambda keys: tokens.bearer(token, keys, check, now=time.time())
        )

    async def person(self, found, client, nonce=""):
        """Return the claims of an ID token."""
        check = tokens.IdTokenCheck(
            self.keycloak.issuer, client, nonce, ("RS256",), found.access_token
        )
        assert found.id_token is not None
        return await self.issuer.verified(
            lambda keys: tokens.id_token(found.id_token, keys, check, now=time.time())
        )


def proof():
    return {"now": time.time(), "jti": os.urandom(16)}


@pytest_asyncio.fixture
async def visitor(keycloak):
    async with Http() as http:
        yield Visitor(keycloak, http)


async def test_discovery_announces_what_the_front_door_needs(visitor):
    provider = await visitor.issuer.provider()
    assert provider.issuer == visitor.keycloak.issuer
    assert provider.announces_iss
    assert "RS256" in provider.algorithms
    assert {"client_secret_basic", "private_key_jwt"} <= {*provider.token_auth_methods}
    assert provider.device_authorization_endpoint


async def test_a_person_signs_in_at_the_door_with_pkce(visitor):
    provider = await visitor.issuer.provider()
    url = grants.authorization_url(
        provider,
        client_id=realm.DOOR_CLIENT,
        redirect_uri=CALLBACK,
        scopes=("openid", "profile", "email"),
        state="a-state",
        nonce="a-nonce",
        challenge=pkce.challenge(VERIFIER),
    )
    end = await signs_in(visitor.keycloak, url, "alice", Purpose.ALICE)
    answer = {name: value for name, (value,) in parse_qs(urlsplit(end).query).items()}
    assert end.startswith(f"{CALLBACK}?")
    assert answer["state"] == "a-state"
    assert grants.callback_problem(provider, iss=answer["iss"]) == ""
    form = grants.code_form(
        provider,
        visitor.keycloak.web,
        code=Secret(answer["code"]),
        redirect_uri=CALLBACK,
        verifier=VERIFIER,
        **proof(),
    )
    claims = await visitor.person(await visitor.tokens(form), realm.DOOR_CLIENT, "a-nonce")
    assert claims.text("preferred_username") == "alice"
    assert claims.texts("groups") == ("team-a",)
    with pytest.raises(GrantRefused):  # a code is good once
        await visitor.tokens(form)


async def test_a_person_signs_in_by_a_device_code(visitor):
    provider = await visitor.issuer.provider()
    cli = visitor.keycloak.cli
    asked = grants.device_form(
        provider, cli, scopes=("openid",), challenge=pkce.challenge(VERIFIER)
    )
    answer = await visitor.http.send(asked)
    device = grants.device_code_of(answer.status, answer.body)

    def question():
        code = device.device_code
        return grants.device_token_form(
            provider, cli, device_code=code, verifier=VERIFIER, **proof()
        )

    with pytest.raises(GrantRefused) as caught:
        await visitor.tokens(question())
    wait = grants.after_device_refusal(caught.value, device.interval)
    began = time.monotonic()
    await signs_in(visitor.keycloak, device.verification_uri_complete, "bob", Purpose.BOB)
    while True:
        try:
            found = await visitor.tokens(question())
            break
        except GrantRefused as refused:  # too soon after the last question
            wait = grants.after_device_refusal(refused, wait)
            assert time.monotonic() - began < 60
    claims = await visitor.person(found, realm.CLI_CLIENT)
    assert claims.texts("groups") == ("team-b",)


@pytest.mark.parametrize("name", ["machine", "keyed_machine"])
async def test_a_machine_gets_a_token_for_the_door_by_its_own_proof(visitor, name):
    client = getattr(visitor.keycloak, name)
    found = await visitor.credentials(client)
    claims = await visitor.bearer(found.access_token)
    assert claims.text("azp") == client.id


async def test_another_secret_is_refused(visitor):
    with pytest.raises(GrantRefused):
        await visitor.credentials(Client(realm.MACHINE, secret=Secret("another")))


async def test_the_token_of_one_machine_is_exchanged_by_another(visitor):
    provider = await visitor.issuer.provider()
    theirs = await visitor.credentials(visitor.keycloak.keyed_machine)
    found = await visitor.tokens(
        grants.exchange_form(
            provider,
            visitor.keycloak.machine,
            subject_token=theirs.access_token,
            subject_token_type=ACCESS_TOKEN,
            audience=visitor.keycloak.door,
            scopes=(),
            **proof(),
        )
    )
    claims = await visitor.bearer(found.access_token)
    before = await visitor.bearer(theirs.access_token)
    assert claims.subject == before.subject
    assert claims.text("azp") == realm.MACHINE


def test_no_secret_is_in_its_arguments_or_its_log(keycloak):
    (process,) = processes.observe(keycloak.layout)
    log = Path(keycloak.layout.logs, "keycloak.log").read_text()
    shown = f"{process.arguments} {log}"
    assert not [one for one in Purpose if keycloak.secret(one).reveal() in shown]
    assert psutil.Process(process.pid).memory_info().rss < 900 * 1024 * 1024
