"""Attacks on sessions, codes and bindings (front-door.md 9), on the real program.

Nothing that was refused has written: the API server's audit log proves it.
"""

import asyncio
import base64
import secrets
import time

import pytest

from bind.door import sessions
from tests.support.browsers import PUBLIC, Cli
from tests.support.door_spaces import COMPLETE, inside
from tests.support.doors import MOST_SPACES, wire
from tests.support.issuer import bearer


@pytest.fixture
async def cli(door, provider, browser):
    """A CLI whose person is signed in."""
    made = Cli()
    assert (await browser.signed_in(door.port, made)).status == 302
    return made


class TestOtherSites:
    async def test_frames(self, door, browser, cli):
        for path in (f"/resources?s={cli.s}", "/ui/", "/nowhere"):
            reply = await browser.get(door.port, path, Accept="text/html")
            assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
            assert "default-src 'none'" in reply.headers["Content-Security-Policy"]

    async def test_other_methods(self, backend, door, browser, cli, offer):
        async with backend.nothing_written():
            for method in ("POST", "PUT", "DELETE", "HEAD"):
                target = f"/bind?s={cli.s}&resource={offer.resource.plural}&group={offer.group}"
                reply = await browser.send(method, door.port, target, {})
                assert (reply.status, reply.headers.get("Allow")) == (405, "GET")


class TestSessions:
    async def refused(self, backend, door, browser, cli, offer):
        async with backend.nothing_written():
            reply = await browser.binds(door.port, cli, wire(offer))
        assert (reply.status, reply.location) == (401, "")

    async def test_none(self, backend, door, browser, offer):
        await self.refused(backend, door, browser, Cli(), offer)

    async def test_of_another(self, backend, door, browser, cli, offer):
        theirs = Cli()
        browser.cookies[f"klutch-bind-{theirs.s}"] = browser.cookies[f"klutch-bind-{cli.s}"]
        await self.refused(backend, door, browser, theirs, offer)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda text: text[:-1],
            lambda text: text[: len(text) // 2],
            lambda text: text[:20] + ("A" if text[20] != "A" else "B") + text[21:],
            lambda text: base64.urlsafe_b64encode(b"{}" + secrets.token_bytes(100)).decode(),
            lambda text: "é",
            lambda text: "x" * 3_900,
        ],
    )
    async def test_damaged(self, backend, door, browser, cli, offer, damage):
        name = f"klutch-bind-{cli.s}"
        browser.cookies[name] = damage(browser.cookies[name])
        await self.refused(backend, door, browser, cli, offer)

    async def test_of_other_keys_and_purposes(self, backend, door, browser, cli, offer):
        name = f"klutch-bind-{cli.s}"
        held = await backend.opened(browser.cookies[name], sessions.SESSION)
        keys, now = await backend.keys(), time.time()
        strange = sessions.Keys(secrets.token_bytes(sessions.KEY_BYTES))
        for sealed in (
            strange.seal(sessions.SESSION, held, now),
            *(keys.seal(purpose, held, now) for purpose in (sessions.UI, sessions.CODE)),
        ):
            browser.cookies[name] = sealed
            await self.refused(backend, door, browser, cli, offer)

    async def test_cookies(self, door, provider, browser):
        reply = await browser.signed_in(door.port, Cli())
        for line in reply.lines("Set-Cookie"):
            assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/"} <= set(line.split("; "))
            assert "Domain" not in line
            assert line.startswith(("klutch-bind-", "__Host-"))


class TestCodes:
    @pytest.fixture
    async def ours(self, door, provider, browser, offer):
        """Our CLI, and the code that came to it."""
        made = Cli.ours()
        assert (await browser.signed_in(door.port, made, **wire(offer))).status == 302
        reply = await browser.binds(door.port, made, wire(offer))
        assert reply.status == 302, reply.body
        assert reply.location.startswith(f"{made.target}?")
        assert (reply.query["state"], reply.query["iss"]) == (made.s, PUBLIC)
        return made, reply.query["code"]

    async def redeemed(self, backend, door, code, verifier):
        wish = {"code": code, "code_verifier": verifier}
        given = {name: text for name, text in wish.items() if text is not None}
        return await backend.client().post(door.port, "/api/v1/redeem", document=given)

    async def test_makes_nothing_before_it_is_redeemed(self, backend, provider, ours):
        assert await backend.spaces(provider.user.subject) == []

    @pytest.mark.parametrize("verifier", [None, "", "x" * 43, "x" * 42, 7, ["a"]])
    async def test_without_its_verifier(self, backend, door, ours, verifier):
        async with backend.nothing_written():
            reply = await self.redeemed(backend, door, ours[1], verifier)
        assert (reply.status, reply.document["code"]) == (400, "invalid_request")
        assert (await self.redeemed(backend, door, ours[1], ours[0].verifier)).status == 200
        backend.resting = False

    async def test_twice(self, backend, door, second, provider, ours):
        cli, code = ours
        backend.resting = False
        first = await self.redeemed(backend, door, code, cli.verifier)
        assert (
            first.document["bindingResponse"]["authentication"]["oauth2CodeGrant"]["sid"] == cli.s
        )
        async with backend.nothing_written():
            assert (await self.redeemed(backend, door, code, cli.verifier)).status == 400
        assert (await self.redeemed(backend, second, code, cli.verifier)).status == 200
        assert len(await backend.spaces(provider.user.subject)) == 1
        backend.resting = False

    @pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b"[" * 60_000, b"\xff"])
    async def test_bodies(self, backend, door, body):
        client = backend.client()
        async with backend.nothing_written():
            for path in ("/api/v1/redeem", "/api/v1/join"):
                kind = {"Content-Type": "application/json"}
                reply = await client.send("POST", door.port, path, kind, body)
                assert reply.status in {400, 404}
                assert reply.document["kind"] == "Error"


class TestOwners:
    async def machine(self, backend, door, token, offer, cid):
        wish = {"clusterID": cid, "resources": [wire(offer)], "dryRun": False}
        headers = {"Authorization": f"Bearer {token}"}
        return await backend.client().post(door.port, "/api/v1/bind", document=wish, **headers)

    async def test_same_subject_at_a_second_issuer(self, backend, door, provider, other, offer):
        cli, subject = Cli(), provider.user.subject
        await backend.bound(door, offer, cli)
        theirs = bearer(other, sub=subject)
        assert (await self.machine(backend, door, theirs, offer, cli.c)).status == 200
        (own,) = await backend.spaces(f"{subject}#{cli.c}")
        (foreign,) = await backend.spaces(f"{other.issuer}|{subject}#{cli.c}")
        assert own != foreign

    async def test_subject_that_looks_like_the_space_of_another(
        self, backend, door, provider, other, offer
    ):
        cli, subject = Cli(), provider.user.subject
        await backend.bound(door, offer, cli)
        (victims,) = await backend.spaces(f"{subject}#{cli.c}")
        for cid, sub in (("x", f"{subject}#{cli.c}"), (cli.c, f"{subject}#")):
            reply = await self.machine(backend, door, bearer(provider, sub=sub), offer, cid)
            assert reply.status in {200, 400, 401, 409}
            if reply.status == 200:
                assert victims not in reply.text
                assert victims not in base64.b64decode(reply.document["kubeconfig"]).decode()
        async with backend.nothing_written():
            barred = bearer(provider, sub=f"{other.issuer}|{subject}")
            assert (await self.machine(backend, door, barred, offer, cli.c)).status == 401

    async def test_provider_exchanged(self, backend, door, provider, other, offer):
        cli = Cli()
        await backend.bound(door, offer, cli)
        (space,) = await backend.spaces(f"{provider.user.subject}#{cli.c}")
        other.sign_in_as(provider.user.subject, groups=["team-a"])
        exchanged = await backend.start(issuer=other.issuer)
        browser = backend.client()
        assert (await browser.signed_in(exchanged.port, cli)).status == 302
        async with backend.nothing_written():
            reply = await browser.binds(exchanged.port, cli, wire(offer))
        assert (reply.status, reply.location) == (409, "")
        assert space not in reply.text
        exchanged.replica.process.kill()

    async def test_one_cid_too_many(self, backend, door, provider, offer):
        for _ in range(MOST_SPACES):
            await backend.bound(door, offer, Cli())
        browser, cli = backend.client(), Cli()
        assert (await browser.signed_in(door.port, cli)).status == 302
        async with backend.nothing_written():
            assert (await browser.binds(door.port, cli, wire(offer))).status == 403
        assert len(await backend.spaces(provider.user.subject)) == MOST_SPACES

    async def test_twenty_at_once(self, backend, door, second, provider, offer):
        cli = Cli()
        token = bearer(provider, sub=provider.user.subject)
        replies = await asyncio.gather(
            *(
                self.machine(backend, one, token, offer, cli.c)
                for one in (door, second)
                for _ in range(10)
            )
        )
        assert {reply.status for reply in replies} == {200}
        assert len({reply.document["kubeconfig"] for reply in replies}) == 1
        (space,) = await backend.spaces(provider.user.subject)
        assert await inside(backend.plane.cluster, space) == COMPLETE
        backend.resting = False


class TestTemplates:
    async def test_absent_wrong_scope_forbidden(self, backend, door, provider, offer, cluster_wide):
        browser, cli = backend.client(), Cli()
        assert (await browser.signed_in(door.port, cli)).status == 302
        absent = {"resource": "nothing", "group": offer.group}
        async with backend.nothing_written():
            assert (await browser.binds(door.port, cli, absent)).status == 404
            assert (await browser.binds(door.port, cli, wire(cluster_wide))).status == 409
            provider.sign_in_as("mallory", groups=["team-b"])
            stranger, theirs = backend.client(), Cli()
            assert (await stranger.signed_in(door.port, theirs)).status == 302
            assert (await stranger.binds(door.port, theirs, wire(offer))).status == 403
            ours = Cli.ours()
            assert (await stranger.signed_in(door.port, ours)).status == 302
            reply = await stranger.binds(door.port, ours, wire(offer))
            assert (reply.status, reply.location) == (403, "")
            wish = {"clusterID": theirs.c, "resources": [wire(offer)], "dryRun": True}
            token = bearer(provider, sub="mallory", groups=["team-b"])
            reply = await stranger.post(
                door.port, "/api/v1/bind", document=wish, Authorization=f"Bearer {token}"
            )
            assert (reply.status, reply.document["code"]) == (403, "forbidden")
        assert await backend.spaces("mallory") == []
