"""CA files: public certificates and nothing else."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.fleet import clusters


def certificate():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return built.public_bytes(serialization.Encoding.PEM), private


PEM, KEY = certificate()


def test_certificates_are_read_without_what_stands_between():
    assert (
        clusters.read_certificates(b"subject=ca canary\n" + PEM + b"\n" + PEM)
        == (PEM + PEM).decode()
    )
    assert clusters.read_certificates(PEM.replace(b"\n", b"\r\n")) == PEM.decode()


REFUSED = {
    "nothing": (b"", "not-certificates"),
    "text": (b"canary", "not-certificates"),
    "not text": (b"\xff\xfe" + PEM, "not-certificates"),
    "a private key": (KEY, "private-key"),
    "a certificate and its key": (PEM + KEY, "private-key"),
    "an old kind of key": (KEY.replace(b" PRIVATE", b" EC PRIVATE"), "private-key"),
    "a public key": (PEM.replace(b"CERTIFICATE", b"PUBLIC KEY"), "not-certificates"),
    "a block that is cut": (PEM[:-30], "not-certificates"),
    "a second block that is cut": (PEM + PEM[:-30], "not-certificates"),
    "half a certificate": (PEM[:100] + PEM[-30:], "not-certificates"),
    "a secret in a block": (
        b"-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n",
        "not-certificates",
    ),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_refused_and_not_quoted(content, code):
    with pytest.raises(clusters.NotCertificates) as caught:
        clusters.read_certificates(content)
    assert caught.value.code == code
    assert "canary" not in str(caught.value)
