"""What is sent for each grant, at a provider that holds clients to the rules."""

import time
from urllib.parse import parse_qs, urlsplit

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import grants, tokens
from reconciler.oidc.provider import GrantRefused
from reconciler.oidc.tokens import texts
from reconciler.web.issuer import Issuer
from tests.support import issuer as fake
from tests.support import issuer_lies as lies
from tests.support import issuer_tokens
from tests.support.issuer import issuing

BACK = "https://door.example/callback"
VERIFIER = grants.verifier(bytes(range(32)))
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
        challenge=grants.challenge(VERIFIER),
    )
    answer = await http.get(url)
    assert answer.status == 302
    assert answer.location.startswith(f"{BACK}?")
    return {name: value for name, [value] in parse_qs(urlsplit(answer.location).query).items()}


def redeemed(known, client, code: str):
    return grants.code_form(
        known,
        client,
        code=Secret(code),
        redirect_uri=BACK,
        verifier=VERIFIER,
        now=time.time(),
        jti=JTI,
    )


async def granted(http, form) -> grants.Tokens:
    answer = await http.send(form)
    return grants.tokens_of(answer.status, answer.body)


async def proven(http, provider, client, answer: grants.Tokens) -> tokens.Claims:
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


async def test_device(provider, http, known):
    client = CLIENTS["nothing"]
    provider.interval = 1
    provider.waits.extend(["authorization_pending", "slow_down"])
    form = grants.device_form(
        known, client, scopes=("openid",), challenge=grants.challenge(VERIFIER)
    )
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


def federated(provider, **claims) -> grants.Client:
    """Return a client that a token of a cluster speaks for."""
    now = int(time.time())
    known = {"iss": "https://cluster.example", "aud": [provider.issuer], "iat": now}
    known |= {"sub": fake.FEDERATED.subject, "exp": now + 600}
    token = issuer_tokens.signed({}, {**known, **claims}, fake.CLUSTER_KEY)
    return grants.Client(fake.FEDERATED.id, assertion=Secret(token))


def for_itself(known, client, audience: str = ""):
    return grants.machine_form(
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
    form = grants.machine_form(
        known,
        CLIENTS["a secret"],
        subject=(Secret(subject), "urn:ietf:params:oauth:token-type:jwt"),
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
