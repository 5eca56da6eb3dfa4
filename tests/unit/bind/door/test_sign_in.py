"""A sign-in: what may begin it, what comes back, and what a browser holds then."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from bind.door.handlers.sign_in import SignIn, wish_of
from bind.door.identity import Refused
from reconciler.core.errors import KlutchError
from reconciler.oidc import grants
from reconciler.oidc.provider import TokenRefused
from reconciler.web.outbound import Answer, OutboundError
from reconciler.web.requests import Response
from tests.support.door_desk import ALICE, PROVIDER, SETTINGS, SID, Desk, location, query_of

CHALLENGE = grants.challenge(grants.verifier(b"v" * 32))
PLAIN = {"s": "abc", "c": "4ceiSr", "p": "40123"}
OURS = {**PLAIN, "s": SID, "code_challenge": CHALLENGE, "code_challenge_method": "S256"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"s": ""}, "missing"),
        ({"c": ""}, "missing"),
        ({"p": ""}, "missing"),
        ({"s": "a b"}, "malformed"),
        ({"s": "a" * 65}, "malformed"),
        ({"c": "a;b"}, "malformed"),
        ({"p": "0"}, "target"),
        ({"p": "65536"}, "target"),
        ({"p": "1\u0662"}, "target"),
        ({"u": "https://evil.example"}, "target"),
        ({"resource": "A"}, "malformed"),
        ({"group": "a/b"}, "malformed"),
        ({"code_challenge": "short"}, "challenge"),
        ({"code_challenge_method": "plain"}, "challenge"),
        ({"code_challenge": ""}, "challenge"),
        ({"s": "a" * 19}, "malformed"),
        ({"dry_run": "true"}, "malformed"),
        ({"dry_run": "1", "code_challenge": "", "code_challenge_method": ""}, "challenge"),
    ],
)
def test_a_wish_that_is_malformed_is_refused(change: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        wish_of({**OURS, **change}, ())
    assert (refused.value.code, refused.value.reason) == ("invalid_request", reason)


@pytest.mark.parametrize(("text", "expected"), [("", False), ("0", False), ("1", True)])
def test_a_dry_run_is_asked_for_by_1(text: str, expected: bool) -> None:
    assert wish_of({**OURS, "dry_run": text}, ()).dry_run is expected


async def begin(desk: Desk, query: dict[str, str] = PLAIN) -> dict[str, str]:
    return query_of(location(await desk.ask(SignIn(desk.services).authorize, query)))


async def come_back(desk: Desk, state: str, **more: str) -> Response:
    return await desk.ask(SignIn(desk.services).callback, {"state": state, "code": "c", **more})


async def test_the_provider_gets_a_challenge_a_nonce_and_the_callback() -> None:
    sent = await begin(Desk())
    assert sent["redirect_uri"] == SETTINGS.callback
    assert (sent["response_type"], sent["code_challenge_method"]) == ("code", "S256")
    assert len(sent["state"]) == len(sent["nonce"]) == 22
    assert sent["state"] != sent["nonce"]


@pytest.mark.parametrize(
    ("callback", "name"),
    [
        ("https://bind.example.org/callback", "__Host-klutch-login-"),
        ("http://bind.example.org/callback", "klutch-login-"),
    ],
)
async def test_a_login_cookie_is_as_safe_as_the_way_to_the_door(callback: str, name: str) -> None:
    desk = Desk(replace(SETTINGS, callback=callback))
    answer = await desk.ask(SignIn(desk.services).authorize, PLAIN)
    (cookie,) = answer.cookies
    assert cookie.name.startswith(name)
    assert cookie.secure == callback.startswith("https")


async def test_another_host_leads_to_that_of_the_callback_once() -> None:
    desk = Desk()
    answer = await desk.ask(
        SignIn(desk.services).authorize, PLAIN, headers={"host": "evil.example"}
    )
    assert location(answer).startswith("https://bind.example.org/authorize?")
    again = await desk.ask(
        SignIn(desk.services).authorize,
        query_of(location(answer)),
        headers={"host": "evil.example"},
    )
    assert location(again).startswith(PROVIDER.authorization_endpoint)


async def test_a_sign_in_becomes_a_session_of_one_hour() -> None:
    desk = Desk()
    answer = await come_back(desk, (await begin(desk))["state"])
    assert location(answer) == "/resources?s=abc"
    assert list(desk.cookies) == ["klutch-bind-abc"]
    assert {one.age for one in answer.cookies} == {0, 3_600}


async def test_a_named_resource_leads_to_consent() -> None:
    desk = Desk()
    named = {**OURS, "resource": "caches", "group": "shop.example"}
    answer = await come_back(desk, (await begin(desk, named))["state"])
    assert location(answer) == f"/consent?s={SID}&resource=caches&group=shop.example"


@pytest.mark.parametrize(
    ("query", "status"),
    [({"error": "access_denied"}, 400), ({"error": "<script>"}, 400), ({"code": ""}, 400)],
)
async def test_a_callback_without_a_code_asks_nobody(query: dict[str, str], status: int) -> None:
    desk = Desk()
    answer = await come_back(desk, (await begin(desk))["state"], **query)
    assert answer.status == status
    assert b"<script>" not in answer.body
    assert desk.provider.sent == 0


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"identity": TokenRefused("nonce", "another nonce")}, 401),
        ({"identity": Refused("invalid_token", "a bar", reason="sub")}, 401),
        ({"token": Answer(400, b'{"error":"invalid_grant"}', {}, "")}, 400),
        ({"token": Answer(401, b'{"error":"invalid_client"}', {}, "")}, 502),
        ({"token": Answer(200, b'{"access_token":"a","token_type":"Bearer"}', {}, "")}, 401),
        ({"token": Answer(200, b"garbage", {}, "")}, 502),
        ({"token": OutboundError("https://idp.example.org/token", "no answer")}, 502),
    ],
)
async def test_what_a_provider_refuses_is_a_status_and_no_session(
    change: dict[str, Any], status: int
) -> None:
    desk = Desk()
    state = (await begin(desk))["state"]
    for name, value in change.items():
        setattr(desk.provider, name, value)
    answer = await come_back(desk, state)
    assert answer.status == status
    assert not desk.cookies
    (line,) = map(json.loads, desk.lines.text.splitlines())
    assert (line["event"], line["outcome"]) == ("sign-in", "refused")


@pytest.mark.parametrize("fault", [OutboundError("https://idp", "no answer"), KlutchError("?")])
async def test_without_the_provider_a_sign_in_does_not_begin(fault: Exception) -> None:
    desk = Desk()
    desk.provider.says = fault
    with pytest.raises(Refused) as refused:
        await begin(desk)
    assert refused.value.code == "unavailable"
    assert not desk.cookies


async def test_a_browser_holds_its_five_latest_sign_ins() -> None:
    desk = Desk()
    states = []
    for _ in range(8):
        desk.time += 1
        states.append((await begin(desk))["state"])
    assert len(desk.cookies) == 5
    done = [(await come_back(desk, state)).status for state in states]
    assert done == [400] * 3 + [302] * 5


@pytest.mark.parametrize("groups", [1, 40])
async def test_the_cookies_of_a_browser_never_outgrow_a_request(groups: int) -> None:
    desk = Desk()
    names = tuple(sha256(bytes([place])).hexdigest() for place in range(groups))
    desk.provider.identity = replace(ALICE, groups=names)
    for place in range(20):
        desk.time += 1
        query = {**PLAIN, "s": f"session-{place}"}
        assert (await come_back(desk, (await begin(desk, query))["state"])).status == 302
        assert f"klutch-bind-session-{place}" in desk.cookies
    assert sum(len(name) + len(text) for name, text in desk.cookies.items()) < 5_000


async def test_cookies_that_are_not_ours_are_left_alone() -> None:
    desk = Desk()
    strange = {f"__Host-klutch-login-({place}": "x" for place in range(9)}
    desk.cookies = dict(strange)
    await begin(desk)
    assert strange.items() <= desk.cookies.items()


async def test_an_identity_that_no_cookie_holds_is_refused() -> None:
    desk = Desk()
    groups = tuple(sha256(bytes([place])).hexdigest() for place in range(200))
    desk.provider.identity = replace(ALICE, groups=groups)
    answer = await come_back(desk, (await begin(desk))["state"])
    assert answer.status == 403
    assert not desk.cookies
