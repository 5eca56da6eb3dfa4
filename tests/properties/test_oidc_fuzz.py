"""Whatever a provider or a caller sends: a value or a documented error comes out."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.secret import Secret
from reconciler.oidc import grants, provider, tokens
from reconciler.oidc.provider import GrantRefused, ProviderFault, TokenRefused
from tests.support.issuer_tokens import b64
from tests.unit.oidc.made import ISSUER, KEY, access, key_set, of_access, of_sign_in, sign_in, token
from tests.unit.oidc.test_answers import DEVICE, TOKENS
from tests.unit.oidc.test_providers import DOCUMENT

KNOWN = key_set(KEY)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from((ISSUER, "RS256", "ES256", "EC", "RSA", "AQAB", "P-256", "at+jwt")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def changed(document: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    changes = st.dictionaries(st.sampled_from(sorted(document)) | st.text(max_size=4), VALUES)
    return changes.map(lambda some: {**document, **some})


def octets(document: dict[str, Any]) -> st.SearchStrategy[bytes]:
    return st.binary(max_size=64) | changed(document).map(lambda one: json.dumps(one).encode())


JWK = {**KEY.jwk(), "key_ops": ["verify"], "n": "AQAB", "e": "AQAB"}
JWKS = st.lists(changed(JWK), max_size=3).map(lambda some: json.dumps({"keys": some}).encode())


@given(octets(DOCUMENT), st.text(max_size=12) | st.just(DOCUMENT["issuer"]))
def test_documents_of_providers(document, issuer):
    with contextlib.suppress(ProviderFault):
        provider.provider_of(document, issuer=issuer)
    with contextlib.suppress(ProviderFault):
        provider.discovery_url(issuer)


@given(st.binary(max_size=64) | JWKS)
def test_key_sets(document):
    with contextlib.suppress(ProviderFault):
        known = provider.keys_of(document)
        with contextlib.suppress(TokenRefused):
            sign_in(token(of_sign_in()), known)


@given(st.integers(100, 599) | st.just(200), octets({**TOKENS, **DEVICE, "error": "a"}))
def test_answers(status, body):
    for read in (grants.tokens_of, grants.device_code_of):
        with contextlib.suppress(GrantRefused, ProviderFault):
            read(status, body)


HEADER = {"alg": "ES256", "kid": "key-1", "typ": "JWT", "crit": [], "b64": True}
PARTS = st.binary(max_size=40).map(b64) | changed(HEADER).map(lambda h: b64(json.dumps(h).encode()))


@given(st.text(max_size=40) | st.tuples(PARTS, PARTS, PARTS).map(".".join))
def test_texts_of_tokens(text):
    with contextlib.suppress(TokenRefused):
        tokens.issuer_of(Secret(text))
    for check in (sign_in, access):
        with pytest.raises(TokenRefused):
            check(Secret(text), KNOWN)


@given(changed({**of_sign_in(), **of_access(), "nbf": 1, "at_hash": "x", "events": {}, "typ": "x"}))
def test_claims_that_a_provider_signed(claims):
    given_token = token(claims)
    for check in (sign_in, access):
        with contextlib.suppress(TokenRefused):
            read = check(given_token, KNOWN)
            assert read.issuer == ISSUER
            assert 1 <= len(read.subject) <= 255
            assert read.raw["iss"] == ISSUER
