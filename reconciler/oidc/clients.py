"""Authentication of a client at a provider (RFC 6749 2.3, RFC 7523 2.2)."""

import base64
import warnings
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote_plus

import orjson
from authlib.oauth2.rfc7523 import private_key_jwt_sign
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from reconciler.core.secret import Secret
from reconciler.oidc.provider import (
    ALGORITHMS,
    CredentialFault,
    Provider,
    ProviderFault,
    kind_of,
    rsa_bits,
)

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFE: Final = 60  # seconds
_LEAST_RSA_BITS: Final = 2048

Fields: TypeAlias = tuple[tuple[str, Secret | str], ...]


@dataclass(frozen=True, slots=True)
class Client:
    """A client of a provider, with one credential or none (a public client).

    `key` is a PEM or a JWK, for private_key_jwt; `assertion` a JWT that another issuer signed.
    """

    id: str
    secret: Secret | None = None
    key: Secret | None = None
    assertion: Secret | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof in a request: form fields, or a header."""

    fields: Fields
    authorization: Secret | None = None


def proof(provider: Provider, client: Client, *, now: float, jti: bytes) -> Proof:
    """Return the proof of the client's identity, by its strongest credential.

    Raises CredentialFault: the private key cannot be used; ProviderFault: the provider takes
    no client secret.
    """
    if client.assertion is not None:
        return Proof(_assertion_fields(client, client.assertion))
    if client.key is not None:
        signed = _signed_assertion(provider, client, client.key, now=now, jti=jti)
        return Proof(_assertion_fields(client, signed))
    if client.secret is None:
        return Proof((("client_id", client.id),))
    if "client_secret_basic" in provider.token_auth_methods:
        return Proof((), _basic(client.id, client.secret))
    if "client_secret_post" in provider.token_auth_methods:
        return Proof((("client_id", client.id), ("client_secret", client.secret)))
    raise ProviderFault(f"provider {provider.issuer}: takes no client secret: give a private key")


def _basic(client_id: str, secret: Secret) -> Secret:
    """Return HTTP Basic of form-encoded id and secret, so that a colon is one (RFC 6749 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret.reveal())}"
    return Secret(f"Basic {base64.b64encode(pair.encode()).decode()}")


def _assertion_fields(client: Client, assertion: Secret) -> Fields:
    fields = (("client_assertion_type", _ASSERTION_TYPE), ("client_assertion", assertion))
    return (("client_id", client.id), *fields) if client.id else fields


def _signed_assertion(
    provider: Provider, client: Client, secret: Secret, *, now: float, jti: bytes
) -> Secret:
    if len(jti) < 16:
        raise ValueError("an assertion needs an id of 16 random bytes")
    key = _private_key(secret)
    with warnings.catch_warnings():
        # The name EdDSA is old, not weak; providers know it more often than Ed25519.
        warnings.simplefilter("ignore", SecurityWarning)
        # The issuer as audience: the token endpoint's URL, another provider could choose
        # (CVE-2025-27370).
        signed = private_key_jwt_sign(
            key,
            client.id,
            provider.issuer,
            alg=_algorithm(key, provider),
            claims={"jti": base64.urlsafe_b64encode(jti).rstrip(b"=").decode()},
            header={"kid": key.kid} if key.kid else {},
            issued_at=int(now),
            expires_in=_ASSERTION_LIFE,
        )
    return Secret(str(signed))


def _algorithm(key: Key, provider: Provider) -> str:
    if key.alg:
        return key.alg
    kind = "RSA" if isinstance(key, RSAKey) else getattr(key, "curve_name", "")
    possible = [name for name in ALGORITHMS if kind_of(name) == kind]
    announced = provider.assertion_algorithms or ALGORITHMS
    for name in possible:
        if name in announced:
            return name
    raise CredentialFault(
        f"provider {provider.issuer}: takes no signature by a key of kind {kind or key.key_type}"
    )


def _private_key(secret: Secret) -> Key:
    text = secret.reveal().strip()
    try:
        key = _of_jwk(text) if text.startswith("{") else _of_pem(text)
    except (JoseError, ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained: the error may quote the key.
        raise CredentialFault("the private key is no PEM and no JWK, or is encrypted") from None
    if key is None or not key.is_private or key.alg not in (None, *ALGORITHMS):
        raise CredentialFault("give a private key: RSA of 2048 bits, P-256 to P-521, or Ed25519")
    return key


def _of_pem(text: str) -> Key | None:
    match load_pem_private_key(text.encode(), password=None):
        case RSAPrivateKey() as raw if raw.key_size >= _LEAST_RSA_BITS:
            return RSAKey.import_key(raw)
        case EllipticCurvePrivateKey() as raw:
            return ECKey.import_key(raw)
        case Ed25519PrivateKey() as raw:
            return OKPKey.import_key(raw)
        case _:
            return None


def _of_jwk(text: str) -> Key | None:
    jwk = orjson.loads(text)
    match jwk.get("kty"):
        case "RSA" if rsa_bits(jwk) >= _LEAST_RSA_BITS:
            return RSAKey.import_key(jwk)
        case "EC":
            return ECKey.import_key(jwk)
        case "OKP" if jwk.get("crv") == "Ed25519":
            return OKPKey.import_key(jwk)
        case _:
            return None
