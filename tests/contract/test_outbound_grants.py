"""What is sent for each grant, at a provider that holds clients to the rules."""

import time
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import grants, pkce, tokens
from reconciler.oidc.claims import texts
from reconciler.oidc.errors import GrantRefused, TokenRefused
from reconciler.outbound.http import Http
from reconciler.outbound.issuer import Issuer
from tests.support import issuer as fake
from tests.support import issuer_lies as lies
from tests.support import issuer_tokens
from tests.support.issuer import issuing

BACK = "https://door.example/callback"
VERIFIER = pkce.verifier(bytes(range(32)))
JTI = bytes(range(16))

CLIENTS = {
    "a secret": grants.Client(fake.WEB.id, secret=Secret(fake.WEB.secret)),
    "nothing": grants.Client(fake.CLI.id),
    "a key": grants.Client(fake.SIGNER.id, key=Secret(fake.SIGNER_KEY.private_pem.decode())),
}


@pytest.fixture
def provider():
    with issuing() as provider:
        yield provider


@pytest.fixture
async def http():
    async with Http() as http:
        yield http


@pytest.fixture
async def known(provider, http):
    return await Issuer(http, provider.issuer, now=time.time).provider()


async def came_back(http, known, client) -> dict[str, str]:
    """Sign in as a browser does; return what comes back in the query."""
    url = grants.authorization_url(
        known,
        client_id=client.id,
        redirect_uri=BACK,
        scopes=("openid", "email"),
        state="the state",
        nonce="the nonce",
        challenge=pkce.challenge(VERIFIER),
    )
    answer = await http.get(url)
    assert answer.status == 302
    assert answer.location.startswith(f"{BACK}?")
    return {name: value for name, [value] in parse_qs(urlsplit(answer.location).query).items()}


def redeemed(known, client, code: str, *, verifier: Secret = VERIFIER, back: str = BACK):
    return grants.code_form(
        known,
        client,
        code=Secret(code),
        redirect_uri=back,
        verifier=verifier,
        now=time.time(),
        jti=JTI,
    )


async def granted(http, form) -> grants.Tokens:
    answer = await http.send(form)
    return grants.tokens_of(answer.status, answer.body)


async def proven(http, provider, client, answer: grants.Tokens) -> tokens.Claims:
    """Have the ID token judged."""
    issuer = Issuer(http, provider.issuer, now=time.time)
    check = tokens.IdTokenCheck(
        issuer=provider.issuer,
        client_id=client.id,
        nonce="the nonce",
        algorithms=(await issuer.provider()).algorithms,
        access_token=answer.access_token,
    )
    given = answer.id_token
    assert given is not None
    return await issuer.verified(lambda keys: tokens.id_token(given, keys, check, now=time.time()))


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
async def test_sign_in(provider, http, known, client):
    provider.sign_in_as("bob", groups=["team-b"])
    query = await came_back(http, known, client)
    assert query["state"] == "the state"
    assert grants.callback_problem(known, iss=query["iss"]) == ""
    answer = await granted(http, redeemed(known, client, query["code"]))
    claims = await proven(http, provider, client, answer)
    assert claims.subject == "bob"
    assert texts(claims.raw["groups"]) == ("team-b",)


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"], None])
async def test_each_way_to_send_a_secret(provider, http, known, methods):
    provider.lies.discovery["token_endpoint_auth_methods_supported"] = methods
    known = await Issuer(http, provider.issuer, now=time.time).provider()
    client = CLIENTS["a secret"]
    query = await came_back(http, known, client)
    assert (await granted(http, redeemed(known, client, query["code"]))).id_token
    [received] = provider.received["token"]
    assert ("client_secret" in received.form) == (methods == ["client_secret_post"])


# A provider must notice these; so they show that ours does, and what becomes of its refusal.
FOREIGN = {
    "another verifier": {"verifier": pkce.verifier(bytes(32))},
    "another redirect_uri": {"back": f"{BACK}2"},
    "another code": {"code": "another"},
    "another client": {"client": CLIENTS["nothing"]},
    "another secret": {"client": replace(CLIENTS["a secret"], secret=Secret("another"))},
}


@pytest.mark.parametrize("other", FOREIGN.values(), ids=FOREIGN.keys())
async def test_a_code_that_is_not_redeemed(provider, http, known, other):
    code = (await came_back(http, known, CLIENTS["a secret"]))["code"]
    said = {"client": CLIENTS["a secret"], "code": code, **other}
    wrong = redeemed(known, said.pop("client"), said.pop("code"), **said)
    with pytest.raises(GrantRefused) as caught:
        await granted(http, wrong)
    secret = "secret" in str(caught.value)
    assert caught.value.error == ("invalid_client" if secret else "invalid_grant")


async def test_a_code_is_good_once(provider, http, known):
    client = CLIENTS["a secret"]
    form = redeemed(known, client, (await came_back(http, known, client))["code"])
    await granted(http, form)
    with pytest.raises(GrantRefused):
        await granted(http, form)


async def test_somebody_who_does_not_sign_in(provider, http, known):
    provider.user = None
    assert (await came_back(http, known, CLIENTS["a secret"]))["error"] == "access_denied"


@pytest.mark.parametrize(
    ("iss", "problem"),
    [
        (None, "does not name its issuer"),
        ("", "does not name its issuer"),
        ("https://other.example", "is of another issuer"),
    ],
)
async def test_an_answer_of_another_issuer(provider, http, known, iss, problem):
    provider.lies.redirect["iss"] = iss
    query = await came_back(http, known, CLIENTS["a secret"])
    assert problem in grants.callback_problem(known, iss=query.get("iss", ""))


LYING = {
    "nonce": ({"nonce": "another"}, {}),
    "no nonce": ({"nonce": None}, {}),
    "aud": ({"aud": "another"}, {}),
    "iss": ({"iss": "https://other.example"}, {}),
    "exp": ({"exp": 1}, {}),
    "at_hash": ({"at_hash": "another"}, {}),
    "sub": ({"sub": ""}, {}),
    "a type": ({}, {"typ": "logout+jwt"}),
    "crit": ({}, {"crit": ["exp"]}),
    "alg": ({}, {"alg": "HS256"}),
}


@pytest.mark.parametrize(("claims", "header"), LYING.values(), ids=LYING.keys())
async def test_an_id_token_that_lies(provider, http, known, claims, header):
    provider.lies.id_token, provider.lies.header = claims, header
    client = CLIENTS["a secret"]
    query = await came_back(http, known, client)
    answer = await granted(http, redeemed(known, client, query["code"]))
    with pytest.raises(TokenRefused):
        await proven(http, provider, client, answer)


async def test_no_id_token(provider, http, known):
    provider.lies.token["id_token"] = None
    client = CLIENTS["a secret"]
    query = await came_back(http, known, client)
    assert (await granted(http, redeemed(known, client, query["code"]))).id_token is None


async def test_device(provider, http, known):
    client = CLIENTS["nothing"]
    provider.interval = 1
    provider.waits.extend(["authorization_pending", "slow_down"])
    form = grants.device_form(known, client, scopes=("openid",), challenge=pkce.challenge(VERIFIER))
    answer = await http.send(form)
    device = grants.device_code_of(answer.status, answer.body)
    assert (await http.get(device.verification_uri_complete)).status == 200

    interval = device.interval
    form = grants.device_token_form(
        known, client, device_code=device.device_code, verifier=VERIFIER, now=time.time(), jti=JTI
    )
    intervals = []
    for _ in range(2):
        with pytest.raises(GrantRefused) as caught:
            await granted(http, form)
        interval = grants.after_device_refusal(caught.value, interval)
        intervals.append(interval)
    assert intervals == [1, 6]
    assert (await granted(http, form)).id_token
    with pytest.raises(GrantRefused, match="invalid_grant"):
        await granted(http, form)


async def test_device_denied(provider, http, known):
    client, provider.user = CLIENTS["nothing"], None
    form = grants.device_form(known, client, scopes=("openid",), challenge=pkce.challenge(VERIFIER))
    answer = await http.send(form)
    device = grants.device_code_of(answer.status, answer.body)
    form = grants.device_token_form(
        known, client, device_code=device.device_code, verifier=VERIFIER, now=time.time(), jti=JTI
    )
    with pytest.raises(GrantRefused, match="access_denied"):
        await granted(http, form)


def federated(provider, **claims) -> grants.Client:
    """Return a client that a token of a cluster speaks for."""
    now = int(time.time())
    known = {"iss": "https://cluster.example", "aud": [provider.issuer], "iat": now}
    known |= {"sub": fake.FEDERATED.subject, "exp": now + 600}
    token = issuer_tokens.signed({}, {**known, **claims}, fake.CLUSTER_KEY)
    return grants.Client(fake.FEDERATED.id, assertion=Secret(token))


def for_itself(known, client, audience: str = ""):
    return grants.client_credentials_form(
        known, client, scopes=(), now=time.time(), jti=JTI, audience=audience
    )


async def test_machines(provider, http, known):
    machine = grants.Client(fake.MACHINE.id, secret=Secret(fake.MACHINE.secret))
    for client in (machine, CLIENTS["a key"], federated(provider)):
        answer = await granted(http, for_itself(known, client, "https://door.example"))
        claims = issuer_tokens.payload(answer.access_token.reveal())
        assert (claims["sub"], claims["aud"]) == (client.id, "https://door.example")
    for client in (CLIENTS["nothing"], federated(provider, sub="another")):
        with pytest.raises(GrantRefused):
            await granted(http, for_itself(known, client))


async def test_exchange(provider, http, known):
    subject = provider.bearer(sub="a-pipeline", iss="https://ci.example")
    form = grants.exchange_form(
        known,
        CLIENTS["a secret"],
        subject_token=Secret(subject),
        subject_token_type="urn:ietf:params:oauth:token-type:jwt",
        audience="https://door.example",
        scopes=(),
        now=time.time(),
        jti=JTI,
    )
    answer = await granted(http, form)
    claims = issuer_tokens.payload(answer.access_token.reveal())
    assert (claims["sub"], claims["aud"]) == ("a-pipeline", "https://door.example")


async def test_an_error_of_the_token_endpoint(provider, http, known):
    provider.lies.replies["token"] = lies.error("invalid_scope", error_description="no")
    with pytest.raises(GrantRefused, match="invalid_scope: no"):
        await granted(http, for_itself(known, CLIENTS["a secret"]))
