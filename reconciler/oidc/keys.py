"""Parses key sets of providers, and finds the keys that can have signed a token (RFC 7517)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.util import urlsafe_b64decode

from reconciler.oidc.errors import ProviderFault

# No `none`, and no HS: its key would be the public one (RFC 8725 2.1).
ALGORITHMS: Final[tuple[str, ...]] = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)

_CURVES_OF: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_EDWARDS: Final = ("Ed25519", "EdDSA")


def kind_of(algorithm: str) -> str:
    """Return the kind of key of one of `ALGORITHMS`: `RSA` or a curve."""
    if algorithm in _EDWARDS:
        return "Ed25519"
    return _CURVES_OF.get(algorithm, "RSA")


def is_same(algorithm: str, other: str) -> bool:
    """Compare two algorithms; EdDSA by an Ed25519 key has two names."""
    return algorithm == other or (algorithm in _EDWARDS and other in _EDWARDS)


_MOST_KEYS: Final = 100
_MOST_FITTING: Final = 8  # a signature costs its check by each
_RSA_BITS: Final = range(2048, 8192 + 1)
_CURVES: Final = ("P-256", "P-384", "P-521")
# What makes a public key; nothing else of a JWK is given on, neither `d` nor `x5u`.
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("kty", "n", "e"),
    "EC": ("kty", "crv", "x", "y"),
    "OKP": ("kty", "crv", "x"),
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that can check signatures. `kind` is `RSA` or a curve; `algorithm` may be empty."""

    id: str
    algorithm: str
    kind: str
    key: Key = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of a provider that can be used."""

    keys: tuple[PublicKey, ...]

    def fitting(self, algorithm: str, key_id: str) -> tuple[PublicKey, ...]:
        """Return the keys that can have made a signature, 8 at most; any id where none is given."""
        found = (
            key
            for key in self.keys
            if key_id in ("", key.id)
            and key.kind == kind_of(algorithm)
            and (not key.algorithm or is_same(key.algorithm, algorithm))
        )
        return tuple(found)[:_MOST_FITTING]


def keys_of(document: bytes) -> KeySet:
    """Read a key set; keys that cannot be used here are dropped (RFC 7517 5).

    Raises ProviderFault: no JSON object with a list `keys`.
    """
    try:
        read = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise ProviderFault("the key set is no JSON") from None
    listed = read.get("keys") if isinstance(read, dict) else None
    if not isinstance(listed, list):
        raise ProviderFault("the key set has no list `keys`")
    read_keys = (_public_key(jwk) for jwk in listed[:_MOST_KEYS] if isinstance(jwk, dict))
    return KeySet(tuple(key for key in read_keys if key is not None))


def rsa_bits(jwk: Mapping[str, object]) -> int:
    """Return the length of an RSA modulus; joserfc only warns of short ones. Raises ValueError."""
    modulus = jwk.get("n")
    if not isinstance(modulus, str):
        raise ValueError("an RSA key has no modulus")
    return int.from_bytes(urlsafe_b64decode(modulus.encode())).bit_length()


def _public_key(jwk: Mapping[str, object]) -> PublicKey | None:
    key_id, algorithm = jwk.get("kid", ""), jwk.get("alg", "")
    if not isinstance(key_id, str) or not isinstance(algorithm, str) or not _may_verify(jwk):
        return None
    try:
        key = _imported(jwk)
    except (JoseError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if key is None:
        return None
    kind = "RSA" if isinstance(key, RSAKey) else str(jwk["crv"])
    return PublicKey(key_id, algorithm, kind, key)


def _may_verify(jwk: Mapping[str, object]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig"
        and jwk.get("alg", "") in ("", *ALGORITHMS)
        and isinstance(operations, list)
        and "verify" in operations
    )


def _imported(jwk: Mapping[str, object]) -> Key | None:
    """Return the public key, or None for a kind that signs no token here."""
    kind = jwk.get("kty")
    members = _MEMBERS.get(kind, ()) if isinstance(kind, str) else ()
    public: dict[str, str | list[str]] = {
        name: value for name in members if isinstance(value := jwk.get(name), str)
    }
    if kind == "RSA" and rsa_bits(public) in _RSA_BITS:
        return RSAKey.import_key(public)
    if kind == "EC" and public.get("crv") in _CURVES:
        return ECKey.import_key(public)
    if kind == "OKP" and public.get("crv") == "Ed25519":
        return OKPKey.import_key(public)
    return None
