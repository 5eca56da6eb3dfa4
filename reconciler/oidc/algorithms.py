"""Signature algorithms that prove anything here (RFC 7518, 8037, 9864)."""

from typing import Final

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

_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_EDWARDS: Final = ("Ed25519", "EdDSA")


def kind_of(algorithm: str) -> str:
    """Return the kind of key of one of `ALGORITHMS`: `RSA` or a curve."""
    if algorithm in _EDWARDS:
        return "Ed25519"
    return _CURVES.get(algorithm, "RSA")


def is_same(algorithm: str, other: str) -> bool:
    """Compare two algorithms; EdDSA by an Ed25519 key has two names."""
    return algorithm == other or (algorithm in _EDWARDS and other in _EDWARDS)
