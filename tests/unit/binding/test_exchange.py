"""What an exchange says of the token that it brings (RFC 8693 3)."""

import json

import pytest

from klutchctl.binding.sign_in.tokens import subject_type
from reconciler.core.secret import Secret
from tests.support.issuer_tokens import b64

ISSUER = "https://id.example.org/realms/a"
TYPE = "urn:ietf:params:oauth:token-type:"


def token(**claims):
    parts = ({"alg": "RS256"}, claims)
    return ".".join([*(b64(json.dumps(one).encode()) for one in parts), b64(b"signature")])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (token(iss=ISSUER), "access_token"),
        (token(iss="https://token.actions.githubusercontent.com"), "jwt"),
        (token(iss=f"{ISSUER}/"), "jwt"),
        (token(sub="without issuer"), "access_token"),
        ("opaque", "access_token"),
    ],
)
def test_an_issuers_own_token_is_an_access_token_and_anothers_a_jwt(text, kind):
    assert subject_type(Secret(text), ISSUER) == TYPE + kind
