"""Which tokens are opened at all: size, header, algorithm, key, signature."""

import pytest

from reconciler.core.secret import Secret
from reconciler.oidc import tokens
from reconciler.oidc.provider import TokenRefused, UnknownKey
from tests.support import issuer_tokens
from tests.support.issuer_tokens import b64
from tests.unit.oidc.made import (
    KEY,
    access,
    key_set,
    of_access,
    of_sign_in,
    short_jwk,
    sign_in,
    token,
)

RSA = issuer_tokens.signing_key("rsa", "RS256")
OLD = issuer_tokens.signing_key("old", "ES256")
EMBEDDED = {"jwk": issuer_tokens.signing_key("another", "ES256").jwk()}
CRITICAL = {"crit": ["exp"], "exp": 1}
UNENCODED = {"crit": ["b64"], "b64": False}


def by_foreign_key(header, claims, key):
    """Sign by a key that the token brings along."""
    return issuer_tokens.by_another_key({"kid": "another", **header}, claims, key)


ATTACKS = {
    "another key under a known name": (issuer_tokens.by_another_key, {}, "signature"),
    "the subject changed afterwards": (issuer_tokens.tampered, {}, "signature"),
    "`alg` is none": (issuer_tokens.unsigned, {}, "algorithm"),
    "`alg` is None, in another case": (issuer_tokens.signed, {"alg": "nOnE"}, "algorithm"),
    "HS256 by the public key": (issuer_tokens.by_public_key, {}, "algorithm"),
    "another algorithm than the key's": (issuer_tokens.signed, {"alg": "ES384"}, "key"),
    "a brought key": (by_foreign_key, EMBEDDED, "header"),
    "a brought key, though signed by a known one": (issuer_tokens.signed, EMBEDDED, "header"),
    "a brought key set": (by_foreign_key, {"jku": "https://evil.example/keys"}, "header"),
    "a brought certificate": (by_foreign_key, {"x5u": "https://evil.example/crt"}, "header"),
    "a header that is critical": (issuer_tokens.signed, CRITICAL, "header"),
    "a payload that is not encoded": (issuer_tokens.signed, UNENCODED, "header"),
    "a key that is no text": (issuer_tokens.signed, {"kid": 1}, "header"),
    "an algorithm that is no text": (issuer_tokens.signed, {"alg": ["ES256"]}, "header"),
    "no algorithm": (issuer_tokens.signed, {"alg": None}, "malformed"),
    "a header of 5 kB": (issuer_tokens.signed, {"x5c": ["A" * 5000]}, "malformed"),
}


@pytest.mark.parametrize(("by", "header", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize(
    ("check", "claims"), [(sign_in, of_sign_in()), (access, of_access())], ids=["sign-in", "bearer"]
)
def test_attack(by, header, reason, check, claims):
    check(token(claims))
    with pytest.raises(TokenRefused) as refused:
        check(token(claims, header, by=by))
    assert refused.value.reason == reason


HEADER = b64(b'{"alg":"ES256"}')
DEEP_HEADER = b64(b'{"alg":"ES256","x":' + b"[" * 1500 + b"]" * 1500 + b"}")
DEEP_CLAIMS = b64(b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}")

TEXTS = {
    "nothing": ("", "malformed"),
    "no dots": ("abc", "malformed"),
    "an encrypted token, which has five parts": ("e30.e30.e30.e30.e30", "malformed"),
    "no JSON": (f"{b64(b'{')}.e30.AAAA", "malformed"),
    "a header that is a text": (b64(b'"alg"') + ".e30.AAAA", "malformed"),
    "a header that is a list": (b64(b'["alg"]') + ".e30.AAAA", "malformed"),
    "claims of 5,000 levels": (f"{HEADER}.{DEEP_CLAIMS}.AAAA", "malformed"),
    "claims that are a list": (f"{HEADER}.{b64(b'[]')}.AAAA", "malformed"),
    "claims that are not UTF-8": (f"{HEADER}.{b64(bytes([123, 34, 255]))}.AAAA", "malformed"),
    "half a letter in claims": (HEADER + "." + b64(b'{"sub":"\\ud800"}') + ".AAAA", "malformed"),
    "no number as a time": (HEADER + "." + b64(b'{"exp":NaN}') + ".AAAA", "malformed"),
    "padding": (f"{HEADER}.e30=.AAAA", "malformed"),
    "letters beyond ASCII": ("é.é.é", "malformed"),
    "17 KiB": ("a" * 17 * 1024, "size"),
    "10 MB": ("a" * 10_000_000, "size"),
}


@pytest.mark.parametrize(("text", "reason"), TEXTS.values(), ids=TEXTS.keys())
def test_text(text, reason):
    for read in (sign_in, access, tokens.issuer_of):
        with pytest.raises(TokenRefused) as refused:
            read(Secret(text))
        assert refused.value.reason == reason


def test_a_token_of_16_kib_counts():
    room = 16 * 1024 - len(token(of_access(pad="")).reveal())
    padded = token(of_access(pad="x" * (room * 3 // 4)))
    assert 16_300 < len(padded.reveal()) <= 16 * 1024
    assert access(padded).subject == "pipeline"


@pytest.mark.parametrize("algorithm", [a for a in tokens.ALGORITHMS if a != "EdDSA"])
def test_each_algorithm_of_ours_counts(algorithm):
    key = issuer_tokens.signing_key(f"of-{algorithm[:2]}", algorithm)
    assert sign_in(token(of_sign_in(), key=key), key_set(key)).subject == "alice"


def test_the_older_name_of_ed25519_counts_for_its_keys():
    key = issuer_tokens.signing_key("edwards", "Ed25519")
    named = token(of_sign_in(), {"alg": "EdDSA"}, key=key)
    assert sign_in(named, key_set(key)).subject == "alice"
    assert sign_in(named, key_set(key.jwk(alg="EdDSA"))).subject == "alice"


def test_discovery_narrows_the_algorithms():
    with pytest.raises(TokenRefused) as refused:
        sign_in(token(of_sign_in()), algorithms=("RS256",))
    assert refused.value.reason == "algorithm"


def test_a_provider_that_lists_none_does_not_widen_them():
    with pytest.raises(TokenRefused) as refused:
        sign_in(token(of_sign_in(), by=issuer_tokens.unsigned), algorithms=("none", "ES256"))
    assert refused.value.reason == "algorithm"


def test_a_header_that_is_not_known_is_passed_over():
    assert sign_in(token(of_sign_in(), {"nonce": "x", "x5t": "abc"})).subject == "alice"


KEY_SETS = {
    "its key is not there": ((OLD,), {}, UnknownKey),
    "its key is to encrypt": ((KEY.jwk(use="enc"),), {}, UnknownKey),
    "its key is for another algorithm": ((KEY.jwk(alg="ES384"),), {}, UnknownKey),
    "its key is to sign with": ((KEY.jwk(key_ops=["sign"]),), {}, UnknownKey),
    "its key has no use": ((KEY.jwk(use=None, alg=None),), {}, None),
    "two keys of one name": (({**OLD.jwk(), "kid": "key-1"}, KEY), {}, None),
    "no name, one of two keys": ((OLD, KEY, RSA), {"kid": None}, None),
    "no name, the 8th key that fits": ((*(OLD,) * 7, RSA, KEY), {"kid": None}, None),
    "no name, the 9th key that fits": ((*(OLD,) * 8, KEY), {"kid": None}, UnknownKey),
    "no name, keys without names": ((OLD.jwk(kid=None), KEY.jwk(kid=None)), {"kid": None}, None),
    "no name, and the key is not there": ((OLD,), {"kid": None}, UnknownKey),
    "no keys": ((), {}, UnknownKey),
}


@pytest.mark.parametrize(("known", "header", "error"), KEY_SETS.values(), ids=KEY_SETS.keys())
def test_key_set(known, header, error):
    given = token(of_sign_in(), header)
    if error is None:
        assert sign_in(given, key_set(*known)).subject == "alice"
    else:
        with pytest.raises(error):
            sign_in(given, key_set(*known))


def test_a_key_of_1024_bits_proves_nothing():
    short = issuer_tokens.signing_key("short", "RS256", 1024)
    with pytest.raises(UnknownKey):
        sign_in(token(of_sign_in(), key=short), key_set(short_jwk(short), KEY))


def test_what_a_token_names_is_read_before_it_is_proven():
    assert tokens.issuer_of(token(of_access(), by=issuer_tokens.tampered)) == "https://id.example"
    for issuer in ("", None, 7, ["https://id.example"]):
        with pytest.raises(TokenRefused):
            tokens.issuer_of(token(of_access(iss=issuer)))


def test_no_refusal_shows_the_token():
    given = token(of_sign_in(canary="canary-claim"), {"kid": "unknown"})
    with pytest.raises(UnknownKey) as refused:
        sign_in(given)
    assert not any(part in str(refused.value) for part in given.reveal().split("."))
    assert "canary" not in repr(sign_in(token(of_sign_in(canary="canary-claim"))))


@pytest.mark.parametrize("read", [sign_in, access, tokens.issuer_of])
def test_a_header_of_1500_levels(read):
    """Which check refuses it depends on how deep the JSON of this Python reads."""
    with pytest.raises(TokenRefused):
        read(Secret(f"{DEEP_HEADER}.e30.AAAA"))
