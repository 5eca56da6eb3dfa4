"""What providers answer: tokens, codes for devices, refusals, callbacks."""

import json
from dataclasses import replace

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import grants
from reconciler.oidc.provider import GrantRefused, ProviderFault, TokenRefused
from tests.unit.oidc.made import ISSUER, PROVIDER

TOKENS = {"access_token": "2YotnFZFEjr1zCsicMWpAA", "token_type": "Bearer", "expires_in": 3600}
DEVICE = {
    "device_code": "GmRhmhcxhwAzkoEqiMEg_DnyEysNkuNhszIySk9eS",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://id.example/device",
    "verification_uri_complete": "https://id.example/device?user_code=WDJB-MJHT",
    "expires_in": 1800,
    "interval": 5,
}


def body(document, **changes):
    merged = {**document, **changes}
    return json.dumps({name: v for name, v in merged.items() if v is not None}).encode()


def test_tokens():
    read = grants.tokens_of(200, body(TOKENS, id_token="eyJ.eyJ.sig"))
    assert read.access_token == Secret("2YotnFZFEjr1zCsicMWpAA")
    assert read.required_id_token() == Secret("eyJ.eyJ.sig")
    assert "2Yot" not in repr(read)
    assert "eyJ" not in repr(read)


def test_an_answer_without_an_id_token_signs_nobody_in():
    read = grants.tokens_of(200, body(TOKENS))
    with pytest.raises(TokenRefused) as refused:
        read.required_id_token()
    assert refused.value.reason == "missing"


FAULTS = {
    "no access token": body(TOKENS, access_token=None),
    "an empty access token": body(TOKENS, access_token=""),
    "an access token that is a number": body(TOKENS, access_token=7),
    "an access token with a line break": body(TOKENS, access_token="a\r\nX: b"),
    "an ID token that is a list": body(TOKENS, id_token=["a"]),
    "no type": body(TOKENS, token_type=None),
    "a type that is not known": body(TOKENS, token_type="mac"),
    "a token that is bound to a key": body(TOKENS, token_type="DPoP"),
    "an exchanged refresh token": body(
        TOKENS, issued_token_type="urn:ietf:params:oauth:token-type:refresh_token"
    ),
    "an error with status 200": body(TOKENS, error="invalid_grant"),
    "a list": b"[]",
    "no JSON": b"access_token=a&token_type=bearer",
    "nothing": b"",
}


@pytest.mark.parametrize("answer", FAULTS.values(), ids=FAULTS.keys())
def test_no_tokens(answer):
    with pytest.raises(ProviderFault):
        grants.tokens_of(200, answer)


@pytest.mark.parametrize("issued", ["access_token", "jwt", "id_token"])
@pytest.mark.parametrize("token_type", ["bearer", "BEARER", "N_A"])
def test_exchanged_token(issued, token_type):
    kind = f"urn:ietf:params:oauth:token-type:{issued}"
    answer = body(TOKENS, token_type=token_type, issued_token_type=kind)
    assert grants.tokens_of(200, answer).access_token


STATUSES = {
    "a refusal": (400, b'{"error": "invalid_grant"}', GrantRefused),
    "a refused client": (401, b'{"error": "invalid_client"}', GrantRefused),
    "too fast": (429, b'{"error": "slow_down"}', GrantRefused),
    "no error document": (400, b"<html>", ProviderFault),
    "an error that is no word": (400, b'{"error": "a\\u0000b"}', ProviderFault),
    "an error that is a number": (400, b'{"error": 7}', ProviderFault),
    "tokens with a refusal's status": (400, body(TOKENS), ProviderFault),
    "moved": (302, body(TOKENS), ProviderFault),
    "created": (201, body(TOKENS), ProviderFault),
    "broken": (500, b'{"error": "server_error"}', ProviderFault),
    "away": (503, b"", ProviderFault),
}


@pytest.mark.parametrize(("status", "answer", "error"), STATUSES.values(), ids=STATUSES.keys())
def test_status(status, answer, error):
    for read in (grants.tokens_of, grants.device_code_of):
        with pytest.raises(error):
            read(status, answer)


def test_a_refusal_says_why_and_repeats_no_secret_and_no_control_character():
    said = "code SplxlOBe!ZQQYbYS6$WxSbIA \x1b[2J is\nused " + "word " * 100
    with pytest.raises(GrantRefused) as refused:
        grants.tokens_of(400, body({"error": "invalid_grant", "error_description": said}))
    assert str(refused.value).startswith("invalid_grant: code <redacted> is used word")
    assert (refused.value.error, len(refused.value.description)) == ("invalid_grant", 200)


def test_device_code():
    read = grants.device_code_of(200, body(DEVICE))
    assert read.device_code.reveal() == DEVICE["device_code"]
    assert (read.user_code, read.expires_in, read.interval) == ("WDJB-MJHT", 1800.0, 5.0)
    assert read.verification_uri == DEVICE["verification_uri"]
    assert read.verification_uri_complete == DEVICE["verification_uri_complete"]
    assert "GmRh" not in repr(read)


INTERVALS = {
    "not sent": (None, 5.0),
    "as text": ("3600", 3600.0),
    "no number": ("soon", 5.0),
    "negative": (-1, 5.0),
    "a truth value": (True, 5.0),
    "with a fraction": (1.5, 1.5),
    "too short": (0, 1.0),
}


@pytest.mark.parametrize(("sent", "interval"), INTERVALS.values(), ids=INTERVALS.keys())
def test_interval(sent, interval):
    assert grants.device_code_of(200, body(DEVICE, interval=sent)).interval == interval


NO_DEVICE_CODES = {
    "no device code": {"device_code": None},
    "no user code": {"user_code": None},
    "a user code with control characters": {"user_code": "\x1b[2J"},
    "a user code of 65 characters": {"user_code": "A" * 65},
    "no address": {"verification_uri": None},
    "an address over http": {"verification_uri": "http://id.example/device"},
    "an address that is a script": {"verification_uri": "javascript:alert(1)"},
    "an address with the code that is a file": {"verification_uri_complete": "file:///etc"},
    "no end": {"expires_in": None},
    "over at once": {"expires_in": 0},
}


@pytest.mark.parametrize("changes", NO_DEVICE_CODES.values(), ids=NO_DEVICE_CODES.keys())
def test_no_device_code(changes):
    with pytest.raises(ProviderFault):
        grants.device_code_of(200, body(DEVICE, **changes))


def test_the_address_with_the_code_may_be_missing():
    answer = body(DEVICE, verification_uri_complete=None)
    assert grants.device_code_of(200, answer).verification_uri_complete == ""


def test_how_often_a_device_asks():
    assert grants.after_device_refusal(GrantRefused("authorization_pending"), 7.0) == 7.0
    assert grants.after_device_refusal(GrantRefused("slow_down"), 7.0) == 12.0


@pytest.mark.parametrize("error", ["access_denied", "expired_token", "invalid_grant", "Slow_Down"])
def test_when_a_device_stops_asking(error):
    with pytest.raises(GrantRefused) as refused:
        grants.after_device_refusal(GrantRefused(error), 5.0)
    assert refused.value.error == error


CALLBACKS = {
    "the issuer": (ISSUER, True, True),
    "the issuer, not announced": (ISSUER, False, True),
    "no issuer, not announced": ("", False, True),
    "no issuer, though announced": ("", True, False),
    "another issuer": ("https://other.example", True, False),
    "another issuer, not announced": ("https://other.example", False, False),
    "the issuer with a slash": (f"{ISSUER}/", True, False),
}


@pytest.mark.parametrize(("iss", "announced", "counts"), CALLBACKS.values(), ids=CALLBACKS.keys())
def test_callback(iss, announced, counts):
    provider = replace(PROVIDER, announces_iss=announced)
    assert bool(grants.callback_problem(provider, iss=iss)) is not counts
