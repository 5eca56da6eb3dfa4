"""Providers that lie, change their keys or go away: what is taken from them, and for how long."""

import asyncio
import json
import time

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import tokens
from reconciler.oidc.provider import ProviderFault, TokenRefused, UnknownKey
from reconciler.web.issuer import Issuer
from reconciler.web.outbound import Http, OutboundError
from tests.support import issuer_lies as lies
from tests.support.issuer import FakeProvider, issuing

MINUTES, HOURS = 60.0, 3600.0


@pytest.fixture(params=["", "/realms/a"])
def provider(request):
    with issuing(path=request.param) as provider:
        yield provider


@pytest.fixture
async def http():
    async with Http(timeout=3) as http:
        yield http


class Clock:
    """The time of the machine, and what a test adds to it."""

    def __init__(self) -> None:
        self.added = 0.0

    def __call__(self) -> float:
        return time.time() + self.added


async def bearer(issuer: Issuer, provider: FakeProvider, token: str = "") -> tokens.Claims:
    check = tokens.BearerCheck(
        issuer=provider.issuer,
        audiences=(provider.audience,),
        algorithms=("RS256", "ES256"),
        require={},
    )
    secret = Secret(token or provider.bearer())
    return await issuer.verified(lambda keys: tokens.bearer(secret, keys, check, now=time.time()))


async def test_a_token_is_judged_by_what_the_provider_publishes(provider, http):
    issuer = Issuer(http, provider.issuer, now=time.time)
    for subject in ("alice", "bob"):
        assert (await bearer(issuer, provider, provider.bearer(sub=subject))).subject == subject
    assert (await issuer.provider()).token_endpoint == f"{provider.issuer}/token"
    assert provider.requests == {"discovery": 1, "jwks": 1}
    assert issuer.trouble == ""


async def test_a_document_that_lies(provider, http):
    provider.lies.discovery["issuer"] = f"{provider.issuer}/"
    issuer = Issuer(http, provider.issuer, now=time.time)
    for ask in (issuer.provider, issuer.keys):
        with pytest.raises(ProviderFault, match="is of issuer"):
            await ask()
    assert provider.issuer in issuer.trouble
    assert "is of issuer" in issuer.trouble
    assert provider.requests["jwks"] == 0

    provider.lies = lies.Lies()
    assert (await bearer(issuer, provider)).subject == "alice"
    assert issuer.trouble == ""


ANSWERS = {
    "a redirect": (lies.redirect("https://evil.example/"), OutboundError, "redirects"),
    "a gigabyte": (lies.endless(), OutboundError, "larger than 64 KiB"),
    "nothing": (lies.hang, OutboundError, "no answer in 3 s"),
    "a refusal": (lies.error("server_error", 500), OutboundError, "answers 500"),
    "half of it": (lies.body(b'{"issuer": "'), ProviderFault, ""),
    "a list": (lies.body(b"[]"), ProviderFault, ""),
    "many levels": (lies.body(b"[" * 60_000), ProviderFault, ""),
    "octets": (lies.body(b"\xff\xfe\x00"), ProviderFault, ""),
}


@pytest.mark.parametrize("route", ["discovery", "jwks"])
@pytest.mark.parametrize(("reply", "kind", "sentence"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_that_lies(provider, http, route, reply, kind, sentence):
    provider.lies.replies[route] = reply
    issuer = Issuer(http, provider.issuer, now=time.time)
    with pytest.raises(kind) as caught:
        await issuer.keys()
    assert sentence in str(caught.value)
    assert provider.issuer in str(caught.value)
    assert issuer.trouble == str(caught.value)

    provider.lies = lies.Lies()
    assert (await bearer(issuer, provider)).subject == "alice"


async def test_callers_share_a_provider_that_hangs(provider, http):
    provider.lies.replies["discovery"] = lies.hang
    issuer = Issuer(http, provider.issuer, now=time.time)
    began = time.monotonic()
    answers = await asyncio.gather(*(issuer.keys() for _ in range(50)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {OutboundError}
    assert time.monotonic() - began < 30
    assert provider.requests["discovery"] == 1


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_rotated_keys(provider, http, algorithm):
    clock = Clock()
    issuer = Issuer(http, provider.issuer, now=clock)
    old = provider.bearer()
    await bearer(issuer, provider, old)
    provider.rotate(algorithm)
    callers = [bearer(issuer, provider, provider.bearer(sub=f"s{n}")) for n in range(20)]
    assert {claims.subject for claims in await asyncio.gather(*callers)} == {
        f"s{n}" for n in range(20)
    }
    assert provider.requests == {"discovery": 1, "jwks": 2}
    with pytest.raises(UnknownKey):  # its key was taken back
        await bearer(issuer, provider, old)

    provider.rotate(algorithm)
    with pytest.raises(UnknownKey):  # the second in 30 s waits
        await bearer(issuer, provider)
    clock.added = 30
    await bearer(issuer, provider)
    assert provider.requests["jwks"] == 3


async def test_a_thousand_unknown_keys(provider, http):
    issuer = Issuer(http, provider.issuer, now=time.time)
    await bearer(issuer, provider)
    unknown = [provider.bearer(header={"kid": f"unknown-{n}"}) for n in range(1000)]
    answers = await asyncio.gather(
        *(bearer(issuer, provider, token) for token in unknown), return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {UnknownKey}
    assert provider.requests == {"discovery": 1, "jwks": 2}
    assert (await bearer(issuer, provider)).subject == "alice"


async def test_a_refused_token_asks_nothing(provider, http):
    issuer = Issuer(http, provider.issuer, now=time.time)
    await bearer(issuer, provider)
    for token in (provider.bearer(exp=1), provider.bearer(aud="other"), "x.y.z", "x"):
        with pytest.raises(TokenRefused) as caught:
            await bearer(issuer, provider, token)
        assert not isinstance(caught.value, UnknownKey)
    assert provider.requests["jwks"] == 1


async def test_a_provider_that_is_away(provider, http):
    clock = Clock()
    issuer = Issuer(http, provider.issuer, now=clock)
    await bearer(issuer, provider)
    provider.stop()
    for clock.added in (11 * MINUTES, 23 * HOURS):
        assert (await bearer(issuer, provider)).subject == "alice"
        assert (await issuer.provider()).issuer == provider.issuer
        assert "no connection" in issuer.trouble
    with pytest.raises(UnknownKey):
        await bearer(issuer, provider, provider.bearer(header={"kid": "unknown"}))

    provider.start()
    clock.added += 31
    assert (await bearer(issuer, provider)).subject == "alice"
    await issuer.provider()
    assert issuer.trouble == ""

    provider.stop()
    clock.added += 25 * HOURS
    with pytest.raises(OutboundError, match="no connection"):
        await bearer(issuer, provider)
    provider.start()
    assert (await bearer(issuer, provider)).subject == "alice"


async def test_given_keys_are_not_fetched(provider, http):
    key_set = json.dumps(provider.key_set).encode()
    issuer = Issuer(http, provider.issuer, now=time.time, jwks=key_set)
    assert (await bearer(issuer, provider)).subject == "alice"
    with pytest.raises(UnknownKey):
        await bearer(issuer, provider, provider.bearer(header={"kid": "unknown"}))
    with pytest.raises(ProviderFault, match="nothing is asked of it"):
        await issuer.provider()
    assert not provider.requests
    with pytest.raises(ProviderFault):
        Issuer(http, provider.issuer, now=time.time, jwks=b"{")
