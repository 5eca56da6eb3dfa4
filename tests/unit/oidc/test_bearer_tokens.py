"""What a bearer token has to say before its request is heard (RFC 9068 4, front door 4)."""

import pytest

from reconciler.oidc.provider import TokenRefused, UnknownKey
from tests.support.issuer_tokens import signing_key
from tests.unit.oidc.made import AUDIENCE, DOOR, NOW, access, key_set, of_access, of_sign_in, token

DAY = 24 * 3600

REFUSED = {
    "another issuer": ({"iss": "https://other.example"}, "issuer"),
    "another issuer in the same key set": ({"iss": "https://id.example/other"}, "issuer"),
    "no issuer": ({"iss": None}, "issuer"),
    "another audience": ({"aud": "https://other.example"}, "audience"),
    "the audience with a slash": ({"aud": f"{AUDIENCE}/"}, "audience"),
    "the web client": ({"aud": DOOR}, "audience"),
    "others": ({"aud": ["a", "b"]}, "audience"),
    "no audience": ({"aud": None}, "audience"),
    "nobody": ({"aud": []}, "audience"),
    "an audience within an object": ({"aud": {AUDIENCE: 1}}, "audience"),
    "expired 31 s ago": ({"exp": NOW - 31}, "expired"),
    "never expires": ({"exp": None}, "times"),
    "expires at a text": ({"exp": str(NOW)}, "times"),
    "valid in 31 s": ({"nbf": NOW + 31}, "early"),
    "issued in 31 s": ({"iat": NOW + 31}, "early"),
    "lives 24 hours and a second": ({"exp": NOW + DAY + 1}, "life"),
    "lives 24 hours and a second, is near its end": ({"iat": NOW - DAY, "exp": NOW + 1}, "life"),
    "says not when it was issued, lives for 25 hours": ({"iat": None, "exp": NOW + 90_000}, "life"),
    "no subject": ({"sub": None}, "subject"),
    "an empty subject": ({"sub": ""}, "subject"),
    "a subject that is a number": ({"sub": 7}, "subject"),
    "a subject of 256 characters": ({"sub": "a" * 256}, "subject"),
    "a refresh token of Keycloak": ({"typ": "Refresh"}, "type"),
    "an offline token of Keycloak": ({"typ": "Offline"}, "type"),
    "a logout token": (
        {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}},
        "type",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(changes, reason):
    with pytest.raises(TokenRefused) as refused:
        access(token(of_access(**changes)))
    assert refused.value.reason == reason


COUNTS = {
    "nothing beside what is needed": {"iat": None},
    "we among others": {"aud": ["other", AUDIENCE]},
    "an ID token of the command's device grant": {"aud": "cli", "azp": "cli", "at_hash": "x"},
    "expired 29 s ago, by our clock": {"exp": NOW - 29},
    "lives 24 hours": {"exp": NOW + DAY},
    "issued 23 hours ago": {"iat": NOW - 23 * 3600},
    "an access token of Keycloak": {"typ": "Bearer"},
    "a subject of 255 characters": {"sub": "a" * 255},
}


@pytest.mark.parametrize("changes", COUNTS.values(), ids=COUNTS.keys())
def test_counts(changes):
    claims = of_access(**changes)
    assert access(token(claims)).subject == claims["sub"]


def test_an_id_token_of_a_sign_in_is_no_bearer_token():
    with pytest.raises(TokenRefused) as refused:
        access(token(of_sign_in()))
    assert refused.value.reason == "audience"


ACCESS_TOKENS = {
    "client and time are there": ({"client_id": "pipeline"}, ""),
    "no client": ({}, "claims"),
    "an empty client": ({"client_id": ""}, "claims"),
    "a client that is a number": ({"client_id": 7}, "claims"),
    "no time of issue": ({"client_id": "pipeline", "iat": None}, "times"),
}


@pytest.mark.parametrize(("changes", "reason"), ACCESS_TOKENS.values(), ids=ACCESS_TOKENS.keys())
@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "AT+JWT"])
def test_access_token(kind, changes, reason):
    given = token(of_access(**changes), {"typ": kind})
    if not reason:
        assert access(given).raw["client_id"] == "pipeline"
        return
    with pytest.raises(TokenRefused) as refused:
        access(given)
    assert refused.value.reason == reason


@pytest.mark.parametrize("kind", ["logout+jwt", "secevent+jwt", "dpop+jwt", "id_token+x", ""])
def test_a_token_of_another_type_is_no_bearer_token(kind):
    given = token(of_access(), {"typ": kind})
    if not kind:
        assert access(given)
        return
    with pytest.raises(TokenRefused) as refused:
        access(given)
    assert refused.value.reason == "type"


REQUIRED = {
    "the value": ({"repository": "acme/shop"}, True),
    "another allowed value": ({"repository": "acme/blog"}, True),
    "a list with it": ({"repository": ["x", "acme/shop"]}, True),
    "another value": ({"repository": "evil/shop"}, False),
    "the value in another case": ({"repository": "Acme/shop"}, False),
    "more than the value": ({"repository": "acme/shop2"}, False),
    "no value": ({}, False),
    "an object": ({"repository": {"acme/shop": True}}, False),
}


@pytest.mark.parametrize(("changes", "counts"), REQUIRED.values(), ids=REQUIRED.keys())
def test_required_claims(changes, counts):
    require = {"repository": ("acme/shop", "acme/blog")}
    given = token(of_access(**changes))
    if counts:
        assert access(given, require=require)
        return
    with pytest.raises(TokenRefused) as refused:
        access(given, require=require)
    assert refused.value.reason == "claims"


def test_all_required_claims_are_needed():
    require = {"ref": ("main",), "protected": ("true",)}
    assert access(token(of_access(ref="main", protected=True)), require=require)
    with pytest.raises(TokenRefused):
        access(token(of_access(ref="main", protected=False)), require=require)
    with pytest.raises(TokenRefused):
        access(token(of_access(ref="main")), require={"ref": ()})


def test_without_audiences_no_token_counts():
    with pytest.raises(TokenRefused):
        access(token(of_access()), audiences=())


def test_a_rotated_key_is_asked_for_anew():
    fresh = signing_key("key-2", "ES256")
    given = token(of_access(), key=fresh)
    with pytest.raises(UnknownKey):
        access(given)
    assert access(given, key_set(fresh)).subject == "pipeline"
