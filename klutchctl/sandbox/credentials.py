"""Makes the keys, certificates and kubeconfigs of a sandbox.

Keys are made once and kept for as long as the sandbox lives. Each cluster has an authority and a
service account key of its own, so that no credential of one cluster is worth anything in another.
etcd has its own authority too: a client certificate of a cluster does not open it behind the API
server's back.
"""

import base64
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from klutchctl import files
from klutchctl.sandbox.state import CONTROLLER_MANAGER_USER, LOOPBACK, Layout, Member
from reconciler.core.secret import Secret
from reconciler.kube.connection import ClientCertificate, Connection, Credential

Key: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_LIFETIME: Final = timedelta(days=3653)
_HOSTS: Final = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


class Use(Enum):
    """The use of a certificate. PEER is for etcd: its peer port is both ends of TLS."""

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
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @cached_property
    def key_pem(self) -> bytes:
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
    by: KeyPair,
    common_name: str,
    *,
    use: Use,
    organization: str = "",
    address: str = LOOPBACK,
    now: datetime,
) -> KeyPair:
    """Return a certificate signed by the authority `by`.

    Kubernetes reads `common_name` as the user and `organization` as the group. Certificates
    of servers are valid for the loopback names and addresses, and for their own `address`.
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
        own = x509.IPAddress(ipaddress.ip_address(address))
        hosts = (*_HOSTS, *(() if own in _HOSTS else (own,)))
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
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
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def ensure_etcd(folder: Path) -> None:
    """Create the certificates of etcd in `folder`, unless they are there."""
    if not folder.exists():
        now = datetime.now(UTC)
        own = authority("klutchctl sandbox etcd", now=now)
        contents = {"ca.crt": own.certificate_pem}
        contents |= named("server", issue(own, "etcd", use=Use.PEER, now=now))
        client = issue(own, "kube-apiserver", use=Use.CLIENT, now=now)
        files.write_folder(folder, contents | named("client", client))


def ensure_cluster(folder: Path, *, context: str, address: str = LOOPBACK) -> None:
    """Create the certificates of the cluster `context` in `folder`, unless they are there."""
    if folder.exists():
        return
    now = datetime.now(UTC)
    # X.509 allows a common name of 64 characters; the name of the authority is for people only.
    own = authority(f"klutchctl sandbox {context}"[:64], now=now)
    service_accounts = new_key()
    contents = named("ca", own) | {
        "service-account.key": private_pem(service_accounts),
        "service-account.pub": public_pem(service_accounts),
    }
    server = issue(own, "kube-apiserver", use=Use.SERVER, address=address, now=now)
    contents |= named("server", server)
    # The controllers run as one identity, so it needs the rights of all of them.
    for stem, user in (("admin", "admin"), ("controller-manager", CONTROLLER_MANAGER_USER)):
        client = issue(own, user, organization="system:masters", use=Use.CLIENT, now=now)
        contents |= named(stem, client)
    files.write_folder(folder, contents)


def ensure_component(folder: Path) -> None:
    """Create the certificate of the services in `folder`, unless it is there.

    With the file names of a Secret of type kubernetes.io/tls.
    """
    if not folder.exists():
        now = datetime.now(UTC)
        own = authority("klutchctl sandbox services", now=now)
        both = issue(own, "services", use=Use.PEER, now=now)
        files.write_folder(folder, {"ca.crt": own.certificate_pem} | named("tls", both))


def ensure_client(folder: Path, authority: Path, *, user: str) -> None:
    """Create the certificate of one more user of a cluster in `folder`, unless it is there.

    `authority` is the folder of `ensure_cluster`.
    """
    if not folder.exists():
        client = issue(authority_in(authority), user, use=Use.CLIENT, now=datetime.now(UTC))
        files.write_folder(folder, named("client", client))


def authority_in(folder: Path) -> KeyPair:
    """Return the authority of `ensure_cluster` in a folder."""
    certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return KeyPair(certificate, key)


def named(stem: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{stem}.crt": pair.certificate_pem, f"{stem}.key": pair.key_pem}


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


def connection(layout: Layout, member: Member, client: Path | None = None) -> Connection:
    """Return how to reach the API server of `member`, as an administrator.

    Or as the `client` whose certificate and key are these files, but for their suffixes.
    """
    folder = layout.pki(member.id)
    own = client or folder / "admin"
    return Connection(
        name=member.context,
        server=member.server,
        credential=ClientCertificate(
            certificate=own.with_suffix(".crt").read_text(),
            key=Secret(own.with_suffix(".key").read_text()),
        ),
        ca=(folder / "ca.crt").read_text(),
    )


def kubeconfig(layout: Layout, members: Iterable[Member], client: Path | None = None) -> bytes:
    """Return a kubeconfig with a context for each cluster; the first is the current one.

    It is complete in itself, so it can be copied elsewhere. It holds private keys.
    """
    ways = [connection(layout, member, client) for member in members]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": way.name,
                "cluster": {
                    "server": way.server,
                    "certificate-authority-data": _base64(way.ca or ""),
                },
            }
            for way in ways
        ],
        "users": [{"name": way.name, "user": _user(way.credential)} for way in ways],
        "contexts": [
            {"name": way.name, "context": {"cluster": way.name, "user": way.name}} for way in ways
        ],
        "current-context": ways[0].name,
    }
    return yaml.safe_dump(document, sort_keys=False, width=1000).encode()


def _user(credential: Credential) -> dict[str, str]:
    assert isinstance(credential, ClientCertificate)
    return {
        "client-certificate-data": _base64(credential.certificate),
        "client-key-data": _base64(credential.key.reveal()),
    }


def _base64(content: str) -> str:
    return base64.b64encode(content.encode()).decode("ascii")
