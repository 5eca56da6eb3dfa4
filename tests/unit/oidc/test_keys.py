"""Which keys of a key set can be used."""

import json

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import grants
from reconciler.oidc.provider import ProviderFault, keys_of
from tests.support.issuer_tokens import b64, signing_key
from tests.unit.oidc.made import short_jwk

RSA, EC, ED = (signing_key(f"key-of-{a}", a) for a in ("RS256", "ES256", "Ed25519"))
SHORT = short_jwk(signing_key("short", "RS256", 1024))
SHORT_BY_A_BIT = {**RSA.jwk(), "n": b64(((1 << 2046) + 1).to_bytes(256, "big"))}


def ids(*members):
    return [key.id for key in keys_of(json.dumps({"keys": list(members)}).encode()).keys]


DROPPED = {
    "RSA of 1024 bits": SHORT,
    "RSA of 2047 bits": SHORT_BY_A_BIT,
    "RSA of 9000 bits": RSA.jwk(n=b64(b"\xff" * 1125)),
    "RSA with an even exponent": RSA.jwk(e="Ag"),
    "RSA without an exponent": RSA.jwk(e=None),
    "RSA with a modulus that is a number": RSA.jwk(n=7),
    "a key to encrypt": RSA.jwk(use="enc"),
    "a key with a use that is a list": RSA.jwk(use=["sig"]),
    "a key to sign with": RSA.jwk(key_ops=["sign"]),
    "key operations that are a number": RSA.jwk(key_ops=7),
    "a key for another purpose": RSA.jwk(alg="RSA-OAEP"),
    "a key for HMAC by name": RSA.jwk(alg="HS256"),
    "a shared secret": {"kty": "oct", "k": "AAAA", "kid": "a"},
    "a curve of Bitcoin": EC.jwk(crv="secp256k1"),
    "a point beside its curve": EC.jwk(y=EC.jwk()["x"]),
    "an unknown curve": EC.jwk(crv="P-1"),
    "X25519, which only exchanges": ED.jwk(crv="X25519"),
    "Ed448": ED.jwk(crv="Ed448"),
    "Ed25519 of 31 bytes": ED.jwk(x=b64(b"a" * 31)),
    "an unknown kind": {"kty": "AKP", "kid": "a", "pub": "AAAA"},
    "a kind that is a list": {"kty": ["RSA"], "kid": "a"},
    "no kind": {"kid": "a"},
    "a name that is a number": RSA.jwk(kid=7),
    "base64 with padding": RSA.jwk(e="AQAB=="),
}


@pytest.mark.parametrize("member", DROPPED.values(), ids=DROPPED.keys())
def test_dropped(member):
    assert ids(EC.jwk(), member) == ["key-of-ES256"]


COUNTS = {
    "RSA": RSA.jwk(),
    "a key without use and algorithm": RSA.jwk(use=None, alg=None),
    "a key to verify with": RSA.jwk(key_ops=["verify"]),
    "members that are not known": EC.jwk(x5u="https://evil.example", x5c=[7], exp=1),
    "a private key, of which the public half counts": EC.jwk(d="AAAA"),
}


@pytest.mark.parametrize("member", COUNTS.values(), ids=COUNTS.keys())
def test_counts(member):
    (key,) = keys_of(json.dumps({"keys": [member]}).encode()).keys
    assert not key.key.is_private


def test_a_hundred_keys_are_read():
    assert len(ids(*[EC.jwk()] * 101)) == 100


def test_members_that_are_no_objects_are_passed_over():
    assert ids(1, None, [], "a", ED.jwk()) == ["key-of-Ed25519"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": null}', b"\xff"])
def test_no_key_set(body):
    with pytest.raises(ProviderFault):
        keys_of(body)


# RFC 7636, appendix B.
OCTETS = bytes.fromhex("7418dfb49799e0254ffa607dd8adbbba16d4254d69d6bff05b58055853848d79")
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_the_example_of_the_rfc():
    assert grants.verifier(OCTETS) == Secret(VERIFIER)
    assert grants.challenge(Secret(VERIFIER)) == CHALLENGE
    assert grants.matches(CHALLENGE, Secret(VERIFIER))


def test_a_verifier_needs_32_bytes():
    with pytest.raises(ValueError, match="32"):
        grants.verifier(OCTETS[:31])


NO_MATCHES = {
    "another verifier": (CHALLENGE, VERIFIER[:-1] + "l"),
    "no verifier": (CHALLENGE, ""),
    "the verifier with a line break": (CHALLENGE, VERIFIER + "\n"),
    "`plain`: the verifier as challenge": (VERIFIER, VERIFIER),
    "the challenge as verifier": (CHALLENGE, CHALLENGE),
    "no challenge": ("", VERIFIER),
    "neither": ("", ""),
    "a verifier of 42 characters": (grants.challenge(Secret("a" * 42)), "a" * 42),
    "a verifier of 129 characters": (grants.challenge(Secret("a" * 129)), "a" * 129),
    "a verifier beyond ASCII": (CHALLENGE, "ä" * 43),
    "a challenge beyond ASCII": ("ä" * 43, VERIFIER),
}


@pytest.mark.parametrize(("challenge", "verifier"), NO_MATCHES.values(), ids=NO_MATCHES.keys())
def test_no_match(challenge, verifier):
    assert not grants.matches(challenge, Secret(verifier))


def test_a_verifier_of_128_characters_counts():
    longest = Secret("-._~" * 32)
    assert grants.matches(grants.challenge(longest), longest)


@pytest.mark.parametrize("text", ["", "a" * 42, "a" * 44, CHALLENGE + "\n", CHALLENGE[:-1] + "="])
def test_no_challenge(text):
    assert grants.is_challenge(CHALLENGE)
    assert not grants.is_challenge(text)
