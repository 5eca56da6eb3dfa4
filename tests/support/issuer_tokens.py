"""Keys and tokens of a provider that lies on cue. Signed by hand: a library refuses most lies."""

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from joserfc import jwk

Private: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Claims: TypeAlias = Mapping[str, Any]

_HASHES: Final[Mapping[str, Callable[[], hashes.HashAlgorithm]]] = {
    "256": hashes.SHA256,
    "384": hashes.SHA384,
    "512": hashes.SHA512,
}
_CURVES: Final[Mapping[str, Callable[[], ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key, the name of its public half, and the algorithm that it signs by."""

    kid: str
    algorithm: str
    private: Private

    @property
    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def private_pem(self) -> bytes:
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def jwk(self, **members: Any) -> dict[str, Any]:
        """Return the public half as it stands in a key set; None leaves a member out."""
        public = jwk.import_key(self.public_pem, _KINDS[self.algorithm[:2]]).as_dict(private=False)
        known = {"kid": self.kid, "use": "sig", "alg": self.algorithm}
        return without_none({**public, **known, **members})

    def sign(self, data: bytes) -> bytes:
        if isinstance(self.private, ed25519.Ed25519PrivateKey):
            return self.private.sign(data)
        digest = _HASHES[self.algorithm[2:]]()
        if isinstance(self.private, ec.EllipticCurvePrivateKey):
            width = (self.private.curve.key_size + 7) // 8
            halves = decode_dss_signature(self.private.sign(data, ec.ECDSA(digest)))
            return b"".join(half.to_bytes(width, "big") for half in halves)
        if self.algorithm.startswith("PS"):
            pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
            return self.private.sign(data, pss, digest)
        return self.private.sign(data, padding.PKCS1v15(), digest)


_KINDS: Final[Mapping[str, Any]] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


@functools.cache  # a key of RSA takes its time, and no test cares which it is
def signing_key(kid: str = "key-1", algorithm: str = "RS256", bits: int = 2048) -> SigningKey:
    """Return the key of this name, made once per process."""
    if algorithm[:2] in ("RS", "PS"):
        return SigningKey(kid, algorithm, rsa.generate_private_key(65537, bits))
    if algorithm in _CURVES:
        return SigningKey(kid, algorithm, ec.generate_private_key(_CURVES[algorithm]()))
    return SigningKey(kid, algorithm, ed25519.Ed25519PrivateKey.generate())


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def at_hash(access_token: str) -> str:
    """Return what an ID token says of the access token beside it, for algorithms with SHA-256."""
    return b64(hashlib.sha256(access_token.encode()).digest()[:16])


def payload(token: str) -> dict[str, Any]:
    """Return the claims of a token, whatever they are worth."""
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


# Ways to sign: (header, claims, key) -> token. The header's own members win, None leaves one out.
Signing: TypeAlias = Callable[[Claims, Claims, SigningKey], str]


def signed(header: Claims, claims: Claims, key: SigningKey) -> str:
    text = _unsigned({"alg": key.algorithm, "kid": key.kid, "typ": "JWT", **header}, claims)
    return f"{text}.{b64(key.sign(text.encode()))}"


def unsigned(header: Claims, claims: Claims, key: SigningKey) -> str:
    """Sign nothing, and say so: `alg` is `none`."""
    return _unsigned({"kid": key.kid, "typ": "JWT", **header, "alg": "none"}, claims) + "."


def by_public_key(header: Claims, claims: Claims, key: SigningKey) -> str:
    """Sign by HS256, with the public key as the secret."""
    text = _unsigned({"kid": key.kid, "typ": "JWT", **header, "alg": "HS256"}, claims)
    return f"{text}.{b64(hmac.digest(key.public_pem, text.encode(), 'sha256'))}"


def by_another_key(header: Claims, claims: Claims, key: SigningKey) -> str:
    """Sign by a key that is not published, under the name of one that is."""
    return signed({"kid": key.kid, **header}, claims, signing_key("another", key.algorithm))


def tampered(header: Claims, claims: Claims, key: SigningKey) -> str:
    """Sign, and have another subject in it after."""
    head, _, signature = signed(header, claims, key).split(".")
    return f"{head}.{b64(json.dumps({**claims, 'sub': 'mallory'}).encode())}.{signature}"


def _unsigned(header: Claims, claims: Claims) -> str:
    parts = (without_none(header), without_none(claims))
    return ".".join(b64(json.dumps(part).encode()) for part in parts)
