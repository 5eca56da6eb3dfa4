"""The public keys that may sign, and the check of a raw signature by each.

Not accepted: DSA, RSA below 2048 bits, RSA with SHA-1, keys in certificates, and signatures of a
security key that nobody touched.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from reconciler.source.signature import Refused, shown
from reconciler.source.sshsig.wire import Reader

_FEWEST_BITS: Final = 2_048
_MOST_BITS: Final = 16_384  # as in OpenSSH: more cost more time than they are worth
_MOST_EXPONENT_BITS: Final = 64
_USER_PRESENT: Final = 0x01  # a flag of what a security key signs: somebody touched it
_RSA_HASHES: Final[Mapping[bytes, hashes.HashAlgorithm]] = {
    b"rsa-sha2-256": hashes.SHA256(),
    b"rsa-sha2-512": hashes.SHA512(),
}


class PublicKey(Protocol):
    """A public key of one type."""

    def check(self, signature: bytes, message: bytes) -> None:
        """Check a signature blob of SSH over a message. Raises Refused."""
        ...


def public_key(blob: bytes) -> PublicKey:
    """Return the key in a blob, as the base64 of a line with a public key holds it.

    Raises Refused, with what is wrong with the key.
    """
    reader = Reader(blob)
    name = reader.string()
    if b"-cert-" in name:
        raise Refused("is a certificate, which is not accepted; list the key itself")
    if name not in _TYPES:
        known = ", ".join(sorted(one.decode() for one in _TYPES))
        raise Refused(f"is a key of type {shown(name)}, which is not accepted: use {known}")
    key = _TYPES[name](reader)
    reader.end()
    return key


def fingerprint(blob: bytes) -> str:
    """Return the name of the key in a blob, as `ssh-keygen -l` prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


@dataclass(frozen=True, slots=True)
class _Ed25519:
    key: Ed25519PublicKey

    def check(self, signature: bytes, message: bytes) -> None:
        reader = Reader(signature)
        _expect(reader, b"ssh-ed25519")
        raw = reader.string()
        reader.end()
        self.check_raw(raw, message)

    def check_raw(self, raw: bytes, message: bytes) -> None:
        _passes(lambda: self.key.verify(raw, message))


@dataclass(frozen=True, slots=True)
class _Ecdsa:
    name: bytes
    key: ec.EllipticCurvePublicKey
    hash: hashes.HashAlgorithm

    def check(self, signature: bytes, message: bytes) -> None:
        reader = Reader(signature)
        _expect(reader, self.name)
        raw = reader.string()
        reader.end()
        self.check_raw(raw, message)

    def check_raw(self, raw: bytes, message: bytes) -> None:
        numbers = Reader(raw)
        r, s = numbers.mpint(), numbers.mpint()
        numbers.end()
        encoded = encode_dss_signature(r, s)
        _passes(lambda: self.key.verify(encoded, message, ec.ECDSA(self.hash)))


@dataclass(frozen=True, slots=True)
class _Rsa:
    key: rsa.RSAPublicKey

    def check(self, signature: bytes, message: bytes) -> None:
        reader = Reader(signature)
        name = reader.string()
        if name not in _RSA_HASHES:
            raise Refused(f"is made with {shown(name)}, not with rsa-sha2-256 or rsa-sha2-512")
        raw = reader.string()
        reader.end()
        size = (self.key.key_size + 7) // 8
        # Signers may leave zeros out that begin the number.
        padded = raw.rjust(size, b"\0")
        _passes(lambda: self.key.verify(padded, message, padding.PKCS1v15(), _RSA_HASHES[name]))


@dataclass(frozen=True, slots=True)
class _SecurityKey:
    """A key in a device (FIDO), which signs digests together with its flags and a counter."""

    name: bytes
    key: _Ed25519 | _Ecdsa
    application: bytes

    def check(self, signature: bytes, message: bytes) -> None:
        reader = Reader(signature)
        _expect(reader, self.name)
        raw = reader.string()
        flags, counter = reader.byte(), reader.take(4)
        reader.end()
        if not flags & _USER_PRESENT:
            raise Refused("is of a security key that nobody touched")
        digest, application = _sha256(message), _sha256(self.application)
        self.key.check_raw(raw, application + bytes([flags]) + counter + digest)


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _expect(reader: Reader, name: bytes) -> None:
    found = reader.string()
    if found != name:
        raise Refused(f"is made with {shown(found)}, and its key is of type {name.decode()}")


def _passes(verify: Callable[[], None]) -> None:
    try:
        verify()
    except (InvalidSignature, ValueError):
        raise Refused("does not fit its content, which was changed or signed by another") from None


def _ed25519(reader: Reader) -> _Ed25519:
    try:
        return _Ed25519(Ed25519PublicKey.from_public_bytes(reader.string()))
    except ValueError:
        raise Refused("is no key of its type") from None


def _ecdsa(
    name: bytes, curve: ec.EllipticCurve, algorithm: hashes.HashAlgorithm
) -> Callable[[Reader], _Ecdsa]:
    def read(reader: Reader) -> _Ecdsa:
        if reader.string() != name.rpartition(b"-")[2].partition(b"@")[0]:
            raise Refused("names another curve than its type")
        try:
            key = ec.EllipticCurvePublicKey.from_encoded_point(curve, reader.string())
        except ValueError:
            raise Refused("is no key of its type") from None
        return _Ecdsa(name, key, algorithm)

    return read


def _rsa(reader: Reader) -> _Rsa:
    exponent, modulus = reader.mpint(), reader.mpint()
    bits = modulus.bit_length()
    if bits < _FEWEST_BITS:
        raise Refused(f"is an RSA key of {bits} bits, and {_FEWEST_BITS} are the fewest accepted")
    if bits > _MOST_BITS or exponent.bit_length() > _MOST_EXPONENT_BITS:
        raise Refused("is an RSA key with numbers that are too large")
    try:
        return _Rsa(rsa.RSAPublicNumbers(exponent, modulus).public_key())
    except ValueError:
        raise Refused("is no key of its type") from None


def _security_key(
    name: bytes, inner: Callable[[Reader], _Ed25519 | _Ecdsa]
) -> Callable[[Reader], _SecurityKey]:
    return lambda reader: _SecurityKey(name, inner(reader), reader.string())


_SK_ED25519: Final = b"sk-ssh-ed25519@openssh.com"
_SK_ECDSA: Final = b"sk-ecdsa-sha2-nistp256@openssh.com"
_P256: Final = (ec.SECP256R1(), hashes.SHA256())
_Type: TypeAlias = Callable[[Reader], PublicKey]
_TYPES: Final[Mapping[bytes, _Type]] = {
    b"ssh-ed25519": _ed25519,
    b"ssh-rsa": _rsa,
    b"ecdsa-sha2-nistp256": _ecdsa(b"ecdsa-sha2-nistp256", *_P256),
    b"ecdsa-sha2-nistp384": _ecdsa(b"ecdsa-sha2-nistp384", ec.SECP384R1(), hashes.SHA384()),
    b"ecdsa-sha2-nistp521": _ecdsa(b"ecdsa-sha2-nistp521", ec.SECP521R1(), hashes.SHA512()),
    _SK_ED25519: _security_key(_SK_ED25519, _ed25519),
    _SK_ECDSA: _security_key(_SK_ECDSA, _ecdsa(_SK_ECDSA, *_P256)),
}
