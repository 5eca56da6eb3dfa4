"""Tokens, keys and a provider of the tests of this room."""

import json
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from reconciler.core.secret import Secret
from reconciler.oidc import provider, tokens
from reconciler.oidc.provider import Provider
from tests.support.issuer_tokens import Signing, SigningKey, b64, signed, signing_key

NOW: Final = 1_800_000_000.0
ISSUER: Final = "https://id.example"
DOOR: Final = "door"
AUDIENCE: Final = "https://bind.example"
NONCE: Final = "n-0S6_WzA2Mj"
KEY: Final = signing_key("key-1", "ES256")

PROVIDER: Final = Provider(
    issuer=ISSUER,
    authorization_endpoint=f"{ISSUER}/authorize",
    token_endpoint=f"{ISSUER}/token",
    jwks_uri=f"{ISSUER}/jwks",
    device_authorization_endpoint=f"{ISSUER}/device",
)


def key_set(*members: SigningKey | dict[str, Any]) -> provider.KeySet:
    listed = [key.jwk() if isinstance(key, SigningKey) else key for key in members]
    return provider.keys_of(json.dumps({"keys": listed}).encode())


def short_jwk(key: SigningKey) -> dict[str, Any]:
    """The public half of a key that is too short for joserfc to write it down."""
    assert isinstance(key.private, RSAPrivateKey)
    modulus = b64(key.private.public_key().public_numbers().n.to_bytes(key.private.key_size // 8))
    return {"kty": "RSA", "kid": key.kid, "n": modulus, "e": "AQAB"}


def of_sign_in(**changes: Any) -> dict[str, Any]:
    """The claims of an ID token; None leaves one out."""
    claims = {"iss": ISSUER, "sub": "alice", "aud": DOOR, "nonce": NONCE}
    return {**claims, "iat": NOW, "exp": NOW + 300, **changes}


def of_access(**changes: Any) -> dict[str, Any]:
    """The claims of a bearer token; None leaves one out."""
    claims = {"iss": ISSUER, "sub": "pipeline", "aud": AUDIENCE}
    return {**claims, "iat": NOW, "exp": NOW + 300, **changes}


def token(
    claims: dict[str, Any],
    header: dict[str, Any] | None = None,
    *,
    key: SigningKey = KEY,
    by: Signing = signed,
) -> Secret:
    return Secret(by(header or {}, claims, key))


def sign_in(given: Secret, known: provider.KeySet | None = None, **check: Any) -> tokens.Claims:
    """Check an ID token as the door does after a callback."""
    fields = {"issuer": ISSUER, "client_id": DOOR, "nonce": NONCE, "algorithms": tokens.ALGORITHMS}
    wanted = tokens.IdTokenCheck(**{**fields, **check})
    return tokens.id_token(given, known or key_set(KEY), wanted, now=NOW)


def access(given: Secret, known: provider.KeySet | None = None, **check: Any) -> tokens.Claims:
    """Check a bearer token as the door does for a request."""
    fields = {"issuer": ISSUER, "audiences": (AUDIENCE, "cli"), "require": {}}
    wanted = tokens.BearerCheck(**{"algorithms": tokens.ALGORITHMS, **fields, **check})
    return tokens.bearer(given, known or key_set(KEY), wanted, now=NOW)
