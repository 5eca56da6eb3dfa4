"""Attacks on signing in (front-door.md 9), on the real program before a real API server.

Nothing that was refused has written: the API server's audit log proves it.
"""

import asyncio
import time
from typing import Any

import pytest

from bind.door import sessions
from reconciler.core.errors import HostError
from tests.support import issuer_lies
from tests.support.browsers import PUBLIC, Cli
from tests.support.doors import wire
from tests.support.issuer import (
    MALLORY,
    SIGNED_WRONG,
    WRONG_BEARER,
    WRONG_ID,
    bearer,
    issuing,
    signed_by,
)


async def asked(client, door, token, offer, **more):
    wish = {"clusterID": "machines", "resources": [wire(offer)], "dryRun": False}
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return await client.post(door.port, "/api/v1/bind", document={**wish, **more}, **headers)


async def refused_at_callback(backend, door, browser, back, statuses, cli):
    """Come back from the provider, and hold that nothing came of it."""
    async with backend.nothing_written():
        reply = await browser.get(door.port, "/callback", back)
        assert reply.status in statuses, (reply.status, reply.body)
        assert not reply.location
        assert not any(reply.cookies.values())
        assert (await browser.get(door.port, "/bind", {"s": cli.s})).status in {400, 401}


class TestKeys:
    """First of all: a set of keys is fetched out of turn once in 30 s."""

    async def test_rotated_and_hundreds_unknown(self, backend, door, provider, offer):
        first = await asked(backend.client(), door, bearer(provider), offer)
        assert first.status == 200, first.body
        provider.rotate()
        provider.lies = issuer_lies.Lies()
        fetched = provider.requests["jwks"]
        assert (await asked(backend.client(), door, bearer(provider), offer)).status == 200
        assert provider.requests["jwks"] == fetched + 1
        backend.resting = False
        async with backend.nothing_written():
            clients = [backend.client() for _ in range(60)]
            await asyncio.gather(
                *(self._unknown(client, door, provider, offer) for client in clients)
            )
        assert provider.requests["jwks"] <= fetched + 2

    async def _unknown(self, client, door, provider, offer):
        for number in range(5):  # more are refused unseen
            kid = f"{client.address}-{number}"
            token = bearer(provider, signed_by(MALLORY, kid=kid))
            assert (await asked(client, door, token, offer)).status == 401

    async def test_provider_away(self, backend, door, provider, offer, browser):
        cli = Cli()
        assert (await browser.signed_in(door.port, cli)).status == 302
        back = await browser.agreed(await browser.begun(door.port, Cli()))
        provider.stop()
        try:
            assert (await browser.binds(door.port, cli, wire(offer))).status == 302
            assert (await asked(backend.client(), door, bearer(provider), offer)).status == 200
            assert (await browser.get(door.port, "/callback", back)).status == 502
            assert (await door.replica.ask("/readyz"))[0] == 200
        finally:
            provider.start()
        backend.resting = False


class TestTokens:
    @pytest.mark.parametrize("sign", SIGNED_WRONG.values(), ids=SIGNED_WRONG.keys())
    async def test_bearer_signed_wrong(self, backend, door, provider, offer, sign):
        await self._refused(backend, door, offer, bearer(provider, sign))

    @pytest.mark.parametrize("claims", WRONG_BEARER.values(), ids=WRONG_BEARER.keys())
    async def test_bearer_that_says_wrong(self, backend, door, provider, offer, claims):
        await self._refused(backend, door, offer, bearer(provider, **claims()))

    async def test_issuer_that_shares_keys(self, backend, door, provider, other, offer):
        strangers = (
            other.issuer,
            f"{provider.issuer}/b",
            f"{provider.issuer}/",
            "https://idp.example",
        )
        mixed = [bearer(provider, iss=issuer) for issuer in strangers]
        for token in mixed:
            await self._refused(backend, door, offer, token)

    async def test_ten_megabytes(self, backend, door, offer):
        async with backend.nothing_written():
            reply = await asked(backend.client(), door, "x" * 10_000_000, offer)
            assert reply.status in {400, 431}

    async def _refused(self, backend, door, offer, token):
        client = backend.client()
        async with backend.nothing_written():
            reply = await asked(client, door, token, offer)
            assert reply.status in ({401, 431} if len(token) > 8_000 else {401}), reply.body
        if reply.status == 401:
            assert reply.document["code"] == "invalid_token"
            (line,) = door.audited(client)
            assert (line["event"], line["outcome"]) == ("refused-token", "refused")
            assert line["reason"]


class TestIdTokens:
    @pytest.mark.parametrize("sign", SIGNED_WRONG.values(), ids=SIGNED_WRONG.keys())
    async def test_signed_wrong(self, backend, door, provider, browser, sign):
        provider.lies.signing = sign
        await self._refused(backend, door, browser)

    @pytest.mark.parametrize("claims", WRONG_ID.values(), ids=WRONG_ID.keys())
    async def test_says_wrong(self, backend, door, provider, browser, claims):
        provider.lies.id_token = dict(claims())
        await self._refused(backend, door, browser)

    async def _refused(self, backend, door, browser):
        cli = Cli()
        back = await browser.agreed(await browser.begun(door.port, cli))
        await refused_at_callback(backend, door, browser, back, {401}, cli)
        (line,) = [one for one in door.audited(browser) if one["event"] == "sign-in"]
        assert line["outcome"] == "refused"
        assert line["reason"]


class TestStates:
    @pytest.fixture
    async def back(self, door, provider, browser):
        return await browser.agreed(await browser.begun(door.port, Cli()))

    @pytest.mark.parametrize("state", [None, "", "x", "A" * 22, "=" * 22, "\x00", "é"])
    async def test_forged(self, backend, door, browser, back, state):
        given = {**back, "state": state} if state is not None else {"code": back["code"]}
        await refused_at_callback(backend, door, browser, given, {400}, Cli())

    async def test_of_another_browser(self, backend, door, back):
        stranger = backend.client()
        await refused_at_callback(backend, door, stranger, back, {400}, Cli())
        await stranger.begun(door.port, Cli())  # and has a sign-in of its own
        await refused_at_callback(backend, door, stranger, back, {400}, Cli())

    async def test_replayed_with_all_cookies(self, backend, second, provider, browser, back):
        door = backend.started[0]
        cookies = dict(browser.cookies)
        assert (await browser.get(door.port, "/callback", back)).status == 302
        for replica in (door, second):
            thief = backend.client()
            thief.cookies = dict(cookies)
            # Another replica has not seen the state; the provider has seen the code.
            statuses, redeemed = (
                {400} if replica is door else {400, 401},
                provider.requests["token"],
            )
            await refused_at_callback(backend, replica, thief, back, statuses, Cli())
            assert provider.requests["token"] == redeemed + (replica is second)

    async def test_eleven_minutes_old(self, backend, door, browser, back):
        ((name, text),) = browser.cookies.items()
        for seconds, statuses in ((660, {400}), (540, {302})):
            browser.cookies = {name: await backend.aged(text, sessions.LOGIN, seconds)}
            assert (await browser.get(door.port, "/callback", back)).status in statuses


class TestCodes:
    @pytest.mark.parametrize(
        "changes",
        [{"code": None}, {"code": ""}, {"code": None, "error": "access_denied"}, {"iss": None}]
        + [{"iss": other} for other in ("", "https://idp.example")],
        ids=str,
    )
    async def test_answer_that_is_not_the_providers(
        self, backend, door, provider, browser, changes
    ):
        cli = Cli()
        back = await browser.agreed(await browser.begun(door.port, cli))
        given = {name: text for name, text in {**back, **changes}.items() if text is not None}
        await refused_at_callback(backend, door, browser, given, {400}, cli)

    async def test_of_another_sign_in(self, backend, door, provider, browser):
        victim, cli = backend.client(), Cli()
        stolen = await victim.agreed(await victim.begun(door.port, Cli()))
        back = await browser.agreed(await browser.begun(door.port, cli))
        mixed = {**back, "code": stolen["code"]}
        await refused_at_callback(backend, door, browser, mixed, {400, 401}, cli)


class TestTargets:
    @pytest.mark.parametrize("target", ["//evil", "http://localhost:1/\r\nLocation: https://evil"])
    async def test_url(self, backend, door, browser, target):
        cli = Cli()
        async with backend.nothing_written():
            reply = await browser.get(
                door.port, "/authorize", {"s": cli.s, "c": cli.c, "u": target}
            )
        assert (reply.status, reply.location, reply.cookies) == (400, "", {})
        assert "evil" not in reply.text


FORGED = [
    {"X_Forwarded_Host": "evil.example"},
    {"X_Forwarded_Proto": "http"},
    {"Forwarded": "for=6.6.6.6;host=evil.example;proto=http"},
    {"X_Original_Url": "/evil", "X_Rewrite_Url": "/evil"},
]


class TestHosts:
    @pytest.mark.parametrize("headers", [*FORGED, {"Host": "evil.example"}], ids=str)
    async def test_no_effect_on_documents(self, door, browser, headers):
        for path in ("/export", "/.well-known/klutch-bind"):
            true = await browser.get(door.port, path)
            assert (await browser.get(door.port, path, **headers)).body == true.body
            assert true.status == 200

    @pytest.mark.parametrize("headers", FORGED, ids=str)
    async def test_no_effect_on_a_sign_in(self, door, provider, browser, headers):
        reply = await browser.get(door.port, "/authorize", Cli().query, **headers)
        assert reply.location.startswith(f"{provider.issuer}/authorize?")
        assert reply.query["redirect_uri"] == f"{PUBLIC}/callback"

    async def test_address_behind_a_proxy(self, backend, door, offer):
        client = backend.client()
        behind = f"6.6.6.6, {client.address}"
        reply = await client.get(
            door.port, "/api/v1/catalogue", Authorization="Bearer x", X_Forwarded_For=behind
        )
        assert reply.status == 401
        assert len(door.audited(client)) == 1


LYING = {
    "redirect": issuer_lies.redirect("https://idp.example/"),
    "another issuer": issuer_lies.body(b'{"issuer":"https://idp.example"}'),
    "a gigabyte": issuer_lies.endless(),
    "an answer that drips": issuer_lies.dripping,
    "no answer": issuer_lies.hang,
}
UNUSABLE: dict[str, dict[str, Any]] = {
    "http": {"token_endpoint": "http://idp.example/token"},
    "no algorithm of ours": {"id_token_signing_alg_values_supported": ["none", "HS256"]},
    "a request pushed before": {"require_pushed_authorization_requests": True},
}


class TestDiscovery:
    async def test_pushed_requests_demanded_are_an_error_at_the_start(self, backend):
        with issuing() as strict:
            strict.lies.discovery = UNUSABLE["a request pushed before"]
            with pytest.raises(HostError, match=r"--oidc-issuer-url: .* demands pushed requests"):
                await backend.start(issuer=strict.issuer)

    async def test_lies(self, backend, browser):
        """One replica sees them all, as it keeps nothing of a provider that lies."""
        with issuing() as liar:
            liar.lies.replies["discovery"] = LYING["no answer"]
            door = await backend.start(issuer=liar.issuer)
            assert (await door.replica.ask("/readyz"))[0] == 200
            async with backend.nothing_written():
                for name, lie in LYING.items():
                    liar.lies.replies["discovery"] = lie
                    began = time.monotonic()
                    reply = await browser.get(door.port, "/authorize", Cli().query)
                    assert (name, reply.status) == (name, 503)
                    assert time.monotonic() - began < 8.0, name
                    assert (await browser.get(door.port, "/export")).status == 200
                liar.lies = issuer_lies.Lies()
                for name, members in UNUSABLE.items():
                    liar.lies.discovery = members
                    reply = await browser.get(door.port, "/authorize", Cli().query)
                    assert (name, reply.status) == (name, 503)
            liar.lies.discovery = {"jwks_uri": "https://169.254.169.254/keys"}
            back = await browser.agreed(await browser.begun(door.port, Cli()))
            began = time.monotonic()
            assert (await browser.get(door.port, "/callback", back)).status == 502
            assert time.monotonic() - began < 8.0
            assert "a link-local address" in door.replica.log.read_text()
        door.replica.process.kill()
