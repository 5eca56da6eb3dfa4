"""Keys and certificates as PEM text. Decides who may be whom; touches no files."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_LIFETIME: Final = timedelta(days=3653)
_HOSTS: Final = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


class Use(Enum):
    """What a certificate proves. PEER is for etcd, whose peer port is both ends of TLS."""

    SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
    CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    PEER = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: Key

    @cached_property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @cached_property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PEM."""
        return private_pem(self.key)


def authority(common_name: str, *, now: datetime) -> KeyPair:
    """Return a new certificate authority that may sign leaf certificates only.

    Its key is RSA, which is slow to sign with and quick to check: API servers check the signature
    of a client's certificate at each request.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = _name(common_name)
    certificate = (
        _builder(name, name, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def issue(
    by: KeyPair, common_name: str, *, use: Use, organization: str = "", now: datetime
) -> KeyPair:
    """Return a certificate signed by the authority `by`.

    Kubernetes reads `common_name` as the user and `organization` as the group. Certificates
    of servers are valid for the loopback names and addresses.
    """
    key = new_key()
    builder = (
        _builder(_name(common_name, organization), by.certificate.subject, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(use.value), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False
        )
    )
    if use is not Use.CLIENT:
        builder = builder.add_extension(x509.SubjectAlternativeName(_HOSTS), critical=False)
    return KeyPair(builder.sign(by.key, hashes.SHA256()), key)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new P-256 key: made in a moment, and every server here accepts it."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: Key) -> bytes:
    """Return the private key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public half as PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A clock that was set back a little must not make the sandbox unusable.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
