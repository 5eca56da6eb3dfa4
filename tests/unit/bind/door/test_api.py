"""Codes and bearer tokens: what they bind, and what they do not."""

import json
from typing import Any

import pytest

from bind.door.handlers.api import Api
from bind.door.handlers.services import UsedOnce
from bind.door.identity import Refused
from reconciler.web.requests import Response
from tests.support.door_desk import SID, Desk
from tests.unit.bind.door.test_walk import CODE, code_of, redeem, signed_in

CACHES = {"group": "shop.example", "resource": "caches"}
WANTED = {"clusterID": "4ceiSr", "resources": [CACHES]}
BEARER = {"authorization": "Bearer a.b.c"}


async def bind(desk: Desk, document: Any, headers: dict[str, str] = BEARER) -> Response:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return await desk.ask(Api(desk.services).bind, headers=headers, body=body)


async def test_a_machine_binds_by_its_token() -> None:
    desk = Desk()
    response = json.loads((await bind(desk, WANTED)).body)
    assert response["authentication"] == {}
    assert response["requests"][0]["metadata"] == {"name": "caches.shop.example"}
    assert desk.plane.made == [("alice", "4ceiSr", "caches.shop.example")]


async def test_the_name_of_a_cluster_is_shown_and_nothing_else_of_what_was_sent() -> None:
    desk = Desk()
    for name in ("prod-eu", "a\x1b[2K\u202e\nb" + "c" * 99, 1, None):
        await bind(desk, {**WANTED, "clusterName": name})
    assert desk.plane.labels == ["prod-eu", "a[2Kb" + "c" * 75, "", ""]


async def test_a_dry_run_makes_nothing() -> None:
    desk = Desk()
    response = json.loads((await bind(desk, {**WANTED, "dryRun": True})).body)
    assert response["kubeconfig"] == ""
    assert not desk.plane.made


@pytest.mark.parametrize(
    "document",
    [
        b"",
        {**WANTED, "clusterID": ""},
        {**WANTED, "resources": []},
        {**WANTED, "resources": [CACHES, "queues.shop.example"]},
        {**WANTED, "resources": [CACHES] * 101},
        {**WANTED, "dryRun": "true"},
    ],
)
async def test_a_malformed_document_makes_nothing(document: Any) -> None:
    desk = Desk()
    with pytest.raises(Refused) as refused:
        await bind(desk, document)
    assert refused.value.code == "invalid_request"
    assert not desk.plane.made


async def test_one_resource_that_is_forbidden_or_absent_is_none_of_them() -> None:
    desk = Desk()
    with pytest.raises(Refused):
        await bind(desk, {**WANTED, "resources": [CACHES, {**CACHES, "resource": "queues"}]})
    assert not desk.plane.made


async def test_five_bad_tokens_of_an_address_are_enough() -> None:
    desk = Desk()
    proven, desk.provider.identity = desk.provider.identity, Refused("invalid_token", "no")
    codes = []
    for _ in range(6):
        with pytest.raises(Refused) as refused:
            await bind(desk, WANTED)
        codes.append(refused.value.code)
    assert codes == ["invalid_token"] * 5 + ["too_many_requests"]
    assert len(desk.lines.text.splitlines()) == 5
    desk.provider.identity = proven
    assert (await bind(desk, WANTED)).status == 200  # of somebody else behind the same address


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic a:b", "a.b.c"])
async def test_without_a_bearer_token_nothing_is_done(header: str) -> None:
    desk = Desk()
    for handler in (Api(desk.services).bind, Api(desk.services).catalogue):
        with pytest.raises(Refused) as refused:
            await desk.ask(handler, headers={"authorization": header})
        assert refused.value.code == "invalid_token"
    assert desk.plane.reads == 0


async def test_one_subject_looks_at_the_catalogue_ten_times_at_once() -> None:
    desk = Desk()
    catalogue = Api(desk.services).catalogue
    for _ in range(10):
        (row,) = json.loads((await desk.ask(catalogue, headers=BEARER)).body)
        assert row["mayBind"] is True
    with pytest.raises(Refused) as refused:
        await desk.ask(catalogue, headers=BEARER)
    assert refused.value.code == "too_many_requests"
    assert (await bind(desk, WANTED)).status == 200


async def test_a_code_is_good_once_and_for_a_minute() -> None:
    desk = await signed_in(CODE)
    code, late = await code_of(desk, "0"), await code_of(desk, "0")
    assert (await redeem(desk, code)).status == 200
    with pytest.raises(Refused) as refused:
        await redeem(desk, code)
    assert refused.value.reason == "replay"
    desk.time += 62
    for spent in (code, late, "garbage", "", "\u00e9", desk.cookies[f"klutch-bind-{SID}"]):
        with pytest.raises(Refused) as refused:
            await redeem(desk, spent)
        assert refused.value.code == "invalid_request"


async def test_a_code_stays_good_where_the_space_is_not_ready() -> None:
    desk = await signed_in(CODE)
    code = await code_of(desk, "0")
    ready, desk.plane.space = desk.plane.space, Refused("unavailable", "not yet")
    with pytest.raises(Refused):
        await redeem(desk, code)
    desk.plane.space = ready
    assert (await redeem(desk, code)).status == 200


async def test_a_right_that_was_taken_away_counts_at_the_redemption() -> None:
    desk = await signed_in(CODE)
    code = await code_of(desk, "0")
    desk.plane.allowed = False
    with pytest.raises(Refused) as refused:
        await redeem(desk, code)
    assert refused.value.code == "forbidden"
    assert not desk.plane.made


async def test_no_line_of_the_audit_holds_what_proves_something() -> None:
    desk = await signed_in(CODE)
    code = await code_of(desk, "0")
    await redeem(desk, code)
    await bind(desk, WANTED)
    held = [code, "s3cret", "a.b.c", "kubeconfig", *desk.cookies.values()]
    assert [one for one in held if one in desk.lines.text] == []
    events = [json.loads(line)["event"] for line in desk.lines.text.splitlines()]
    assert events == ["sign-in", "redeem", "bind"]


def test_what_was_used_is_forgotten_when_it_is_too_old_anyway() -> None:
    used = UsedOnce(60)
    assert [used.take(str(place), place) for place in range(200)] == [True] * 200
    assert len(used) <= 61
    assert not used.take("199", 199)
    used.give_back("199")
    assert used.take("199", 199)
