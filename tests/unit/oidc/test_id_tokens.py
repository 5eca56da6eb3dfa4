"""What an ID token has to say before somebody is signed in (OpenID Core 3.1.3.7)."""

import hashlib

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc.provider import TokenRefused
from reconciler.oidc.tokens import texts
from tests.support.issuer_tokens import at_hash, b64, signing_key
from tests.unit.oidc import made

DAY = 24 * 3600

REFUSED = {
    "2 another issuer": ({"iss": "https://other.example"}, "issuer"),
    "2 the issuer with a slash": ({"iss": "https://id.example/"}, "issuer"),
    "2 no issuer": ({"iss": None}, "issuer"),
    "3 another audience": ({"aud": "other"}, "audience"),
    "3 other audiences": ({"aud": ["other", "another"]}, "audience"),
    "3 others, though we are the authorized party": (
        {"aud": "other", "azp": made.DOOR},
        "audience",
    ),
    "3 ours in another case": ({"aud": "Door"}, "audience"),
    "3 no audience": ({"aud": None}, "audience"),
    "3 an empty list of audiences": ({"aud": []}, "audience"),
    "3 an audience that is a number": ({"aud": 7}, "audience"),
    "3 a number among audiences": ({"aud": [made.DOOR, 7], "azp": made.DOOR}, "audience"),
    "5 another authorized party": ({"azp": "other"}, "azp"),
    "5 several, and another authorized party": ({"aud": [made.DOOR, "o"], "azp": "o"}, "azp"),
    "5 an authorized party that is a list": ({"azp": [made.DOOR]}, "azp"),
    "5 an authorized party that is nobody": ({"aud": [made.DOOR, "other"], "azp": ""}, "azp"),
    "9 expired 31 s ago": ({"exp": made.NOW - 31}, "expired"),
    "9 never expires": ({"exp": None}, "times"),
    "9 expires at a text": ({"exp": str(made.NOW + 300)}, "times"),
    "9 expires at a truth value": ({"exp": True}, "times"),
    "10 issued 11 minutes ago": ({"iat": made.NOW - 660}, "times"),
    "10 issued a year ago": ({"iat": made.NOW - 365 * DAY}, "times"),
    "10 issued in 31 s": ({"iat": made.NOW + 31}, "early"),
    "10 not issued": ({"iat": None}, "times"),
    "10 issued at a list": ({"iat": [made.NOW]}, "times"),
    "11 another nonce": ({"nonce": "other"}, "nonce"),
    "11 no nonce": ({"nonce": None}, "nonce"),
    "11 the nonce in a list": ({"nonce": [made.NONCE]}, "nonce"),
    "13 signed in at a text": ({"auth_time": "yesterday"}, "auth_time"),
    "valid in 31 s": ({"nbf": made.NOW + 31}, "early"),
    "valid from a text on": ({"nbf": "now"}, "times"),
    "no subject": ({"sub": None}, "subject"),
    "an empty subject": ({"sub": ""}, "subject"),
    "a subject that is a number": ({"sub": 7}, "subject"),
    "a subject that is a list": ({"sub": ["alice"]}, "subject"),
    "a subject of 256 characters": ({"sub": "a" * 256}, "subject"),
    "another access token": ({"at_hash": at_hash("other")}, "at_hash"),
    "an empty hash of the access token": ({"at_hash": ""}, "at_hash"),
    "a hash of the access token that is a number": ({"at_hash": 7}, "at_hash"),
    "an access token of Keycloak": ({"typ": "Bearer"}, "type"),
    "a refresh token of Keycloak": ({"typ": "Refresh"}, "type"),
    "a logout token": (
        {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}},
        "type",
    ),
}
ACCESS_TOKEN = Secret("SlAV32hkKG")


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(changes, reason):
    with pytest.raises(TokenRefused) as refused:
        made.sign_in(made.token(made.of_sign_in(**changes)), access_token=ACCESS_TOKEN)
    assert refused.value.reason == reason


COUNTS = {
    "nothing beside what is needed": {},
    "we, in a list": {"aud": [made.DOOR]},
    "we among others, as the authorized party": {"aud": ["other", made.DOOR], "azp": made.DOOR},
    "we, as the authorized party": {"azp": made.DOOR},
    "4 we among others, without an authorized party": {"aud": ["other", made.DOOR]},
    "expired 29 s ago, by our clock": {"exp": made.NOW - 29},
    "issued in 29 s, by our clock": {"iat": made.NOW + 29, "nbf": made.NOW + 29},
    "issued 10 minutes ago": {"iat": made.NOW - 600},
    "times with fractions": {"iat": made.NOW - 0.5, "exp": made.NOW + 0.5},
    "a subject of 255 characters": {"sub": "ä" * 255},
    "the hash of the access token": {"at_hash": at_hash(ACCESS_TOKEN.reveal())},
    "an ID token of Keycloak": {"typ": "ID"},
}


@pytest.mark.parametrize("changes", COUNTS.values(), ids=COUNTS.keys())
def test_counts(changes):
    claims = made.of_sign_in(**changes)
    read = made.sign_in(made.token(claims), access_token=ACCESS_TOKEN)
    assert (read.issuer, read.subject) == (claims["iss"], claims["sub"])
    assert read.expires_at == claims["exp"]


@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "AT+JWT", "logout+jwt", "x+jwt"])
def test_a_token_of_another_type_is_no_id_token(kind):
    with pytest.raises(TokenRefused) as refused:
        made.sign_in(made.token(made.of_sign_in(), {"typ": kind}))
    assert refused.value.reason == "type"


@pytest.mark.parametrize("kind", ["JWT", "jwt", "application/jwt", None])
def test_the_type_may_be_missing(kind):
    assert made.sign_in(made.token(made.of_sign_in(), {"typ": kind})).subject == "alice"


def test_an_access_token_is_no_id_token():
    with pytest.raises(TokenRefused):
        made.sign_in(made.token(made.of_access()))


def test_without_a_nonce_none_is_needed():
    assert made.sign_in(made.token(made.of_sign_in(nonce=None)), nonce="").subject == "alice"


def test_without_an_access_token_its_hash_is_not_compared():
    assert made.sign_in(made.token(made.of_sign_in(at_hash="of another"))).subject == "alice"


def test_the_hash_of_an_access_token_follows_the_algorithm():
    edwards = signing_key("edwards", "Ed25519")
    half = b64(hashlib.sha512(b"SlAV32hkKG").digest()[:32])
    for alg in ("Ed25519", "EdDSA"):
        given = made.token(made.of_sign_in(at_hash=half), {"alg": alg}, key=edwards)
        assert (
            made.sign_in(given, made.key_set(edwards), access_token=ACCESS_TOKEN).subject == "alice"
        )
        with pytest.raises(TokenRefused):
            made.sign_in(given, made.key_set(edwards), access_token=Secret("other"))


def test_a_client_without_a_name_is_nobody():
    with pytest.raises(TokenRefused):
        made.sign_in(made.token(made.of_sign_in(aud="")), client_id="")
    with pytest.raises(TokenRefused):
        made.sign_in(made.token(made.of_sign_in(iss="")), issuer="")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("e", ("e",)),
        (["a", 1, "b"], ("a", "b")),
        (True, ("true",)),
        (7, ("7",)),
        ([], ()),
        ({}, ()),
    ],
)
def test_claims_are_read_by_their_kind(value, found):
    assert texts(made.sign_in(made.token(made.of_sign_in(claim=value))).raw["claim"]) == found


@pytest.mark.parametrize(
    ("verified", "counts"),
    [(False, False), ("true", False), (0, False), (True, True), (None, True)],
)
def test_an_address_that_nobody_verified_is_no_claim(verified, counts):
    """S24, for user names, `require` and rules alike: none of them finds it."""
    said = {"email": "a@example.org", "email_verified": verified}  # None: left out
    assert ("email" in made.sign_in(made.token(made.of_sign_in(**said))).raw) == counts
    given, require = made.token(made.of_access(**said)), {"email": ("a@example.org",)}
    assert ("email" in made.access(given).raw) == counts
    if counts:
        assert made.access(given, require=require)
    else:
        with pytest.raises(TokenRefused):
            made.access(given, require=require)
