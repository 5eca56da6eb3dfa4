"""What a signed-in browser may see and do, and what reaches its CLI."""

import base64
import html
import json
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from bind.door.handlers.api import Api
from bind.door.handlers.sign_in import SignIn
from bind.door.handlers.walk import Walk
from bind.door.identity import Refused
from reconciler.oidc import grants
from reconciler.web.requests import Response
from tests.support.door_desk import (
    ALICE,
    CACHES,
    HOST,
    OURS,
    SETTINGS,
    SID,
    Desk,
    asking,
    csrf_of,
    location,
    query_of,
)

VERIFIER = grants.verifier(b"v" * 32)
CHOSEN = {"resource": "caches", "group": "shop.example"}
PLAIN = {"s": "abc", "c": "4ceiSr", "p": "40123"}
CODE = {
    **PLAIN,
    "s": SID,
    "code_challenge": grants.challenge(VERIFIER),
    "code_challenge_method": "S256",
}


async def signed_in(query: dict[str, str], desk: Desk | None = None) -> Desk:
    desk = desk or Desk()
    sign_in = SignIn(desk.services)
    sent = query_of(location(await desk.ask(sign_in.authorize, query)))
    assert (await desk.ask(sign_in.callback, {"state": sent["state"], "code": "c"})).status == 302
    return desk


async def page(desk: Desk, sid: str = SID) -> Response:
    return await desk.ask(Walk(desk.services).consent, {"s": sid, **CHOSEN})


async def agree(
    desk: Desk, csrf: str, *claims: str, sid: str = SID, headers: dict[str, str] = OURS
) -> Response:
    body = urlencode([("csrf", csrf), *(("claim", one) for one in claims)]).encode()
    handler = Walk(desk.services).agreed
    return await desk.ask(handler, {"s": sid, **CHOSEN}, headers=headers, body=body)


async def redeem(desk: Desk, code: str, verifier: str = VERIFIER.reveal()) -> Response:
    body = json.dumps({"code": code, "code_verifier": verifier}).encode()
    return await desk.ask(Api(desk.services).redeem, body=body)


async def code_of(desk: Desk, *claims: str) -> str:
    return query_of(location(await agree(desk, csrf_of(await page(desk)), *claims)))["code"]


async def test_the_name_of_a_cluster_goes_along_to_its_space() -> None:
    desk = await signed_in({**CODE, "cluster_name": "prod-eu"})
    assert "prod-eu" in html.unescape((await page(desk)).body.decode())
    await redeem(desk, await code_of(desk, "0"))
    assert desk.plane.labels == ["prod-eu"]


async def test_strangers_see_no_card_and_cost_no_read() -> None:
    desk = Desk()
    answer = await desk.ask(Walk(desk.services).resources, {"s": "abc"})
    assert answer.status == 200
    assert b"caches" not in answer.body
    assert desk.plane.reads == 0


@pytest.mark.parametrize(("query", "path"), [(PLAIN, "/bind"), (CODE, "/consent")])
async def test_cards_lead_on_by_what_the_cli_can_do(query: dict[str, str], path: str) -> None:
    desk = await signed_in(query)
    answer = await desk.ask(Walk(desk.services).resources, {"s": query["s"]})
    assert f'href="{path}?s={query["s"]}'.encode() in answer.body
    assert b"<h2><bdi>A cache</bdi></h2>" in answer.body


async def test_who_declines_is_led_back_to_the_cli_without_a_code() -> None:
    body = (await page(await signed_in(CODE))).body.decode()
    query = query_of(html.unescape(body.partition('id="decline" href="')[2].partition('"')[0]))
    assert query == {"error": "access_denied", "state": SID, "iss": SETTINGS.public}


async def test_the_original_cli_gets_a_response() -> None:
    desk = await signed_in(PLAIN)
    answer = await desk.ask(Walk(desk.services).bind, {"s": "abc", **CHOSEN})
    assert location(answer).startswith("http://localhost:40123/callback?response=")
    response = json.loads(base64.b64decode(query_of(location(answer))["response"]))
    grant = {"sid": "abc", "id": "https://idp.example.org/alice"}
    assert response["authentication"] == {"oauth2CodeGrant": grant}
    assert base64.b64decode(response["kubeconfig"]) == b"kubeconfig"
    assert desk.plane.made == [("alice", "4ceiSr", "caches.shop.example")]


@pytest.mark.parametrize(
    ("site", "allowed"),
    [
        (None, True),
        ("none", True),
        ("same-origin", True),
        ("same-site", False),
        ("cross-site", False),
        ("nonsense", False),
    ],
)
async def test_links_of_other_sites_bind_nothing(site: str | None, allowed: bool) -> None:
    desk = await signed_in(PLAIN)
    headers = HOST if site is None else {**HOST, "sec-fetch-site": site}
    walked = desk.ask(Walk(desk.services).bind, {"s": "abc", **CHOSEN}, headers=headers)
    if allowed:
        assert (await walked).status == 302
        return
    with pytest.raises(Refused) as refused:
        await walked
    assert refused.value.code == "forbidden"
    assert not desk.plane.made


@pytest.mark.parametrize("sid", ["", "other", "a;b", "x" * 5_000])
async def test_the_session_of_another_sid_is_none(sid: str) -> None:
    desk = await signed_in(PLAIN)
    desk.cookies[f"klutch-bind-{sid}"] = desk.cookies["klutch-bind-abc"]
    for handler in (Walk(desk.services).bind, Walk(desk.services).consent):
        with pytest.raises(Refused) as refused:
            await desk.ask(handler, {"s": sid, **CHOSEN})
        assert refused.value.code == "invalid_token"


async def test_a_session_ends_after_an_hour() -> None:
    desk = await signed_in(PLAIN)
    desk.time += 3_602
    with pytest.raises(Refused) as refused:
        await desk.ask(Walk(desk.services).bind, {"s": "abc", **CHOSEN})
    assert refused.value.code == "invalid_token"


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ({"resource": "", "group": "shop.example"}, "invalid_request"),
        ({"resource": "a/b", "group": "shop.example"}, "invalid_request"),
        ({"resource": "caches", "group": "x" * 254}, "invalid_request"),
        ({"resource": "queues", "group": "shop.example"}, "not_found"),
    ],
)
async def test_what_is_not_offered_is_refused(chosen: dict[str, str], code: str) -> None:
    desk = await signed_in(PLAIN)
    with pytest.raises(Refused) as refused:
        await desk.ask(Walk(desk.services).bind, {"s": "abc", **chosen})
    assert refused.value.code == code
    assert not desk.plane.made


async def test_who_may_not_bind_sees_no_consent_and_gets_no_space() -> None:
    desk = await signed_in(CODE)
    desk.plane.allowed = False
    for handler in (Walk(desk.services).bind, Walk(desk.services).consent):
        with pytest.raises(Refused) as refused:
            await desk.ask(handler, {"s": SID, **CHOSEN})
        assert refused.value.code == "forbidden"
    assert not desk.plane.made


async def test_the_bind_of_our_cli_is_a_code_that_makes_nothing_yet() -> None:
    desk = await signed_in(CODE)
    sent = query_of(location(await desk.ask(Walk(desk.services).bind, {"s": SID, **CHOSEN})))
    assert (sent["state"], sent["iss"]) == (SID, SETTINGS.public)
    assert not desk.plane.made
    assert json.loads((await redeem(desk, sent["code"])).body)["consent"] is None


async def test_consent_is_what_was_checked() -> None:
    desk = await signed_in(CODE)
    answer = await redeem(desk, await code_of(desk, "0"))
    states = [(one["resource"], one["state"]) for one in json.loads(answer.body)["consent"]]
    assert states == [("secrets", "Accepted"), ("configmaps", "Rejected")]
    assert desk.plane.made == [("alice", "4ceiSr", "caches.shop.example")]


async def test_a_required_claim_that_is_not_checked_is_asked_for_again() -> None:
    desk = await signed_in(CODE)
    answer = await agree(desk, csrf_of(await page(desk)), "1")
    assert answer.status == 422
    assert b"secrets" in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        {**OURS, "origin": "https://evil.example"},
        {**OURS, "origin": "null"},
        {**OURS, "origin": ""},
        {**OURS, "origin": "https://bind.example.org.evil.example"},
        {"content-type": OURS["content-type"]},
    ],
)
async def test_a_form_of_another_site_is_refused(headers: dict[str, str]) -> None:
    desk = await signed_in(CODE)
    with pytest.raises(Refused) as refused:
        await agree(desk, csrf_of(await page(desk)), "0", headers=headers)
    assert refused.value.reason == "csrf"


async def test_pages_let_browsers_say_where_a_form_is_from() -> None:
    # With `no-referrer`, Chromium sends `Origin: null`.
    headers = dict((await page(await signed_in(CODE))).headers)
    assert headers["Referrer-Policy"] == "same-origin"
    assert "http://localhost:40123" in headers["Content-Security-Policy"]
    assert "Strict-Transport-Security" in headers


@pytest.mark.parametrize("origin", ["https://bind.example.org", "https://door.example.org"])
async def test_a_form_is_ours_at_either_address(origin: str) -> None:
    callback = "https://bind.example.org:443/callback"
    desk = Desk(replace(SETTINGS, callback=callback, public="https://door.example.org"))
    await signed_in(CODE, desk)
    answer = await agree(desk, csrf_of(await page(desk)), "0", headers={**OURS, "origin": origin})
    assert answer.status == 303


async def test_the_form_of_another_page_session_or_user_is_refused() -> None:
    desk = await signed_in(CODE)
    other = await signed_in({**CODE, "s": "t" * 22}, Desk())
    stranger = Desk()
    stranger.provider.identity = replace(ALICE, subject="bob")
    await signed_in(CODE, stranger)
    for csrf in (
        "",
        "x",
        "\u00e9",
        "0" * 64,
        csrf_of(await page(other, "t" * 22)),
        csrf_of(await page(stranger)),
    ):
        with pytest.raises(Refused) as refused:
            await agree(desk, csrf, "0")
        assert refused.value.reason == "csrf"


async def test_a_form_of_claims_that_changed_meanwhile_is_refused() -> None:
    desk = await signed_in(CODE)
    csrf = csrf_of(await page(desk))
    desk.plane.offers_now = [asking(resource="pods")]
    with pytest.raises(Refused) as refused:
        await agree(desk, csrf, "0", "1")
    assert refused.value.reason == "csrf"


async def test_consent_to_claims_that_changed_meanwhile_makes_nothing() -> None:
    desk = await signed_in(CODE)
    code = await code_of(desk, "0", "1")
    desk.plane.offers_now = [asking(resource="pods")]
    with pytest.raises(Refused) as refused:
        await redeem(desk, code)
    assert refused.value.code == "conflict"
    assert not desk.plane.made
    desk.plane.offers_now = [CACHES]
    assert (await redeem(desk, code)).status == 200


@pytest.mark.parametrize("claim", ["2", "-1", "x", "00"])
async def test_a_claim_that_is_not_there_is_refused(claim: str) -> None:
    desk = await signed_in(CODE)
    with pytest.raises(Refused) as refused:
        await agree(desk, csrf_of(await page(desk)), "0", claim)
    assert refused.value.code == "invalid_request"


async def test_a_cli_that_asks_itself_has_no_consent_page() -> None:
    desk = await signed_in(PLAIN)
    with pytest.raises(Refused) as refused:
        await page(desk, "abc")
    assert refused.value.reason == "challenge"


async def test_one_subject_has_ten_binds_at_once() -> None:
    desk = await signed_in(PLAIN)
    for _ in range(10):
        await desk.ask(Walk(desk.services).bind, {"s": "abc", **CHOSEN})
    with pytest.raises(Refused) as refused:
        await desk.ask(Walk(desk.services).bind, {"s": "abc", **CHOSEN})
    assert refused.value.code == "too_many_requests"
    assert len(desk.plane.made) == 10
